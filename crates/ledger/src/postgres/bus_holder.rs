//! Exclusive use of a bus in a folder: one live gate at a time.
//!
//! A copied folder has the id of the original, so the id does not distinguish two copies. The ledger stores
//! the epoch that holds a bus, and a dead epoch holds nothing.

use std::sync::Arc;

use admit_core::Fault;

use super::conn::{Columns, Conn, Result};
use super::write_op::{Tx, WriteOp};
use super::writer::Epochs;
use super::{PostgresLedger, sql};
use crate::common::notifier::Notifier;
use crate::port::{BoxFuture, BusHolder, StoreId};
use crate::tables::attachment::BusLease;
use crate::tables::meta;

impl BusLease for PostgresLedger {
    fn take_bus(&self, id: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>> {
        Box::pin(self.write(HoldBus { id, epochs: Arc::clone(&self.epochs) }))
    }
}

/// Takes a bus for this gate, unless a live gate holds it.
struct HoldBus {
    id: StoreId,
    epochs: Arc<Epochs>,
}

impl WriteOp for HoldBus {
    type Output = Option<BusHolder>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Option<BusHolder>> {
        let row = tx.conn.query_opt(sql!("bus_holder"), &[&name(self.id)])?;
        if let Some(row) = row {
            let epoch: u64 = row.num("epoch")?;
            let is_own = epoch == tx.epoch || tx.own.contains(&epoch);
            if row.val::<bool>("is_alive")? && !is_own {
                let lease_until = row.millis("lease_until")?;
                return Ok(Some(BusHolder { gate: row.text("owner")?, lease_until }));
            }
        }
        put(tx.conn, self.id, tx.epoch)?;
        Ok(None)
    }

    fn notify(&self, holder: &Option<BusHolder>, _: &Notifier) {
        if holder.is_none() {
            self.epochs.hold(self.id);
        }
    }
}

/// Whether another gate has taken a bus after this process, whose epochs are `own`. It may have published
/// since, even if it is gone again.
pub(super) fn is_taken(conn: &Conn, id: StoreId, own: &[u64]) -> Result<bool> {
    let row = conn.query_opt(sql!("bus_holder"), &[&name(id)])?;
    let epoch = row.map(|row| row.num("epoch")).transpose()?;
    Ok(epoch.is_some_and(|epoch| !own.contains(&epoch)))
}

pub(super) fn put(conn: &Conn, id: StoreId, epoch: u64) -> Result<()> {
    meta::put(conn, &name(id), epoch)
}

fn name(id: StoreId) -> String {
    format!("bus_holder:{id}")
}
