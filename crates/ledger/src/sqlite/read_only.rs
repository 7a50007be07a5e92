//! Read-only access beside a gate, without the lock of the folder.

use std::path::Path;

use rusqlite::OptionalExtension;

use super::reader::Readers;
use super::unreadable::UnreadableCells;
use super::{OpenError, open, queries};

/// A read-only ledger.
pub struct SqliteReader {
    pub(super) readers: Readers,
}

impl SqliteReader {
    /// Opens the ledger in the data folder `dir`, which must exist.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_hiding(dir, UnreadableCells::default())
    }

    /// Like [`Self::open`], without the rows that have an unreadable cell.
    pub fn open_hiding(dir: &Path, cells: UnreadableCells) -> Result<Self, OpenError> {
        let (path, conn) = open::open_folder_read_only(dir)?;
        let tag = conn
            .query_row(queries::META_GET, ["tag"], |row| row.get(0))
            .optional()
            .map_err(|source| OpenError::from_sqlite(&path, source))?
            .ok_or_else(|| OpenError::NotALedger { path: path.clone() })?;
        let readers = match cells.cells.is_empty() {
            true => Readers::read_only(&path, tag),
            false => Readers::hiding(&path, tag, cells),
        };
        Ok(Self { readers })
    }
}
