//! The streamer: takes READY off the control bus and pushes the rows of its pack to a gate.
//!
//! It is a producer that may be killed anywhere. What it sends is the same for the same row of the
//! same run, so the gate knows copies; what it remembers is only how far it has come. The order of
//! things with a READY is in [`consume`], with an output in [`output`].

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

pub use consume::{Cycle, Outcome, Streamer, StreamerError};
pub use output::Emitted;
pub use reason::{Failure, Reason};
pub use records::Status;
pub use run::Streamed;
pub use settings::{Retry, Settings};

/// Opens the pack at a place, as READY writes places; the error says why it cannot.
pub type OpenPack = dyn Fn(&str) -> Result<Arc<dyn pack::store::PackStore>, String> + Send + Sync;

/// What a streamer is made of.
pub struct Parts {
    /// How it behaves.
    pub settings: Arc<Settings>,
    /// Where READY comes from.
    pub control: Arc<dyn control::Control>,
    /// Facts of runs, and its own records.
    pub records: records::Records,
    /// Its progress.
    pub checkpoints: Arc<dyn checkpoint::Checkpoints>,
    /// Where envelopes go.
    pub gate: Arc<dyn gate::Gate>,
    /// How packs are opened.
    pub packs: Arc<OpenPack>,
    /// The folder of the session logs.
    pub sessions: PathBuf,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Chance, for delays.
    pub chance: Arc<gate::Chance>,
    /// For whoever shows how it goes.
    pub progress: progress::Progress,
}
