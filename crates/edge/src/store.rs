//! The file: how it is opened, and the few statements that touch it.
//!
//! One connection writes, in WAL mode with a sync on every commit. A lock on a file beside it keeps
//! a second process out: two senders would do no harm at the gate, but neither would know what the
//! other has in flight.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_core::Millis;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use crate::budget::{self, DiskUse, Pages, Room};
use crate::invalid::{self, InvalidSubmission};
use crate::outbox::OpenError;

/// How long a connection waits for a lock before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_millis(5000);

/// The longest error that is kept with a row, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// Rows that one connection which could not be made counts as attempted, at most.
const ATTEMPTED_ROWS_MAX: i64 = 1_000;

/// A row that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number in the file, as long as it is there.
    pub place: i64,
    /// Its name in the outbox.
    pub event_id: String,
    /// What is sent.
    pub payload_json: String,
    /// How often it was sent before.
    pub attempt_count: u32,
}

/// What is stored under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: i64,
    pub(crate) payload_json: String,
    pub(crate) created_at: Millis,
}

/// The file, opened for writing.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    path: PathBuf,
    bytes_max: u64,
    _lock: File,
}

impl Store {
    /// Opens the file, or makes it, and brings its log safely to disk.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> Result<Self, OpenError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let unusable = |source| OpenError::Folder { path: path.to_owned(), source };
        fs::create_dir_all(folder).map_err(unusable)?;
        let lock = lock(path)?;
        // Made here, so that nobody else can read what waits in it, nor in its log.
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

    /// Undoes what is open. Nothing may be.
    pub(crate) fn undo(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::debug!(%error, "an outbox transaction could not be undone");
        }
    }

    /// Whether a transaction that was begun is still there: some errors undo it by themselves.
    pub(crate) fn is_open(&self) -> bool {
        !self.connection.is_autocommit()
    }

    /// Room for rows in a commit now.
    pub(crate) fn room(&self) -> rusqlite::Result<Room> {
        Ok(Room::of(self.bytes_max, pages(&self.connection)?, DiskUse::of(&self.path)))
    }

    /// Bytes on disk, of the file and its log.
    pub(crate) fn bytes(&self) -> u64 {
        DiskUse::of(&self.path).total()
    }

    /// Brings a log that has used up its part of the budget into the file and cuts it off. Another
    /// program that reads the outbox can prevent it; it is not waited for, and the log counts.
    pub(crate) fn cut_log(&self) -> rusqlite::Result<()> {
        if !budget::is_log_due(self.bytes_max, DiskUse::of(&self.path)) {
            return Ok(());
        }
        self.connection.busy_timeout(Duration::ZERO)?;
        let cut =
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        if cut.is_ok_and(|busy: i64| busy != 0) {
            tracing::debug!("another program reads the outbox, so its log stays as long as it is");
        }
        Ok(())
    }

    /// A number that changes when another program has written to the file.
    pub(crate) fn version(&self) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, "data_version", |row| row.get(0))
    }

    /// Whether an invalid envelope may be kept: it is known, or within the quota.
    pub(crate) fn has_room_for_invalid(&self, payload: &[u8]) -> rusqlite::Result<bool> {
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
        invalid::keep(&self.connection, rejected, shortened(&rejected.error), now)
    }

    /// How many invalid envelopes are kept.
    pub(crate) fn invalid(&self) -> rusqlite::Result<u64> {
        Ok(invalid::totals(&self.connection)?.0)
    }

    /// Stores a row; `false` when its id is there already.
    pub(crate) fn store(&self, id: &str, payload: &str, now: Millis) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/store.sql"))?;
        Ok(statement.execute(params![id, payload, now.to_rfc3339_millis()])? == 1)
    }

    /// What is stored under `id`.
    pub(crate) fn find(&self, id: &str) -> rusqlite::Result<Option<Found>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/find.sql"))?;
        let found = |row: &rusqlite::Row<'_>| {
            let at: String = row.get(2)?;
            let created_at = Millis::parse_rfc3339(&at).unwrap_or_default();
            Ok(Found { place: row.get(0)?, payload_json: row.get(1)?, created_at })
        };
        statement.query_row([id], found).optional()
    }

    /// Rows that are due and not `taken`, at most so many.
    pub(crate) fn due(
        &self,
        now: Millis,
        taken: &HashSet<i64>,
        rows_max: usize,
    ) -> rusqlite::Result<Vec<Row>> {
        let limit = i64::try_from(taken.len() + rows_max).unwrap_or(i64::MAX);
        let mut due = self.connection.prepare_cached(include_str!("queries/due.sql"))?;
        let places = due.query_map(params![now.to_rfc3339_millis(), limit], |row| row.get(0))?;
        let places = places.collect::<rusqlite::Result<Vec<i64>>>()?;
        let mut row = self.connection.prepare_cached(include_str!("queries/row.sql"))?;
        let free = places.into_iter().filter(|place| !taken.contains(place)).take(rows_max);
        free.map(|place| {
            row.query_row([place], |row| {
                let (event_id, payload_json, attempt_count) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Row { place, event_id, payload_json, attempt_count })
            })
        })
        .collect()
    }

    /// When the next row that is not due yet will be.
    pub(crate) fn next_due(&self, now: Millis) -> rusqlite::Result<Option<Millis>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/next_due.sql"))?;
        let at: Option<String> =
            statement.query_row([now.to_rfc3339_millis()], |row| row.get(0))?;
        Ok(at.and_then(|at| Millis::parse_rfc3339(&at)))
    }

    /// Makes due what waits longer than anything can.
    pub(crate) fn mend_times(&self, now: Millis, wait_max: Duration) -> rusqlite::Result<usize> {
        let far = later(now, wait_max).to_rfc3339_millis();
        let mut statement = self.connection.prepare_cached(include_str!("queries/mend.sql"))?;
        statement.execute([now.to_rfc3339_millis(), far])
    }

    /// Removes a row, if it is the one that is meant; how many that were.
    pub(crate) fn remove(&self, row: &Row) -> rusqlite::Result<u64> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/acked.sql"))?;
        statement.execute(params![row.place, row.event_id]).map(|removed| removed as u64)
    }

    /// Makes the disk full, as far as this file is concerned, at so many pages.
    #[cfg(test)]
    pub(crate) fn full_at(&self, pages: u32) {
        let set =
            self.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()));
        set.expect("a pragma that SQLite knows");
    }

    pub(crate) fn reschedule(
        &self,
        row: &Row,
        error: &str,
        next_attempt_at: Millis,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/failed.sql"))?;
        let at = next_attempt_at.to_rfc3339_millis();
        statement.execute(params![row.place, row.event_id, shortened(error), at]).map(drop)
    }

    /// Counts a connection that could not be made as an attempt of the rows that are due.
    pub(crate) fn connect_failed(
        &self,
        now: Millis,
        error: &str,
        next_attempt_at: Millis,
    ) -> rusqlite::Result<()> {
        let mut statement =
            self.connection.prepare_cached(include_str!("queries/connect_failed.sql"))?;
        let (now, at) = (now.to_rfc3339_millis(), next_attempt_at.to_rfc3339_millis());
        statement.execute(params![now, shortened(error), at, ATTEMPTED_ROWS_MAX]).map(drop)
    }

    /// Makes due again what waited for a connection until `at`.
    pub(crate) fn connected(&self, at: Millis) -> rusqlite::Result<()> {
        let mut statement =
            self.connection.prepare_cached(include_str!("queries/connected.sql"))?;
        statement.execute([at.to_rfc3339_millis()]).map(drop)
    }

    /// How many rows wait.
    pub(crate) fn depth(&self) -> rusqlite::Result<u64> {
        self.connection.query_row("SELECT count(*) FROM event_outbox", [], |row| row.get(0))
    }

    /// When the oldest row was stored.
    pub(crate) fn oldest(&self) -> rusqlite::Result<Option<Millis>> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/oldest.sql"))?;
        let at: Option<String> = statement.query_row([], |row| row.get(0)).optional()?;
        Ok(at.and_then(|at| Millis::parse_rfc3339(&at)))
    }

    /// The number of the row stored last.
    pub(crate) fn last_place(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// `at`, so much later.
pub(crate) fn later(at: Millis, wait: Duration) -> Millis {
    Millis(at.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}

fn shortened(error: &str) -> &str {
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
    connection.pragma_update(None, "journal_size_limit", budget::log_max(bytes_max))?;
    // What an earlier process could only hope for is on disk before anything is said.
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        tracing::warn!("another program reads the outbox, so its log stays as long as it is");
    }
    connection.execute_batch(include_str!("queries/schema.sql"))?;
    shrink(&connection, bytes_max)?;
    Ok(connection)
}

/// Gives back a file that is larger than its rows may be and mostly free: it was filled under a
/// larger budget, and no row would ever find room.
fn shrink(connection: &Connection, bytes_max: u64) -> rusqlite::Result<()> {
    let Pages { count, free, bytes } = pages(connection)?;
    if count * bytes > bytes_max - budget::reserve(bytes_max) && free > count / 2 {
        connection.execute_batch("VACUUM")?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(())
}

fn pages(connection: &Connection) -> rusqlite::Result<Pages> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get(0));
    let (count, free) = (number("page_count")?, number("freelist_count")?);
    Ok(Pages { count, free, bytes: number("page_size")? })
}

fn private(path: &Path) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(drop)
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let beside = PathBuf::from(name);
    let unusable = |source| OpenError::Folder { path: beside.clone(), source };
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&beside);
    let file = file.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unusable(source)),
    }
}
