//! SQLite file of an outbox: opening, and all statements.
//!
//! One connection writes, in WAL mode with a sync on every commit. A lock file keeps a second
//! process out: two senders would do no harm at the gate, but neither would know the other's rows
//! in flight.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_core::Millis;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use crate::budget::{self, AvailableSpace, DiskUse, PageCounts};
use crate::invalid::{self, InvalidSubmission};
use crate::outbox::OpenError;

/// SQLite busy timeout.
const BUSY_TIMEOUT: Duration = Duration::from_millis(5000);

/// Maximum length of the error stored with a row, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// Maximum rows that one failed connection counts as attempted.
const ATTEMPTED_ROWS_MAX: i64 = 1_000;

/// A row to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its rowid; reused after it is removed.
    pub rowid: i64,
    /// Its id in the outbox.
    pub event_id: String,
    /// The payload to send.
    pub payload_json: String,
    /// Number of previous attempts.
    pub attempt_count: u32,
}

/// Row stored under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow {
    pub(crate) rowid: i64,
    pub(crate) payload_json: String,
    pub(crate) created_at: Millis,
}

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct OutboxFile {
    connection: Connection,
    path: PathBuf,
    bytes_max: u64,
    _lock: File,
}

impl OutboxFile {
    /// Opens the file, creating it if necessary, and checkpoints its WAL.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> Result<Self, OpenError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let unusable = |source| OpenError::Folder { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(unusable)?;
        let lock = lock(path)?;
        // Created here with mode 0600, which SQLite also applies to the WAL.
        private(path).map_err(unusable)?;
        let sqlite = |source| OpenError::Sqlite { path: path.to_owned(), source };
        let connection = connect(path, bytes_max).map_err(sqlite)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(unusable)?;
        Ok(Self { connection, path: path.to_owned(), bytes_max, _lock: lock })
    }

    pub(crate) fn begin(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("BEGIN IMMEDIATE")
    }

    pub(crate) fn commit(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("COMMIT")
    }

    /// Rolls back the open transaction, if any.
    pub(crate) fn rollback(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::debug!(%error, "failed to roll back an outbox transaction");
        }
    }

    /// Whether the transaction is still open: some errors roll it back.
    pub(crate) fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Space for rows in a commit now.
    pub(crate) fn space(&self) -> rusqlite::Result<AvailableSpace> {
        Ok(AvailableSpace::of(self.bytes_max, pages(&self.connection)?, DiskUse::of(&self.path)))
    }

    /// Bytes on disk, of the file and its WAL.
    pub(crate) fn bytes(&self) -> u64 {
        DiskUse::of(&self.path).total()
    }

    /// Runs a truncating checkpoint if the WAL has used its part of the budget. A reader in another
    /// process can prevent it; the checkpoint does not wait, and the WAL counts against the budget.
    pub(crate) fn truncate_wal(&self) -> rusqlite::Result<()> {
        if !budget::is_checkpoint_due(self.bytes_max, DiskUse::of(&self.path)) {
            return Ok(());
        }
        self.connection.busy_timeout(Duration::ZERO)?;
        let checkpoint =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        if checkpoint.is_ok_and(|busy: i64| busy != 0) {
            tracing::debug!("another process reads the outbox, so its WAL could not be truncated");
        }
        Ok(())
    }

    /// SQLite's `data_version`: changes when another process has written to the file.
    pub(crate) fn version(&self) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0))
    }

    /// Whether an invalid envelope may be stored: it is known, or within the quota.
    pub(crate) fn fits_invalid_quota(&self, payload: &[u8]) -> rusqlite::Result<bool> {
        let (rows, bytes) = invalid::totals(&self.connection)?;
        let bytes_max = self.bytes_max / invalid::BUDGET_PART;
        let fits = rows < invalid::ROWS_MAX && bytes + payload.len() as u64 <= bytes_max;
        Ok(fits || invalid::is_known(&self.connection, payload)?)
    }

    pub(crate) fn keep_invalid(
        &self,
        rejected: &InvalidSubmission,
        now: Millis,
    ) -> rusqlite::Result<()> {
        invalid::keep(&self.connection, rejected, truncated(&rejected.error), now)
    }

    /// Number of stored invalid envelopes.
    pub(crate) fn invalid(&self) -> rusqlite::Result<u64> {
        Ok(invalid::totals(&self.connection)?.0)
    }

    /// Stores a row; `false` if its id exists.
    pub(crate) fn store(&self, id: &str, payload: &str, now: Millis) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/store.sql"))?;
        Ok(statement.execute(params![id, payload, now.to_rfc3339_millis()])? == 1)
    }

    /// The row stored under `id`.
    pub(crate) fn find(&self, id: &str) -> rusqlite::Result<Option<StoredRow>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/find.sql"))?;
        let stored_row = |row: &rusqlite::Row<'_>| {
            let at: String = row.get(2)?;
            let created_at = Millis::parse_rfc3339(&at).unwrap_or_default();
            Ok(StoredRow { rowid: row.get(0)?, payload_json: row.get(1)?, created_at })
        };
        statement.query_row([id], stored_row).optional()
    }

    /// Due rows not in `taken`, at most `rows_max`.
    pub(crate) fn due(
        &self,
        now: Millis,
        taken: &HashSet<i64>,
        rows_max: usize,
    ) -> rusqlite::Result<Vec<OutboxRow>> {
        let limit = i64::try_from(taken.len() + rows_max).unwrap_or(i64::MAX);
        let mut due = self.connection.prepare_cached(include_str!("queries/due.sql"))?;
        let rowids = due.query_map(params![now.to_rfc3339_millis(), limit], |row| row.get(0))?;
        let rowids = rowids.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut row = self.connection.prepare_cached(include_str!("queries/row.sql"))?;
        let free = rowids.into_iter().filter(|rowid| !taken.contains(rowid)).take(rows_max);
        free.map(|rowid| {
            row.query_row([rowid], |row| {
                let (event_id, payload_json, attempt_count) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(OutboxRow { rowid, event_id, payload_json, attempt_count })
            })
        })
        .collect()
    }

    /// When the next row will be due.
    pub(crate) fn next_due(&self, now: Millis) -> rusqlite::Result<Option<Millis>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/next_due.sql"))?;
        let at: Option<String> =
            statement.query_row([now.to_rfc3339_millis()], |row| row.get(0))?;
        Ok(at.and_then(|at| Millis::parse_rfc3339(&at)))
    }

    /// Makes rows due whose due time is beyond the maximum delay.
    pub(crate) fn repair_times(&self, now: Millis, wait_max: Duration) -> rusqlite::Result<usize> {
        let far = later(now, wait_max).to_rfc3339_millis();
        let mut statement =
            self.connection.prepare_cached(include_str!("queries/repair_times.sql"))?;
        statement.execute([now.to_rfc3339_millis(), far])
    }

    /// Removes a row if rowid and id match. Returns the number of removed rows.
    pub(crate) fn remove(&self, row: &OutboxRow) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/acked.sql"))?;
        statement.execute(params![row.rowid, row.event_id]).map(|removed| removed as u64)
    }

    /// Simulates a full disk: limits the file to so many pages.
    #[cfg(test)]
    pub(crate) fn limit_pages(&self, pages: u32) {
        let set =
            self.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        set.expect("a pragma that SQLite knows");
    }

    pub(crate) fn reschedule(
        &self,
        row: &OutboxRow,
        error: &str,
        next_attempt_at: Millis,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/failed.sql"))?;
        let at = next_attempt_at.to_rfc3339_millis();
        statement.execute(params![row.rowid, row.event_id, truncated(error), at]).map(drop)
    }

    /// Counts a failed connection as an attempt of the due rows.
    pub(crate) fn connect_failed(
        &self,
        now: Millis,
        error: &str,
        next_attempt_at: Millis,
    ) -> rusqlite::Result<()> {
        let mut statement =
            self.connection.prepare_cached(include_str!("queries/connect_failed.sql"))?;
        let (now, at) = (now.to_rfc3339_millis(), next_attempt_at.to_rfc3339_millis());
        statement.execute(params![now, truncated(error), at, ATTEMPTED_ROWS_MAX]).map(drop)
    }

    /// Makes the rows due that waited for a connection until `at`.
    pub(crate) fn connected(&self, at: Millis) -> rusqlite::Result<()> {
        let mut statement =
            self.connection.prepare_cached(include_str!("queries/connected.sql"))?;
        statement.execute([at.to_rfc3339_millis()]).map(drop)
    }

    /// Number of rows.
    pub(crate) fn depth(&self) -> rusqlite::Result<u64> {
        self.connection.query_row("SELECT count(*) FROM event_outbox", [], |row| row.get(0))
    }

    /// When the oldest row was stored.
    pub(crate) fn oldest(&self) -> rusqlite::Result<Option<Millis>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/oldest.sql"))?;
        let at: Option<String> = statement.query_row([], |row| row.get(0)).optional()?;
        Ok(at.and_then(|at| Millis::parse_rfc3339(&at)))
    }

    /// The rowid of the last stored row.
    pub(crate) fn last_rowid(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// `at` plus `wait`.
pub(crate) fn later(at: Millis, wait: Duration) -> Millis {
    Millis(at.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}

fn truncated(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]
}

fn connect(path: &Path, bytes_max: u64) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", budget::wal_bytes_max(bytes_max))?;
    // Changes of an earlier process without a confirmed sync are on disk before any reply.
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        tracing::warn!("another process reads the outbox, so its WAL could not be truncated");
    }
    check(&connection)?;
    connection.execute_batch(include_str!("queries/schema.sql"))?;
    shrink(&connection, bytes_max)?;
    Ok(connection)
}

/// Reads the whole file once. A row stored in a damaged file might never be sent, so damage is found
/// before any row is stored, not when a row is read.
fn check(connection: &Connection) -> rusqlite::Result<()> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => {
            let damaged = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            Err(rusqlite::Error::SqliteFailure(damaged, Some(found)))
        }
    }
}

/// Shrinks a file that is larger than its budget for rows and mostly free: it was filled under a
/// larger budget, and no row would ever fit.
fn shrink(connection: &Connection, bytes_max: u64) -> rusqlite::Result<()> {
    let PageCounts { count, free, bytes } = pages(connection)?;
    if count * bytes > bytes_max - budget::reserve(bytes_max) && free > count / 2 {
        connection.execute_batch("VACUUM")?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(())
}

fn pages(connection: &Connection) -> rusqlite::Result<PageCounts> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    let (count, free) = (number("page_count")?, number("freelist_count")?);
    Ok(PageCounts { count, free, bytes: number("page_size")? })
}

fn private(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock_path = PathBuf::from(name);
    let unusable = |source| OpenError::Folder { path: lock_path.clone(), source };
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&lock_path);
    let file = file.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}
