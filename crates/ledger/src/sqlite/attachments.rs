//! The attached bus and artifact store of the ledger.

use std::path::Path;

use admit_core::Fault;
use rusqlite::{Connection, OptionalExtension};

use super::lock::FolderLock;
use super::write_op::{Tx, WriteOp};
use super::{OpenError, SqliteLedger, identity, open, queries};
use crate::port::{Attachments, BoxFuture, BusHolder, Store, StoreId};
use crate::rules::BUS_END;

impl Attachments for SqliteLedger {
    fn attached(&self, store: Store) -> BoxFuture<'_, Result<Option<StoreId>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| recorded(conn, store)))
    }

    fn attach(&self, store: Store, id: StoreId) -> BoxFuture<'_, Result<StoreId, Fault>> {
        Box::pin(self.write(Attach { store, id }))
    }

    /// The lock of the data folder admits one gate to this ledger, so no other can hold the bus.
    fn hold_bus(&self, _: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Records a store and returns the previously recorded one. No gate may serve the folder.
pub fn reattach(dir: &Path, store: Store, id: StoreId) -> Result<Option<StoreId>, OpenError> {
    let path = dir.join(open::FILE);
    identity::check(dir, &path)?;
    // SQLite would create a missing file.
    std::fs::metadata(&path).map_err(|source| OpenError::Folder { path: path.clone(), source })?;
    let _lock = FolderLock::take(dir)?;
    let conn = open::recover(&path)?;
    let fail = |source| OpenError::from_sqlite(&path, source);
    let before = recorded(&conn, store).map_err(fail)?;
    conn.execute(queries::META_PUT, (store.name(), id.number())).map_err(fail)?;
    if store == Store::Bus {
        conn.execute(queries::BUS_ENDS_FORGET, [BUS_END]).map_err(fail)?;
    }
    Ok(before)
}

struct Attach {
    store: Store,
    id: StoreId,
}

impl WriteOp for Attach {
    type Output = StoreId;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<StoreId> {
        if let Some(id) = recorded(tx.conn, self.store)? {
            return Ok(id);
        }
        tx.conn.execute(queries::META_PUT, (self.store.name(), self.id.number()))?;
        Ok(self.id)
    }
}

fn recorded(conn: &Connection, store: Store) -> rusqlite::Result<Option<StoreId>> {
    let number = conn.query_row(queries::META_GET, [store.name()], |row| row.get(0)).optional()?;
    Ok(number.map(StoreId::from_number))
}
