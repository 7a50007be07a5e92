//! The attached bus and artifact store of the ledger.

use admit_core::Fault;

use super::meta;
use crate::db::{Db, Operation, Transaction, WriteBackend, params, statements};
use crate::port::{Attachments, BoxFuture, BusHolder, Store, StoreId};
use crate::rules::BUS_END;

statements! {
    shared BUS_ENDS_FORGET "bus_ends_forget";
}

/// Exclusive use of a bus, which only gates that share a ledger can take from each other.
pub(crate) trait BusLease {
    /// See [`Attachments::hold_bus`].
    fn take_bus(&self, id: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>>;
}

impl<B: WriteBackend + BusLease> Attachments for B {
    fn attached(&self, store: Store) -> BoxFuture<'_, Result<Option<StoreId>, Fault>> {
        self.read(move |db, _| recorded(db, store))
    }

    fn attach(&self, store: Store, id: StoreId) -> BoxFuture<'_, Result<StoreId, Fault>> {
        self.apply(Attach { store, id })
    }

    fn hold_bus(&self, id: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>> {
        self.take_bus(id)
    }
}

struct Attach {
    store: Store,
    id: StoreId,
}

impl<D: Db> Operation<D> for Attach {
    type Output = StoreId;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<StoreId, D::Error> {
        if let Some(id) = recorded(tx.db, self.store)? {
            return Ok(id);
        }
        meta::put(tx.db, self.store.name(), self.id.number())?;
        Ok(self.id)
    }
}

/// Records a store and returns the previously recorded one.
pub(crate) fn replace<D: Db>(
    db: &D,
    store: Store,
    id: StoreId,
) -> Result<Option<StoreId>, D::Error> {
    let before = recorded(db, store)?;
    meta::put(db, store.name(), id.number())?;
    if store == Store::Bus {
        db.execute(&BUS_ENDS_FORGET, params![BUS_END])?;
    }
    Ok(before)
}

fn recorded<D: Db>(db: &D, store: Store) -> Result<Option<StoreId>, D::Error> {
    Ok(meta::get(db, store.name())?.map(StoreId::from_number))
}
