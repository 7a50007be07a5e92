//! Envelopes that failed the agent's validation: stored in the outbox file for an operator to
//! resolve.
//!
//! The agent stores them through its writer thread. An operator lists, retries and deletes them
//! with [`InvalidEnvelopes`] in another process, also while the agent runs: SQLite's locks order
//! the two, and the agent sends a retried envelope when it next checks for due rows.

use std::path::Path;
use std::time::Duration;

use admit_core::{Digest, Millis};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

/// Maximum invalid envelopes per outbox.
pub(crate) const ROWS_MAX: u64 = 1_000;

/// Divisor: they may use this part of the disk budget.
pub(crate) const BUDGET_PART: u64 = 8;

/// Timeout of waiting for a lock of the agent.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An invalid envelope to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSubmission {
    pub(crate) event_id: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) error: String,
}

/// A stored invalid envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEnvelope {
    /// Its number, never reused in this outbox.
    pub number: i64,
    /// Its id, if one could be read.
    pub event_id: Option<String>,
    /// Its bytes as received.
    pub payload: Vec<u8>,
    /// First received, RFC 3339.
    pub created_at: String,
    /// Last received, RFC 3339.
    pub last_seen_at: String,
    /// How often it was received.
    pub seen_count: u64,
    /// The validation error.
    pub last_error: String,
}

/// Error of a retry.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A different payload is queued under its id.
    #[error(
        "a different payload is queued in the outbox under the id {0}; retry after it has been sent"
    )]
    IdWaits(String),
}

/// Number of stored envelopes, and their bytes.
pub(crate) fn totals(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let mut statement = connection.prepare_cached(include_str!("queries/invalid_totals.sql"))?;
    statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Whether this envelope is stored already.
pub(crate) fn is_known(connection: &Connection, payload: &[u8]) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("queries/invalid_known.sql"))?;
    statement.exists([Digest::of(payload).to_string()])
}

/// Stores an envelope, or increments its count if it is stored already.
pub(crate) fn keep(
    connection: &Connection,
    rejected: &InvalidSubmission,
    error: &str,
    now: Millis,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(include_str!("queries/invalid_keep.sql"))?;
    let hash = Digest::of(&rejected.payload).to_string();
    let (at, payload) = (now.to_rfc3339_millis(), &rejected.payload);
    statement.execute(params![rejected.event_id, payload, hash, at, error]).map(drop)
}

/// Access to the invalid envelopes of one outbox.
#[derive(Debug)]
pub struct InvalidEnvelopes {
    connection: Connection,
    has_table: bool,
}

impl InvalidEnvelopes {
    /// Opens the outbox in the file `path`, which must exist.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let has_table = has_table(&connection)?;
        Ok(Self { connection, has_table })
    }

    /// Lists envelopes after the number `after`, oldest first, at most `rows_max`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, after: i64, rows_max: usize) -> rusqlite::Result<Vec<InvalidEnvelope>> {
        if !self.has_table {
            return Ok(Vec::new());
        }
        let mut statement = self.connection.prepare(include_str!("queries/invalid_list.sql"))?;
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        statement.query_map([after, limit], envelope)?.collect()
    }

    /// Gets an envelope by number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, number: i64) -> rusqlite::Result<Option<InvalidEnvelope>> {
        if !self.has_table {
            return Ok(None);
        }
        let query = include_str!("queries/invalid_get.sql");
        self.connection.query_row(query, [number], envelope).optional()
    }

    /// Deletes an envelope by number; `false` if there is none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete(&self, number: i64) -> rusqlite::Result<bool> {
        let query = include_str!("queries/invalid_delete.sql");
        Ok(self.has_table && self.connection.execute(query, [number])? == 1)
    }

    /// Moves an envelope that is now valid into the outbox, under the given id and payload. `false`
    /// if it no longer exists.
    ///
    /// # Errors
    /// When the envelope was not moved.
    pub fn retry(
        &mut self,
        number: i64,
        event_id: &str,
        payload_json: &str,
        now: Millis,
    ) -> Result<bool, RetryError> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior)?;
        let deleted = transaction.execute(include_str!("queries/invalid_delete.sql"), [number])?;
        if deleted == 0 {
            return Ok(false);
        }
        let row = params![event_id, payload_json, now.to_rfc3339_millis()];
        if transaction.execute(include_str!("queries/store.sql"), row)? == 0 {
            let query = include_str!("queries/find.sql");
            let queued: String = transaction.query_row(query, [event_id], |row| row.get(1))?;
            if queued != payload_json {
                return Err(RetryError::IdWaits(event_id.to_owned()));
            }
        }
        transaction.commit()?;
        Ok(true)
    }
}

/// Whether the file has the table; a file of an older agent gets it when the agent starts.
pub(crate) fn has_table(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare(include_str!("queries/invalid_table.sql"))?.exists([])
}

fn envelope(row: &rusqlite::Row<'_>) -> rusqlite::Result<InvalidEnvelope> {
    Ok(InvalidEnvelope {
        number: row.get(0)?,
        event_id: row.get(1)?,
        payload: row.get(2)?,
        created_at: row.get(3)?,
        last_seen_at: row.get(4)?,
        seen_count: row.get(5)?,
        last_error: row.get(6)?,
    })
}
