//! Reading beside a gate: questions only, without the folder's lock, also while a gate writes.

use std::path::Path;

use rusqlite::OptionalExtension;

use super::reader::Readers;
use super::{OpenError, open, queries};

/// A ledger that is only read. It creates nothing and changes nothing.
pub struct SqliteReader {
    pub(super) readers: Readers,
}

impl SqliteReader {
    /// Opens the ledger in the data folder `dir`, which must exist.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        let (path, conn) = open::beside(dir)?;
        let tag = conn
            .query_row(queries::META_GET, ["tag"], |row| row.get(0))
            .optional()
            .map_err(|source| OpenError::from_sqlite(&path, source))?
            .ok_or_else(|| OpenError::NotALedger { path: path.clone() })?;
        Ok(Self { readers: Readers::beside(&path, tag) })
    }
}
