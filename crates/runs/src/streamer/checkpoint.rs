//! Checkpoints: how far each output of a run has come, in a SQLite file of the streamer's own.
//!
//! A checkpoint is progress, not truth: it is saved after the gate has answered for every row up to
//! it. Losing one sends rows again, which the gate knows as copies. So a commit need not be synced
//! (`synchronous=NORMAL`): a killed process loses nothing, a power cut some progress.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_core::Millis;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::progress::Counts;

/// The name of the file.
pub const FILE: &str = "stream.db";
/// The folder of the locks beside it.
const LOCKS: &str = "stream-locks";
const SCHEMA: &str = include_str!("sql/schema.sql");
const SAVE: &str = include_str!("sql/save.sql");
const REMEMBER: &str = include_str!("sql/remember.sql");
const LOAD: &str = include_str!("sql/load.sql");
/// The version of the tables.
const VERSION: i64 = 1;

/// Why progress cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file.
    #[error("the checkpoints in {} cannot be used", path.display())]
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
    #[error("{} is of version {found}, this build knows {VERSION}; use the newer one", path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its version.
        found: i64,
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

/// Checkpoints in a file.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    connection: Mutex<Connection>,
}

/// Held by the one streamer that streams a run. The system gives it back when the process dies.
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl Checkpoints {
    /// Opens the checkpoints in a folder; both are made if they are not there.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let place = |source| CheckpointError::Folder { path: folder.to_owned(), source };
        fs::create_dir_all(folder.join(LOCKS)).map_err(place)?;
        let path = folder.join(FILE);
        let fail = |source| CheckpointError::File { path: path.clone(), source };
        let connection = Connection::open(&path).map_err(fail)?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(fail)?;
        connection.pragma_update(None, "journal_mode", "WAL").map_err(fail)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(fail)?;
        let version = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let found = connection.query_row("PRAGMA user_version", [], version).map_err(fail)?;
        if found > VERSION {
            return Err(CheckpointError::Newer { path, found });
        }
        connection.execute_batch(SCHEMA).map_err(fail)?;
        Ok(Self { folder: folder.to_owned(), connection: Mutex::new(connection) })
    }

    /// Takes a run for this streamer alone; `None` when another one has it.
    ///
    /// # Errors
    /// When locks cannot be used here.
    pub fn lock(&self, pack_key: &str) -> Result<Option<RunLock>, CheckpointError> {
        let path = self.folder.join(LOCKS).join(format!("{pack_key}.lock"));
        let fail = |source| CheckpointError::Folder { path: path.clone(), source };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RunLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }

    /// The last checkpoint of an output.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self, pack_key: &str, output_id: &str) -> Result<Option<Cursor>, CheckpointError> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Cursor {
                last_file: row.get(0)?,
                last_row_index: row.get(1)?,
                last_ts_utc: row.get(2)?,
                counts: Counts {
                    admitted: row.get(3)?,
                    duplicates: row.get(4)?,
                    quarantined: row.get(5)?,
                },
            })
        };
        let connection = self.connection();
        let found = connection.query_row(LOAD, [pack_key, output_id], read).optional();
        found.map_err(|source| self.failed(source))
    }

    /// Saves a checkpoint and remembers that it was. It never goes back: an older one changes
    /// nothing but the history.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(
        &self,
        pack_key: &str,
        output_id: &str,
        cursor: &Cursor,
        occasion: Occasion,
        now: Millis,
    ) -> Result<(), CheckpointError> {
        let Cursor { last_file, last_row_index, last_ts_utc, counts } = cursor;
        let at = now.to_rfc3339_millis();
        let mut connection = self.connection();
        let saved = connection.transaction().and_then(|transaction| {
            transaction.prepare_cached(SAVE)?.execute(params![
                pack_key,
                output_id,
                last_file,
                last_row_index,
                last_ts_utc,
                counts.admitted,
                counts.duplicates,
                counts.quarantined,
                at,
            ])?;
            transaction.prepare_cached(REMEMBER)?.execute(params![
                pack_key,
                output_id,
                last_file,
                last_row_index,
                last_ts_utc,
                occasion.as_str(),
                at,
            ])?;
            transaction.commit()
        });
        saved.map_err(|source| self.failed(source))
    }

    /// The offset from which a partition of the control bus must be read; everything before it is
    /// dealt with for good.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn position(&self, topic: &str, partition: u32) -> Result<String, CheckpointError> {
        let sql = "SELECT next_offset FROM wsp_ready_position WHERE topic = ?1 AND partition = ?2";
        let connection = self.connection();
        let found = connection.query_row(sql, params![topic, partition], |row| row.get(0));
        Ok(found.optional().map_err(|source| self.failed(source))?.unwrap_or_default())
    }

    /// Moves that offset.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn move_to(
        &self,
        topic: &str,
        partition: u32,
        offset: &str,
    ) -> Result<(), CheckpointError> {
        let sql =
            "INSERT INTO wsp_ready_position (topic, partition, next_offset) VALUES (?1, ?2, ?3)
                   ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset";
        let connection = self.connection();
        let moved = connection.execute(sql, params![topic, partition, offset]);
        moved.map(drop).map_err(|source| self.failed(source))
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, source: rusqlite::Error) -> CheckpointError {
        CheckpointError::File { path: self.folder.join(FILE), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(file: &str, row: u64) -> Cursor {
        let counts = Counts { admitted: row, duplicates: 1, quarantined: 2 };
        let last_ts_utc = "2026-01-01T00:00:00.000000Z".to_owned();
        Cursor { last_file: file.to_owned(), last_row_index: row, last_ts_utc, counts }
    }

    #[test]
    fn a_checkpoint_comes_back_and_never_goes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoints = Checkpoints::open(folder.path()).expect("open");
        assert_eq!(checkpoints.load("k", "o").expect("read"), None);
        let save = |file: &str, row, occasion| {
            checkpoints.save("k", "o", &cursor(file, row), occasion, Millis(1)).expect("saved");
        };
        save("part-000000.parquet", 9, Occasion::PeriodicFlush);
        save("part-000001.parquet", 3, Occasion::FileComplete);
        save("part-000001.parquet", 2, Occasion::PeriodicFlush);
        save("part-000000.parquet", 99, Occasion::PeriodicFlush);
        drop(checkpoints);
        let again = Checkpoints::open(folder.path()).expect("open");
        assert_eq!(again.load("k", "o").expect("read"), Some(cursor("part-000001.parquet", 3)));
        assert_eq!(again.load("other run", "o").expect("read"), None);
        let history: i64 = again
            .connection()
            .query_row("SELECT count(*) FROM wsp_checkpoint_history", [], |row| row.get(0))
            .expect("counted");
        assert_eq!(history, 4, "the history only grows");
    }

    #[test]
    fn a_run_has_one_streamer_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let one = Checkpoints::open(folder.path()).expect("open");
        let other = Checkpoints::open(folder.path()).expect("open");
        let held = one.lock("k").expect("lock").expect("free");
        assert!(other.lock("k").expect("lock").is_none());
        assert!(other.lock("k2").expect("lock").is_some(), "other runs are free");
        drop(held);
        assert!(other.lock("k").expect("lock").is_some());
    }

    #[test]
    fn positions_are_kept_by_partition() {
        let folder = tempfile::tempdir().expect("a folder");
        let checkpoints = Checkpoints::open(folder.path()).expect("open");
        assert_eq!(checkpoints.position("t", 0).expect("read"), "");
        checkpoints.move_to("t", 0, "5").expect("moved");
        checkpoints.move_to("t", 1, "7").expect("moved");
        checkpoints.move_to("t", 0, "6").expect("moved");
        assert_eq!(checkpoints.position("t", 0).expect("read"), "6");
    }

    #[test]
    fn a_file_of_a_newer_streamer_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(Checkpoints::open(folder.path()).expect("open"));
        let raw = Connection::open(folder.path().join(FILE)).expect("open");
        raw.pragma_update(None, "user_version", 99).expect("set");
        let error = Checkpoints::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("version 99"), "{error}");
    }
}
