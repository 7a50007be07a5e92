//! Retention on PostgreSQL: its key index, and whole partitions that have expired.

use std::collections::HashMap;

use admit_core::{Age, Fault, Horizon, Millis, Seq};

use super::conn::{Columns, Conn, Query, Result, big};
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, sql};
use crate::common::retention::{BODIES, ForgetKeys, ForgetResult, Sweeper};
use crate::port::BoxFuture;
use crate::tables::meta;
use crate::tables::retention::{RetentionBackend, count, note_forgotten};

/// How long to wait for the lock on a partition before the drop is postponed. Its readers are not cancelled,
/// and later ones do not wait for longer.
const DROP_WAIT_MS: u32 = 500;

impl RetentionBackend for PostgresLedger {
    fn horizon(&self) -> &Horizon {
        &self.horizon
    }

    fn sweeper(&self) -> &tokio::sync::Mutex<Sweeper> {
        &self.sweeper
    }

    fn forget(&self, forget: ForgetKeys) -> BoxFuture<'_, Result<ForgetResult, Fault>> {
        Box::pin(self.write(forget))
    }

    fn drop_partition(&self, age: Age, now: Millis) -> BoxFuture<'_, Result<Option<u64>, Fault>> {
        Box::pin(self.drop_oldest(age, now))
    }
}

impl PostgresLedger {
    /// Drops the oldest partition of bodies if all of it has expired, and the oldest one of sightings if it is
    /// empty. Returns the number of removed bodies, if a partition was dropped.
    async fn drop_oldest(&self, age: Age, now: Millis) -> Result<Option<u64>, Fault> {
        let cut = Millis(now.0.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
        let find = move |conn: &Conn, _| droppable(conn, cut);
        let Some(partition) = self.readers.read(find).await? else { return Ok(None) };
        self.write(partition).await
    }
}

/// A partition that has expired.
fn droppable(conn: &Conn, cut: Millis) -> Result<Option<DropPartition>> {
    for (sql, parent) in
        [(sql!("growth_old_bodies"), "body"), (sql!("growth_empty_sightings"), "sighting")]
    {
        let found = match parent {
            "body" => conn.query_opt(sql, &[&cut.0])?,
            _ => conn.query_opt(sql, &[])?,
        };
        if let Some(row) = found {
            let (lo, hi) = (row.num("lo")?, row.num("hi")?);
            return Ok(Some(DropPartition { parent, lo, hi, cut }));
        }
    }
    Ok(None)
}

impl WriteOp for ForgetKeys {
    type Output = ForgetResult;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<ForgetResult> {
        let mut forgot = ForgetResult::default();
        let Some(newest) = self.keys.iter().map(|due| due.happened_at).max() else {
            return Ok(forgot);
        };
        let keys: Vec<&[u8]> = self.keys.iter().map(|due| &due.key.as_bytes()[..]).collect();
        let mut held = HashMap::new();
        for row in tx.conn.query(sql!("keys_hold"), &[&keys, &self.cut.0])? {
            // Index of the key, counted from one.
            let at = row.num("at")?;
            let due =
                self.horizon.key_due(row.millis("received_at")?, row.millis_opt("happened_at")?);
            held.insert(at, due);
        }
        let (mut goes, mut seqs): (Vec<&[u8]>, Vec<i64>) = (Vec::new(), Vec::new());
        for (at, due) in (1..).zip(&self.keys) {
            match held.get(&at) {
                Some(defer_to) => forgot.kept.push((due.seq, *defer_to)),
                None => {
                    goes.push(due.key.as_bytes());
                    seqs.push(big(due.seq.0));
                }
            }
        }
        let gone = tx.conn.execute(sql!("keys_forget"), &[&goes, &seqs])?;
        forgot.keys = usize::try_from(gone).unwrap_or(usize::MAX);
        note_forgotten(tx.conn, newest, forgot.keys)?;
        Ok(forgot)
    }
}

/// Drops a partition that has expired.
#[derive(Debug)]
struct DropPartition {
    parent: &'static str,
    lo: u64,
    hi: u64,
    /// Everything received before this time has expired.
    cut: Millis,
}

impl WriteOp for DropPartition {
    /// The number of removed bodies; `None` if the partition is in use, gone, or not expired after all.
    type Output = Option<u64>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Option<u64>> {
        match tx.conn.in_savepoint(|| self.drop_now(tx.conn))? {
            Ok(gone) => Ok(gone),
            Err(error) => {
                tracing::info!(%error, parent = self.parent, lo = self.lo, "a partition is in use; its removal is postponed");
                Ok(None)
            }
        }
    }
}

impl DropPartition {
    fn drop_now(&self, conn: &Conn) -> Result<Option<u64>> {
        let (lo, hi) = (big(self.lo), big(self.hi));
        let partitions = conn.query_opt(sql!("growth_remove"), &[&self.parent, &lo])?;
        let Some(partitions) = partitions else { return Ok(None) };
        let name: String = partitions.val("name")?;
        let mut bodies = 0;
        if self.parent == "body" {
            let row = conn.query_one(sql!("bodies_of_range"), &[&lo, &hi])?;
            bodies = row.num("count")?;
            conn.execute_all(&[
                Query::new(sql!("quota_give_back_range"), vec![&lo, &hi]),
                Query::new(sql!("inbox_retain_range"), vec![&lo, &hi]),
            ])?;
            count(conn, "removed_bodies", usize::try_from(bodies).unwrap_or(usize::MAX))?;
            meta::raise(conn, BODIES, hi - 1)?;
        }
        conn.batch(&format!("SET LOCAL lock_timeout = {DROP_WAIT_MS}; DROP TABLE {name}"))?;
        tracing::info!(
            name,
            bodies,
            cut = self.cut.0,
            last = Seq(self.hi - 1).0,
            "dropped an expired partition"
        );
        Ok(Some(bodies))
    }
}
