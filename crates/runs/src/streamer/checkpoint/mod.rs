//! Checkpoints: how far each output of a run has come.
//!
//! A checkpoint is progress, not truth: it is saved after the gate has answered for every row up to
//! it. Losing one sends rows again, which the gate knows as copies. They are in a SQLite file of the
//! streamer's own, or in the database of the ledger where that is PostgreSQL.

mod file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::io;
use std::path::PathBuf;

use admit_core::Millis;

use super::progress::Counts;

pub use file::{FILE, FileCheckpoints};
#[cfg(feature = "postgres")]
pub use postgres::PostgresCheckpoints;

/// Keeps progress. Every call blocks.
pub trait Checkpoints: Send + Sync {
    /// Takes a run for this streamer alone; `None` when another one has it.
    ///
    /// # Errors
    /// When locks cannot be used here.
    fn lock(&self, pack_key: &str) -> Result<Option<RunLock>, CheckpointError>;

    /// The last checkpoint of an output.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load(&self, pack_key: &str, output_id: &str) -> Result<Option<Cursor>, CheckpointError>;

    /// Saves a checkpoint and remembers that it was. It never goes back: an older one changes
    /// nothing but the history.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save(
        &self,
        pack_key: &str,
        output_id: &str,
        cursor: &Cursor,
        occasion: Occasion,
        now: Millis,
    ) -> Result<(), CheckpointError>;

    /// Lets the checkpoint of an output go, so that it begins anew; the history stays.
    ///
    /// # Errors
    /// When it cannot be written.
    fn forget(&self, pack_key: &str, output_id: &str) -> Result<(), CheckpointError>;

    /// The offset from which a partition of the control bus must be read; everything before it is
    /// dealt with for good. Empty at the beginning.
    ///
    /// # Errors
    /// When it cannot be read.
    fn position(&self, topic: &str, partition: u32) -> Result<String, CheckpointError>;

    /// Moves that offset.
    ///
    /// # Errors
    /// When it cannot be written.
    fn move_to(&self, topic: &str, partition: u32, offset: &str) -> Result<(), CheckpointError>;
}

/// Why progress cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file.
    #[error(
        "the checkpoints in {} cannot be used; without the file every row is sent again, and known",
        path.display()
    )]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The folder or a lock in it.
    #[error("{} cannot be used", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A newer streamer made it.
    #[error(
        "{} is of version {found}, this build knows {}; use the newer one",
        path.display(),
        file::VERSION
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The database of the ledger cannot be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Open(#[from] admit_ledger::postgres::OpenError),
    /// It was open, and says no.
    #[cfg(feature = "postgres")]
    #[error("the checkpoints in the ledger's database cannot be used")]
    Database(#[from] admit_ledger::postgres::SessionError),
    /// What is kept there is none of ours.
    #[cfg(feature = "postgres")]
    #[error("a checkpoint in the ledger's database cannot be read: {what}")]
    NotOurs {
        /// What is wrong.
        what: String,
    },
}

/// Why a checkpoint was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// So many rows since the last.
    PeriodicFlush,
    /// No more rows may be sent.
    MaxEvents,
    /// The end of a part file.
    FileComplete,
    /// The end of the output.
    OutputComplete,
}

impl Occasion {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PeriodicFlush => "periodic_flush",
            Self::MaxEvents => "max_events",
            Self::FileComplete => "file_complete",
            Self::OutputComplete => "output_complete",
        }
    }
}

/// How far an output has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The part file of the last row.
    pub last_file: String,
    /// The last row in it, from 0.
    pub last_row_index: u64,
    /// When that row happened.
    pub last_ts_utc: String,
    /// What the gate decided about all rows up to it, as far as is known.
    pub counts: Counts,
}

/// Held by the one streamer that streams a run. Whoever lent it takes it back when the process dies.
pub struct RunLock {
    _held: Box<dyn Any + Send + Sync>,
}

impl RunLock {
    fn holding(held: impl Any + Send + Sync) -> Self {
        Self { _held: Box::new(held) }
    }
}
