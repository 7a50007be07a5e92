//! Source of a ledger copy: locks the folder, recovers the file as a start does, and reads its rows.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _};

use super::lock::FolderLock;
use super::{OpenError, identity, open, queries};
use crate::copy::cell::CopyCell;

/// The ledger in a data folder that no gate serves.
pub(crate) struct CopySource {
    conn: Connection,
    _lock: FolderLock,
}

impl CopySource {
    /// Locks the folder and recovers its file, as a start does.
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(open::FILE);
        let folder = |source| OpenError::Folder { path: path.clone(), source };
        identity::check(dir, &path)?;
        // SQLite would create a missing file.
        std::fs::metadata(&path).map_err(folder)?;
        let lock = FolderLock::take(dir)?;
        Ok(Self { conn: open::recover(&path)?, _lock: lock })
    }

    /// Returns a stored value, zero if there is none.
    pub(crate) fn meta(&self, name: &str) -> rusqlite::Result<i64> {
        let found = self.conn.query_row(queries::META_GET, [name], |row| row.get(0));
        Ok(found.optional()?.unwrap_or(0))
    }

    /// Returns the number of a single-value query.
    pub(crate) fn number(&self, query: &str) -> rusqlite::Result<Option<i64>> {
        self.conn.query_row(query, [], |row| row.get(0))
    }

    /// Returns its table names.
    pub(crate) fn tables(&self) -> rusqlite::Result<Vec<String>> {
        let query = "SELECT name FROM sqlite_schema \
                     WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
        self.conn.prepare(query)?.query_map([], |row| row.get(0))?.collect()
    }

    /// Returns the columns of a table.
    pub(crate) fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut query = self.conn.prepare("SELECT name FROM pragma_table_info(?1)")?;
        query.query_map([table], |row| row.get(0))?.collect()
    }

    /// Passes every row of a query to `each`, until it fails.
    pub(crate) fn rows<E: From<rusqlite::Error>>(
        &self,
        query: &str,
        mut each: impl FnMut(&[CopyCell<'_>]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statement = self.conn.prepare(query)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut cells = Vec::with_capacity(columns);
            for column in 0..columns {
                cells.push(match row.get_ref(column)? {
                    ValueRef::Null => CopyCell::Null,
                    ValueRef::Integer(whole) => CopyCell::Integer(whole),
                    ValueRef::Real(real) => CopyCell::Real(real),
                    text @ ValueRef::Text(_) => {
                        CopyCell::Text(text.as_str().map_err(rusqlite::Error::from)?)
                    }
                    ValueRef::Blob(bytes) => CopyCell::Blob(bytes),
                });
            }
            each(&cells)?;
        }
        Ok(())
    }
}
