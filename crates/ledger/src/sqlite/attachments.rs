//! The attached bus and artifact store of a ledger that no gate serves.

use std::path::Path;

use admit_core::Fault;

use super::lock::FolderLock;
use super::{OpenError, SqliteLedger, identity, open};
use crate::port::{BoxFuture, BusHolder, Store, StoreId};
use crate::tables::attachment::{self, BusLease};

impl BusLease for SqliteLedger {
    /// The lock of the data folder admits one gate to this ledger, so no other can hold the bus.
    fn take_bus(&self, _: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>> {
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
    attachment::replace(&conn, store, id).map_err(|source| OpenError::from_sqlite(&path, source))
}
