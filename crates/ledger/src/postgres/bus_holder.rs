//! Which gate writes to a bus in a folder: one live gate at a time.
//!
//! A copied folder has the id of the original, so the id does not tell two copies apart. The ledger keeps
//! the epoch that holds a bus among its single values, and a dead epoch holds nothing.

use std::sync::Arc;

use super::conn::{Columns, Conn, Result, big};
use super::sql;
use super::task::{Tx, Work};
use super::writer::Epochs;
use crate::common::news::News;
use crate::port::{BusHolder, StoreId};

/// Takes a bus for this gate, unless a live gate has it.
pub(super) struct HoldBus {
    pub(super) id: StoreId,
    pub(super) epochs: Arc<Epochs>,
}

impl Work for HoldBus {
    type Answer = Option<BusHolder>;

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

    fn tell(&self, holder: &Option<BusHolder>, _: &News) {
        if holder.is_none() {
            self.epochs.hold(self.id);
        }
    }
}

/// Whether another gate has taken a bus after this process, which has had these epochs. It may have
/// published since, also when it is gone again.
pub(super) fn is_taken(conn: &Conn, id: StoreId, own: &[u64]) -> Result<bool> {
    let row = conn.query_opt(sql!("bus_holder"), &[&name(id)])?;
    let epoch = row.map(|row| row.num("epoch")).transpose()?;
    Ok(epoch.is_some_and(|epoch| !own.contains(&epoch)))
}

pub(super) fn put(conn: &Conn, id: StoreId, epoch: u64) -> Result<()> {
    conn.execute(sql!("meta_put"), &[&name(id), &big(epoch)]).map(drop)
}

fn name(id: StoreId) -> String {
    format!("bus_holder:{id}")
}
