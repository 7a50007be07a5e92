//! The streamer: reads READY messages from the control bus and pushes the rows of their packs to a
//! gate.
//!
//! It may be killed at any point: the same row of the same run always gives the same envelope, so
//! the gate deduplicates, and the streamer keeps only its progress. Handling of a READY:
//! [`consume`]; streaming of an output: [`output`].

pub mod checkpoint;
mod consume;
pub mod control;
pub mod envelope;
pub mod facts;
pub mod gate;
pub mod http;
pub mod identity;
mod output;
pub mod pace;
pub mod pack;
pub mod progress;
pub mod ready;
pub mod reason;
pub mod records;
mod run;
pub mod session;
pub mod settings;

use std::path::PathBuf;
use std::sync::Arc;

use admit_core::Clock;

pub use consume::{Cycle, CycleOutcome, Streamer, StreamerError};
pub use output::OutputResult;
pub use reason::{Reason, RunFailure};
pub use records::ReadyStatus;
pub use run::StreamResult;
pub use settings::{RetryPolicy, Settings};

/// Opens the pack at a location as written in READY; the error is the reason why it cannot.
pub type OpenPack = dyn Fn(&str) -> Result<Arc<dyn pack::store::PackStore>, String> + Send + Sync;

/// Dependencies of a streamer.
pub struct StreamerParts {
    /// Its settings.
    pub settings: Arc<Settings>,
    /// Source of READY messages.
    pub control: Arc<dyn control::Control>,
    /// Facts of runs, and the streamer's records.
    pub records: records::ReadyRecords,
    /// Checkpoints.
    pub checkpoints: Arc<dyn checkpoint::Checkpoints>,
    /// The gate.
    pub gate: Arc<dyn gate::EnvelopeTarget>,
    /// Opens packs.
    pub packs: Arc<OpenPack>,
    /// Folder of the session logs.
    pub sessions: PathBuf,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for retry delays.
    pub chance: Arc<gate::RandomSource>,
    /// Progress, for display.
    pub progress: progress::StreamProgress,
}
