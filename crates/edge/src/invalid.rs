//! Envelopes that failed the vet of the agent: kept beside the outbox, for a person to decide on.
//!
//! The agent keeps them through its writer thread. A person lists, retries and deletes them with
//! [`InvalidEnvelopes`] in another process, also while the agent runs: SQLite's locks order the two,
//! and the agent finds a retried envelope when it next looks for rows that are due.

use std::path::Path;
use std::time::Duration;

use admit_core::{Digest, Millis};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

/// Most envelopes kept in one outbox.
pub(crate) const ROWS_MAX: u64 = 1_000;

/// Part of the disk budget that they may use.
pub(crate) const BUDGET_PART: u64 = 8;

/// Wait for a lock of the agent.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An envelope to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSubmission {
    pub(crate) event_id: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) error: String,
}

/// An envelope that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidEnvelope {
    /// Its number, which no other of this outbox ever gets.
    pub number: i64,
    /// Its id, where one could be read.
    pub event_id: Option<String>,
    /// Its bytes as they came.
    pub payload: Vec<u8>,
    /// When it first came, RFC 3339.
    pub created_at: String,
    /// When it last came, RFC 3339.
    pub last_seen_at: String,
    /// How often it came.
    pub seen_count: u64,
    /// What is wrong with it.
    pub last_error: String,
}

/// Why an envelope was not moved.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// SQLite could not do it.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// Other content waits under its id.
    #[error("other content waits in the outbox under the id {0}; retry when that has been sent")]
    IdWaits(String),
}

/// How many are kept, and their bytes.
pub(crate) fn totals(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let mut statement = connection.prepare_cached(include_str!("queries/invalid_totals.sql"))?;
    statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Whether this very envelope is kept already.
pub(crate) fn is_known(connection: &Connection, payload: &[u8]) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(include_str!("queries/invalid_known.sql"))?;
    statement.exists([Digest::of(payload).to_string()])
}

/// Keeps an envelope, or counts it where it is kept already.
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

/// The invalid envelopes of one outbox, for a person.
#[derive(Debug)]
pub struct InvalidEnvelopes {
    connection: Connection,
    has_table: bool,
}

impl InvalidEnvelopes {
    /// Opens the outbox in the file `path`, which must be there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let has_table = has_table(&connection)?;
        Ok(Self { connection, has_table })
    }

    /// Those after the number `after`, oldest first, at most so many.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list(&self, after: i64, rows_max: usize) -> rusqlite::Result<Vec<InvalidEnvelope>> {
        if !self.has_table {
            return Ok(Vec::new());
        }
        let mut statement = self.connection.prepare(include_str!("queries/invalid_list.sql"))?;
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        statement.query_map([after, limit], envelope)?.collect()
    }

    /// The one with this number.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn get(&self, number: i64) -> rusqlite::Result<Option<InvalidEnvelope>> {
        if !self.has_table {
            return Ok(None);
        }
        let query = include_str!("queries/invalid_get.sql");
        self.connection.query_row(query, [number], envelope).optional()
    }

    /// Deletes the one with this number; `false` when there is none.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub fn delete(&self, number: i64) -> rusqlite::Result<bool> {
        let query = include_str!("queries/invalid_delete.sql");
        Ok(self.has_table && self.connection.execute(query, [number])? == 1)
    }

    /// Moves one that is valid now into the outbox, under the id and with the payload that are sent.
    /// `false` when it is no longer there.
    ///
    /// # Errors
    /// When it stays where it is.
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
            let waiting: String = transaction.query_row(query, [event_id], |row| row.get(1))?;
            if waiting != payload_json {
                return Err(RetryError::IdWaits(event_id.to_owned()));
            }
        }
        transaction.commit()?;
        Ok(true)
    }
}

/// Whether the file has the table; one of an older agent gets it when the agent starts.
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
