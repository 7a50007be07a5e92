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

use crate::outbox::OpenError;

/// How long a connection waits for a lock before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_millis(5000);

/// The log is cut back to this size when it has been brought into the file.
const LOG_BYTES_KEPT: u64 = 8 << 20;

/// The longest error that is kept with a row, in bytes.
const ERROR_BYTES_MAX: usize = 500;

/// A row beside its payload: the other columns, the index entries, what a page leaves unused.
const ROW_OVERHEAD: u64 = 256;

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
        let connection = connect(path).map_err(sqlite)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(unusable)?;
        Ok(Self { connection, bytes_max, _lock: lock })
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

    /// How many more bytes may be stored now.
    pub(crate) fn room(&self) -> rusqlite::Result<u64> {
        Ok(self.bytes_max.saturating_sub(self.bytes()?))
    }

    /// Bytes of the file that are in use.
    pub(crate) fn bytes(&self) -> rusqlite::Result<u64> {
        let number = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let (pages, free, size): (u64, u64, u64) =
            (number("page_count")?, number("freelist_count")?, number("page_size")?);
        Ok(pages.saturating_sub(free) * size)
    }

    /// What a row of these texts takes of the room.
    pub(crate) fn weight(event_id: &str, payload_json: &str) -> u64 {
        (event_id.len() * 2 + payload_json.len()) as u64 + ROW_OVERHEAD
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

    /// Writes down why nothing is sent.
    pub(crate) fn note(&self, error: &str) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(include_str!("queries/note.sql"))?;
        statement.execute([shortened(error)]).map(drop)
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

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    // What an earlier process could only hope for is on disk before anything is said.
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        tracing::warn!("another program reads the outbox, so its log stays as long as it is");
    }
    connection.execute_batch(include_str!("queries/schema.sql"))?;
    Ok(connection)
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
