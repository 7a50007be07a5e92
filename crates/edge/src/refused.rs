//! Rows that the gate refused permanently: they stay in the outbox and are retried at long intervals
//! until an operator removes the cause, or the row.
//!
//! An operator lists and deletes them with [`RefusedRows`] in another process, also while the agent
//! runs: SQLite's locks order the two.

use std::path::Path;
use std::time::Duration;

use admit_core::Code;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

/// Timeout of waiting for a lock of the agent.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A row whose last attempt got a final refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRow {
    /// Its id in the outbox.
    pub event_id: String,
    /// The payload that was refused.
    pub payload_json: String,
    /// When it was stored, RFC 3339.
    pub created_at: String,
    /// When it is sent again, RFC 3339.
    pub next_attempt_at: String,
    /// Number of attempts.
    pub attempt_count: u64,
    /// The gate's error code and message.
    pub last_error: String,
}

/// Access to the refused rows of one outbox.
#[derive(Debug)]
pub struct RefusedRows {
    connection: Connection,
}

impl RefusedRows {
    /// Opens the outbox in the file `path`, which must exist.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(Self { connection })
    }

    /// Lists refused rows, oldest first, at most `rows_max`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn list(&self, rows_max: usize) -> rusqlite::Result<Vec<RefusedRow>> {
        let mut statement = self.connection.prepare(include_str!("queries/refused.sql"))?;
        let rows = statement.query_map([], row_and_code)?;
        let refused = rows.filter_map(|row| row.map(only_final).transpose());
        refused.take(rows_max).collect()
    }

    /// Gets a refused row by its id; `None` if there is none or it is not refused.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn get(&self, event_id: &str) -> rusqlite::Result<Option<RefusedRow>> {
        let query = include_str!("queries/refused_get.sql");
        let found = self.connection.query_row(query, [event_id], row_and_code).optional()?;
        Ok(found.and_then(only_final))
    }

    /// Deletes a refused row, which is then never sent; `false` if it has changed since it was read.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn delete(&self, row: &RefusedRow) -> rusqlite::Result<bool> {
        let query = include_str!("queries/refused_delete.sql");
        let RefusedRow { event_id, attempt_count, last_error, .. } = row;
        Ok(self.connection.execute(query, params![event_id, attempt_count, last_error])? == 1)
    }
}

/// Whether an error code, or a door's own name for one, is final: a retry does not help.
pub(crate) fn is_final(code: &str) -> bool {
    match Code::parse(code) {
        // The sender's own key is wrong: not the row's fault, and it can be fixed.
        Some(Code::Unauthorized | Code::Forbidden | Code::NotFound) => false,
        Some(code) => !code.is_retryable(),
        None => matches!(code, "too_large"),
    }
}

fn only_final((row, code): (RefusedRow, String)) -> Option<RefusedRow> {
    is_final(&code).then_some(row)
}

fn row_and_code(row: &rusqlite::Row<'_>) -> rusqlite::Result<(RefusedRow, String)> {
    let refused = RefusedRow {
        event_id: row.get(0)?,
        payload_json: row.get(1)?,
        created_at: row.get(2)?,
        next_attempt_at: row.get(3)?,
        attempt_count: row.get(4)?,
        last_error: row.get(5)?,
    };
    Ok((refused, row.get(6)?))
}
