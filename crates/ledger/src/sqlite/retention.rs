//! Retention of the embedded ledger: its key index.

use admit_core::{Age, Fault, Horizon, Millis};
use rusqlite::OptionalExtension as _;

use super::write_op::{Tx, WriteOp};
use super::{SqliteLedger, queries};
use crate::common::retention::{ForgetKeys, ForgetResult, Sweeper};
use crate::port::BoxFuture;
use crate::tables::retention::{RetentionBackend, note_forgotten};

impl RetentionBackend for SqliteLedger {
    fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    fn sweeper(&self) -> &tokio::sync::Mutex<Sweeper> {
        &self.sweeper
    }

    fn forget(&self, forget: ForgetKeys) -> BoxFuture<'_, Result<ForgetResult, Fault>> {
        Box::pin(self.write(forget))
    }

    /// There are no partitions.
    fn drop_partition(&self, _: Age, _: Millis) -> BoxFuture<'_, Result<Option<u64>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl WriteOp for ForgetKeys {
    type Output = ForgetResult;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<ForgetResult> {
        let mut forgot = ForgetResult::default();
        let Some(newest) = self.keys.iter().map(|due| due.happened_at).max() else {
            return Ok(forgot);
        };
        let mut holds = tx.conn.prepare_cached(queries::KEY_HOLDS)?;
        for due in &self.keys {
            let held = holds
                .query_row((due.key.as_bytes(), self.cut.0), |row| {
                    Ok((Millis(row.get(0)?), row.get::<_, Option<i64>>(1)?.map(Millis)))
                })
                .optional()?;
            if let Some((received_at, happened_at)) = held {
                forgot.kept.push((due.seq, self.horizon.key_due(received_at, happened_at)));
                continue;
            }
            forgot.keys += usize::from(tx.keys.forget(tx.conn, &due.key, due.seq)?);
        }
        note_forgotten(tx.conn, newest, forgot.keys)?;
        Ok(forgot)
    }
}
