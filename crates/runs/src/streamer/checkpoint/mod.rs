//! Checkpoints: progress of each output of a run.
//!
//! A checkpoint is progress, not truth: it is saved after the gate has decided on every row up to
//! it. A lost checkpoint only causes rows to be sent again, which the gate deduplicates.
//! Checkpoints are in a SQLite file, or in the ledger's database if that is PostgreSQL.

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

/// Checkpoint store. Every call blocks.
pub trait Checkpoints: Send + Sync {
    /// Locks a run for this streamer; `None` if another one holds the lock.
    ///
    /// # Errors
    /// When locking fails.
    fn lock(&self, pack_key: &str) -> Result<Option<RunLock>, CheckpointError>;

    /// Loads the last checkpoint of an output.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn load(&self, pack_key: &str, output_id: &str) -> Result<Option<Cursor>, CheckpointError>;

    /// Saves a checkpoint and appends it to the history. It never goes back: an older one is only
    /// added to the history.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn save(
        &self,
        pack_key: &str,
        output_id: &str,
        cursor: &Cursor,
        reason: CheckpointReason,
        now: Millis,
    ) -> Result<(), CheckpointError>;

    /// Deletes the checkpoint of an output, so that it restarts; the history stays.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn forget(&self, pack_key: &str, output_id: &str) -> Result<(), CheckpointError>;

    /// The saved read position of a partition of the control bus; all earlier messages are settled.
    /// Empty is the beginning.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn position(&self, topic: &str, partition: u32) -> Result<String, CheckpointError>;

    /// Saves the read position.
    ///
    /// # Errors
    /// When the store cannot be written.
    fn move_to(&self, topic: &str, partition: u32, offset: &str) -> Result<(), CheckpointError>;
}

/// Error of a checkpoint store.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be used.
    #[error(
        "the checkpoints in {} cannot be used; if the file is deleted every row is sent again, and deduplicated by the gate",
        path.display()
    )]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The folder or a lock file in it cannot be used.
    #[error("{} cannot be used", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file was created by a newer version.
    #[error(
        "{} has schema version {found}, this build supports {}; use the newer build",
        path.display(),
        file::VERSION
    )]
    Newer {
        /// The path.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The database of the ledger cannot be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Open(#[from] admit_ledger::postgres::OpenError),
    /// A query failed.
    #[cfg(feature = "postgres")]
    #[error("failed to access the checkpoints in the ledger's database")]
    Database(#[from] admit_ledger::postgres::SessionError),
    /// An invalid value in the database.
    #[cfg(feature = "postgres")]
    #[error("invalid checkpoint in the ledger's database: {detail}")]
    InvalidValue {
        /// The invalid value.
        detail: String,
    },
}

/// Why a checkpoint was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointReason {
    /// `checkpoint_every` rows since the last one.
    PeriodicFlush,
    /// The row limit was reached.
    MaxEvents,
    /// The end of a part file.
    FileComplete,
    /// The end of the output.
    OutputComplete,
}

impl CheckpointReason {
    /// Its name in the history.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PeriodicFlush => "periodic_flush",
            Self::MaxEvents => "max_events",
            Self::FileComplete => "file_complete",
            Self::OutputComplete => "output_complete",
        }
    }
}

/// Position in an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The part file of the last row.
    pub last_file: String,
    /// The last row in it, from 0.
    pub last_row_index: u64,
    /// Timestamp of that row.
    pub last_ts_utc: String,
    /// Decisions of the gate on all rows up to it, as far as known.
    pub counts: Counts,
}

/// Lock of a run. Released by the operating system or the database when the process dies.
pub struct RunLock {
    _guard: Box<dyn Any + Send + Sync>,
}

impl RunLock {
    fn holding(guard: impl Any + Send + Sync) -> Self {
        Self { _guard: Box::new(guard) }
    }
}
