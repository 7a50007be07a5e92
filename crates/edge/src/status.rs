//! What can be said about an outbox from its file alone, also while an agent uses it.

use std::path::Path;

use admit_core::Millis;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde::Serialize;

/// How an outbox is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Rows that wait.
    pub depth: u64,
    /// When the oldest was stored, RFC 3339.
    pub oldest_created_at: Option<String>,
    /// How long ago that is, in seconds.
    pub oldest_age_seconds: Option<u64>,
    /// Rows that have failed before.
    pub retrying: u64,
    /// How often the worst of them has.
    pub attempts_max: u64,
    /// When the next is due, RFC 3339.
    pub next_attempt_at: Option<String>,
    /// The error of the row that has failed most often.
    pub last_error: Option<String>,
    /// Which row that is.
    pub last_error_event_id: Option<String>,
    /// Bytes on disk, of the file and its log.
    pub bytes: u64,
}

impl Status {
    /// Reads the outbox in the file `path`, as of `now`.
    ///
    /// # Errors
    /// When it cannot be read.
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
        status.bytes = bytes(path);
        Ok(status)
    }
}

fn bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    [path.as_os_str(), &log]
        .iter()
        .filter_map(|file| std::fs::metadata(file).ok())
        .map(|m| m.len())
        .sum()
}
