//! Checkpoints in a SQLite file.
//!
//! Commits are not synced (`synchronous=NORMAL`): a killed process loses nothing, a power cut only
//! some progress.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use admit_core::Millis;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{CheckpointError, CheckpointReason, Checkpoints, Cursor, RunLock};
use crate::streamer::progress::Counts;

/// File name.
pub const FILE: &str = "stream.db";
/// Folder of the lock files.
const LOCKS: &str = "stream-locks";
/// Timeout and poll interval of the lock for opening the file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
const OPEN_POLL: Duration = Duration::from_millis(2);
const SCHEMA: &str = include_str!("../sql/schema.sql");
const SAVE: &str = include_str!("../sql/save.sql");
const APPEND_HISTORY: &str = include_str!("../sql/append_history.sql");
const LOAD: &str = include_str!("../sql/load.sql");
/// Schema version.
pub(super) const VERSION: i64 = 1;

/// Checkpoints in a file.
#[derive(Debug)]
pub struct FileCheckpoints {
    folder: PathBuf,
    connection: Mutex<Connection>,
}

impl FileCheckpoints {
    /// Opens the checkpoints in a folder, creating folder and file if necessary.
    ///
    /// # Errors
    /// When the folder or file cannot be used.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let place = |source| CheckpointError::Folder { path: folder.to_owned(), source };
        fs::create_dir_all(folder.join(LOCKS)).map_err(place)?;
        // SQLite ignores the busy timeout while switching a new file to WAL.
        let _lock = lock_for_opening(&folder.join(LOCKS).join("open.lock")).map_err(place)?;
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

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, source: rusqlite::Error) -> CheckpointError {
        CheckpointError::File { path: self.folder.join(FILE), source }
    }
}

/// Acquires the lock for opening the file.
fn lock_for_opening(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let deadline = Instant::now() + OPEN_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(OPEN_POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "timeout: another streamer holds the lock for opening the checkpoints",
                ));
            }
        }
    }
}

impl Checkpoints for FileCheckpoints {
    fn lock(&self, pack_key: &str) -> Result<Option<RunLock>, CheckpointError> {
        let path = self.folder.join(LOCKS).join(format!("{pack_key}.lock"));
        let fail = |source| CheckpointError::Folder { path: path.clone(), source };
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RunLock::holding(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }

    fn load(&self, pack_key: &str, output_id: &str) -> Result<Option<Cursor>, CheckpointError> {
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

    fn save(
        &self,
        pack_key: &str,
        output_id: &str,
        cursor: &Cursor,
        reason: CheckpointReason,
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
            transaction.prepare_cached(APPEND_HISTORY)?.execute(params![
                pack_key,
                output_id,
                last_file,
                last_row_index,
                last_ts_utc,
                reason.as_str(),
                at,
            ])?;
            transaction.commit()
        });
        saved.map_err(|source| self.failed(source))
    }

    fn forget(&self, pack_key: &str, output_id: &str) -> Result<(), CheckpointError> {
        let sql = "DELETE FROM wsp_checkpoint WHERE pack_key = ?1 AND output_id = ?2";
        let connection = self.connection();
        let deleted = connection.execute(sql, [pack_key, output_id]);
        deleted.map(drop).map_err(|source| self.failed(source))
    }

    fn position(&self, topic: &str, partition: u32) -> Result<String, CheckpointError> {
        let sql = "SELECT next_offset FROM wsp_ready_position WHERE topic = ?1 AND partition = ?2";
        let connection = self.connection();
        let found = connection.query_row(sql, params![topic, partition], |row| row.get(0));
        Ok(found.optional().map_err(|source| self.failed(source))?.unwrap_or_default())
    }

    fn move_to(&self, topic: &str, partition: u32, offset: &str) -> Result<(), CheckpointError> {
        let sql =
            "INSERT INTO wsp_ready_position (topic, partition, next_offset) VALUES (?1, ?2, ?3)
                   ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset";
        let connection = self.connection();
        let moved = connection.execute(sql, params![topic, partition, offset]);
        moved.map(drop).map_err(|source| self.failed(source))
    }
}
