//! The attached bus and artifact store of the ledger.

use std::sync::Arc;

use admit_core::Fault;

use super::bus_holder::HoldBus;
use super::conn::{Columns, Conn, Error, Result};
use super::connect::Connector;
use super::migrate::Schema;
use super::write_op::{Tx, WriteOp};
use super::{OpenError, Options, PostgresLedger, connect_once, on_blocking_thread, sql};
use crate::port::{Attachments, BoxFuture, BusHolder, Store, StoreId};
use crate::rules::BUS_END;

type Reply<'a, T> = BoxFuture<'a, std::result::Result<T, Fault>>;

impl Attachments for PostgresLedger {
    fn attached(&self, store: Store) -> Reply<'_, Option<StoreId>> {
        Box::pin(self.readers.read(move |conn, _| recorded(conn, store)))
    }

    fn attach(&self, store: Store, id: StoreId) -> Reply<'_, StoreId> {
        Box::pin(self.write(Attach { store, id }))
    }

    fn hold_bus(&self, id: StoreId) -> Reply<'_, Option<BusHolder>> {
        Box::pin(self.write(HoldBus { id, epochs: Arc::clone(&self.epochs) }))
    }
}

/// Records a store and returns the previously recorded one.
pub fn reattach(
    options: &Options,
    store: Store,
    id: StoreId,
) -> std::result::Result<Option<StoreId>, OpenError> {
    let connector = Connector::new(options)?;
    on_blocking_thread(|| {
        let (conn, place) = connect_once(&connector)?;
        Schema { place: &place, name: &options.schema }.check(&conn)?;
        let replace = || {
            let before = recorded(&conn, store)?;
            conn.execute(sql!("meta_put"), &[&store.name(), &id.number()])?;
            if store == Store::Bus {
                conn.execute(sql!("bus_ends_forget"), &[&BUS_END])?;
            }
            Ok(before)
        };
        replace().map_err(|error: Error| OpenError::Database { place, source: error.into() })
    })
}

struct Attach {
    store: Store,
    id: StoreId,
}

impl WriteOp for Attach {
    type Output = StoreId;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<StoreId> {
        if let Some(id) = recorded(tx.conn, self.store)? {
            return Ok(id);
        }
        tx.conn.execute(sql!("meta_put"), &[&self.store.name(), &self.id.number()])?;
        Ok(self.id)
    }
}

fn recorded(conn: &Conn, store: Store) -> Result<Option<StoreId>> {
    let row = conn.query_opt(sql!("meta_get"), &[&store.name()])?;
    row.map(|row| row.val("value").map(StoreId::from_number)).transpose()
}
