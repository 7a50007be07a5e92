//! Removals of retention as write operations: each a bounded slice of a few statements, each safe to
//! repeat.

use std::collections::HashMap;

use admit_core::{Door, Millis, Seq};

use super::conn::{Columns, Conn, Query, Result, big};
use super::sql;
use super::write_op::{Tx, WriteOp};
use crate::common::retention::{
    BODIES, FORGOTTEN_TO, ForgetKeys, ForgetResult, RemoveSlice, RemovedCounts, SIGHTINGS_MAX,
    SweepItem,
};

/// How long to wait for the lock on a partition before the drop is postponed. Its readers are not cancelled,
/// and later ones do not wait for longer.
const DROP_WAIT_MS: u32 = 500;

impl WriteOp for RemoveSlice {
    type Output = RemovedCounts;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<RemovedCounts> {
        let conn = tx.conn;
        let mut removed = RemovedCounts::default();
        self.remove_sightings(conn, &mut removed)?;
        let done = &self.items[..removed.items];
        remove_bodies(conn, done, &mut removed)?;
        remove_admissions(conn, done, &mut removed)?;
        deferred(conn, done)?;
        if let Some((name, all)) = self.place {
            let last = done.last().map(|item| item.seq);
            let place = if done.len() == self.items.len() { Some(all) } else { last };
            if let Some(place) = place {
                conn.execute(sql!("meta_max"), &[&name, &big(place.0)])?;
            }
        }
        count(conn, "removed_bodies", removed.bodies)?;
        count(conn, "removed_admissions", removed.admissions)?;
        count(conn, "removed_sightings", removed.sightings)?;
        Ok(removed)
    }
}

trait RemoveSightings {
    fn remove_sightings(&self, conn: &Conn, removed: &mut RemovedCounts) -> Result<()>;
}

impl RemoveSightings for RemoveSlice {
    /// Sightings go first, a slice at a time: there may be any number of them. An item is done when
    /// all of its own are removed; the first that is not ends the slice.
    fn remove_sightings(&self, conn: &Conn, removed: &mut RemovedCounts) -> Result<()> {
        let all = places(self.items.iter().filter(|item| item.all));
        let mut counts = HashMap::new();
        if let Some(oldest) = all.iter().min() {
            for row in conn.query(sql!("sightings_count"), &[&all, oldest])? {
                let of = usize::try_from(row.num("count")?).unwrap_or(usize::MAX);
                counts.insert(row.seq("admission")?, of);
            }
        }
        let (mut left, mut whole, mut part) = (SIGHTINGS_MAX, Vec::new(), None);
        for item in &self.items {
            let own = if item.all { counts.get(&item.seq).copied().unwrap_or(0) } else { 0 };
            if own > 0 && own >= left {
                part = Some((big(item.seq.0), left));
                break;
            }
            if own > 0 {
                left -= own;
                whole.push(big(item.seq.0));
            }
            removed.items += 1;
        }
        let mut gone = 0;
        if let Some(oldest) = whole.iter().min() {
            gone += conn.execute(sql!("sightings_remove"), &[&whole, oldest])?;
        }
        if let Some((seq, some)) = part {
            gone += conn.execute(sql!("sightings_remove_some"), &[&seq, &big(some as u64)])?;
        }
        removed.sightings = usize::try_from(gone).unwrap_or(usize::MAX);
        Ok(())
    }
}

fn places<'i>(items: impl Iterator<Item = &'i SweepItem>) -> Vec<i64> {
    items.map(|item| big(item.seq.0)).collect()
}

fn remove_bodies(conn: &Conn, done: &[SweepItem], removed: &mut RemovedCounts) -> Result<()> {
    let bodies = places(done.iter().filter(|item| item.body));
    if bodies.is_empty() {
        return Ok(());
    }
    let refused = places(done.iter().filter(|item| item.body && item.refused));
    if !refused.is_empty() {
        conn.execute(sql!("quota_give_back"), &[&refused])?;
    }
    let gone = conn.execute_all(&[
        Query::new(sql!("inbox_retain"), vec![&bodies]),
        Query::new(sql!("bodies_remove"), vec![&bodies]),
    ])?;
    removed.bodies = usize::try_from(gone[1]).unwrap_or(usize::MAX);
    Ok(())
}

fn remove_admissions(conn: &Conn, done: &[SweepItem], removed: &mut RemovedCounts) -> Result<()> {
    let all = places(done.iter().filter(|item| item.all));
    if all.is_empty() {
        return Ok(());
    }
    let (mut doors, mut seqs) = (Vec::new(), Vec::new());
    for row in conn.query(sql!("admissions_remove"), &[&all])? {
        removed.admissions += 1;
        let door: String = row.val("door")?;
        if Door::new(&door).is_stream() {
            doors.push(door);
            seqs.push(row.val::<i64>("seq")?);
        }
    }
    if !doors.is_empty() {
        conn.execute_all(&[
            Query::new(sql!("claims_remove"), vec![&doors, &seqs]),
            Query::new(sql!("claims_finished_remove"), vec![&doors, &seqs]),
        ])?;
    }
    Ok(())
}

/// Items examined, and items to check again.
fn deferred(conn: &Conn, done: &[SweepItem]) -> Result<()> {
    for (sql, due_at) in [
        (sql!("retain_later_remove"), (|item| item.deferred) as fn(&SweepItem) -> Option<Millis>),
        (sql!("retain_later_put"), |item| item.defer_to),
    ] {
        let (dues, seqs): (Vec<i64>, Vec<i64>) =
            done.iter().filter_map(|item| due_at(item).map(|due| (due.0, big(item.seq.0)))).unzip();
        if !seqs.is_empty() {
            conn.execute(sql, &[&dues, &seqs])?;
        }
    }
    Ok(())
}

fn count(conn: &Conn, name: &str, count: usize) -> Result<()> {
    if count > 0 {
        conn.execute(sql!("meta_add"), &[&name, &big(count as u64)])?;
    }
    Ok(())
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
        tx.conn.execute(sql!("meta_max"), &[&FORGOTTEN_TO, &newest.0])?;
        count(tx.conn, "removed_keys", forgot.keys)?;
        Ok(forgot)
    }
}

/// Drops a partition that has expired.
#[derive(Debug)]
pub(super) struct DropPartition {
    pub(super) parent: &'static str,
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// Everything received before this time has expired.
    pub(super) cut: Millis,
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
            conn.execute(sql!("meta_max"), &[&BODIES, &(hi - 1)])?;
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
