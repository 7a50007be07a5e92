//! Reading beside a gate: questions only, without the folder's lock, also while a gate writes.

use std::io;
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
        let path = dir.join(open::FILE);
        let folder = |source: io::Error| OpenError::Folder { path: path.clone(), source };
        // SQLite would create a missing file.
        std::fs::metadata(&path).map_err(folder)?;
        let fail = |source| OpenError::from_sqlite(&path, source);
        let conn = open::reading(&path).map_err(fail)?;
        open::check_owner(&conn, &path)?;
        let tag = conn
            .query_row(queries::META_GET, ["tag"], |row| row.get(0))
            .optional()
            .map_err(fail)?
            .ok_or_else(|| OpenError::NotALedger { path: path.clone() })?;
        Ok(Self { readers: Readers::new(&path, tag) })
    }
}
