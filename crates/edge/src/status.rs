//! Status of an outbox, read from its file, also while an agent uses it.

use std::path::Path;

use admit_core::Millis;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::Serialize;

use crate::budget::DiskUse;
use crate::invalid;
use crate::refused::is_final;

/// Status of an outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutboxStatus {
    /// Number of rows.
    pub depth: u64,
    /// When the oldest row was stored, RFC 3339.
    pub oldest_created_at: Option<String>,
    /// Age of the oldest row, in seconds.
    pub oldest_age_seconds: Option<u64>,
    /// Rows that have failed at least once.
    pub retrying: u64,
    /// Rows whose last attempt got a final refusal: an operator has to resolve them.
    pub refused: u64,
    /// Stored invalid envelopes: an operator retries or deletes them.
    pub invalid: u64,
    /// Attempts of the row that failed most often.
    pub attempts_max: u64,
    /// When the next row is due, RFC 3339.
    pub next_attempt_at: Option<String>,
    /// The error of the row that has failed most often.
    pub last_error: Option<String>,
    /// The event id of that row.
    pub last_error_event_id: Option<String>,
    /// Bytes on disk, of the file and its WAL.
    pub bytes: u64,
}

impl OutboxStatus {
    /// Reads the outbox in the file `path`, as of `now`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(path: &Path, now: Millis) -> rusqlite::Result<Self> {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        let mut status = connection.query_row(include_str!("queries/status.sql"), [], |row| {
            Ok(Self {
                depth: row.get(0)?,
                oldest_created_at: row.get(1)?,
                retrying: row.get(2)?,
                attempts_max: row.get(3)?,
                next_attempt_at: row.get(4)?,
                ..Self::default()
            })
        })?;
        let oldest = status.oldest_created_at.as_deref().and_then(Millis::parse_rfc3339);
        status.oldest_age_seconds =
            oldest.map(|at| u64::try_from((now.0 - at.0) / 1000).unwrap_or(0));
        let worst: Option<(String, String)> = connection
            .query_row(include_str!("queries/last_error.sql"), [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        (status.last_error_event_id, status.last_error) = worst.unzip();
        status.refused = refused(&connection)?;
        if invalid::has_table(&connection)? {
            status.invalid = invalid::totals(&connection)?.0;
        }
        status.bytes = DiskUse::of(path).total();
        Ok(status)
    }
}

/// Number of rows whose last attempt got a final refusal.
fn refused(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare(include_str!("queries/error_codes.sql"))?;
    let mut rows = statement.query([])?;
    let mut refused = 0;
    while let Some(row) = rows.next()? {
        let (code, count): (String, u64) = (row.get(0)?, row.get(1)?);
        if is_final(&code) {
            refused += count;
        }
    }
    Ok(refused)
}
