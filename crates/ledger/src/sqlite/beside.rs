//! Reading beside a gate: questions only, without the folder's lock, also while a gate writes.

use std::io;
use std::path::{Path, PathBuf};

use admit_core::effect::{Effect, Passage};
use admit_core::{EntityId, Fault, Key, Receipt, Seq};
use bytes::Bytes;
use rusqlite::OptionalExtension;

use super::reader::{self, Readers};
use super::{OpenError, effects, open, queries};
use crate::effects::{EffectFilter, EffectReader};
use crate::port::{BoxFuture, Filter, Reader, Status};

/// A ledger that is only read. It creates nothing and changes nothing.
pub struct SqliteReader {
    path: PathBuf,
    pub(super) readers: Readers,
    tag: u32,
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
        Ok(Self { readers: Readers::new(&path, tag), path, tag })
    }
}

impl Reader for SqliteReader {
    fn tag(&self) -> u32 {
        self.tag
    }

    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| reader::receipt(conn, tag, seq)))
    }

    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| reader::find(conn, tag, &key)))
    }

    fn body(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| reader::body(conn, seq)))
    }

    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        Box::pin(self.readers.read(move |conn, tag| reader::list(conn, tag, &filter)))
    }

    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| reader::document(conn, &id)))
    }

    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| {
            reader::documents(conn, projection, &prefix, after.as_deref(), rows_max)
        }))
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        let path = self.path.clone();
        Box::pin(self.readers.read(move |conn, _| reader::status(conn, &path)))
    }
}

impl EffectReader for SqliteReader {
    fn effect(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| effects::get(conn, seq)))
    }

    fn history(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<Passage>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| effects::history(conn, seq)))
    }

    fn effects(&self, filter: EffectFilter) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| effects::list(conn, &filter)))
    }
}
