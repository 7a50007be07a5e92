//! Stream claims: leases of entries, decided by the single writer.
//!
//! Invariant: entries are first claimed in ledger order, so everything up to the head was claimed, and an
//! entry up to the head is finished exactly when it has no row in `claim`. So finished entries leave no
//! rows and the cost of a claim depends on its result only.

use admit_core::{Door, Fault, Millis, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::inbox::StatusUpdates;
use super::write_op::{Tx, WriteOp};
use super::{SqliteLedger, queries, streams};
use crate::common::claims::{
    ClaimBatch, GrantedClaim, HeldLease, given_back, result_without_lease,
};
use crate::common::notifier::Notifier;
use crate::port::{
    BoxFuture, ClaimProgress, ClaimRequest, ClaimedEntry, Claims, DONE, FinishedEntry,
    LEASE_LIFE_MAX, Lease, LeaseAction, LeaseChange, LeaseResult,
};

impl Claims for SqliteLedger {
    fn claim(&self, wanted: ClaimRequest) -> BoxFuture<'_, Result<Vec<ClaimedEntry>, Fault>> {
        Box::pin(async move {
            // A consumer that polls must not cost a commit each time.
            let (door, now) = (wanted.door.clone(), wanted.now);
            let some = wanted.rows_max > 0
                && self.readers.read(move |conn, _| has_some(conn, &door, now)).await?;
            if !some {
                return Ok(Vec::new());
            }
            let expires_at = wanted.lease.after(wanted.now);
            let taken = self.write(Claim(wanted)).await?;
            // The bodies are read outside the writer.
            self.readers.read(move |conn, _| claimed(conn, taken, expires_at)).await
        })
    }

    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseResult>, Fault>> {
        Box::pin(self.write(ChangeLeases { door, changes, now }))
    }

    fn claim_progress(
        &self,
        door: Door,
        now: Millis,
    ) -> BoxFuture<'_, Result<ClaimProgress, Fault>> {
        Box::pin(self.readers.read(move |conn, _| claim_progress(conn, &door, now)))
    }

    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<FinishedEntry>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| finished(conn, &door, after, rows_max)))
    }
}

/// One call of `claim`.
struct Claim(ClaimRequest);

impl WriteOp for Claim {
    type Output = Vec<GrantedClaim>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<GrantedClaim>> {
        let Self(wanted) = self;
        let door = wanted.door.as_str();
        let head = head(tx.conn, door)?;
        let mut found = ClaimBatch::new(wanted);
        let new = i64::try_from(head.0).unwrap_or(i64::MAX);
        let (now, far) = (wanted.now.0, LEASE_LIFE_MAX.after(wanted.now).0);
        let places =
            [(queries::CLAIM_FREE, now), (queries::CLAIM_STRAY, far), (queries::CLAIM_NEW, new)];
        for (query, from) in places {
            take(&mut found, &mut tx.conn.prepare_cached(query)?, door, from)?;
        }
        let taken = found.grant().map_err(|error| {
            rusqlite::Error::ToSqlConversionFailure(format!("no randomness: {error}").into())
        })?;
        let expires_at = wanted.lease.after(wanted.now).0;
        let mut put = tx.conn.prepare_cached(queries::CLAIM_PUT)?;
        let mut shown = StatusUpdates::at(tx.conn, &wanted.door, wanted.now)?;
        for GrantedClaim { seq, lease, attempt } in &taken {
            let row = params![door, seq.0, lease.as_bytes(), wanted.consumer, attempt, expires_at];
            put.execute(row)?;
            shown.claimed(*seq)?;
        }
        if let Some(last) = taken.last().filter(|last| last.seq > head) {
            tx.conn.prepare_cached(queries::CLAIM_HEAD_PUT)?.execute((door, last.seq.0))?;
        }
        Ok(taken)
    }
}

/// Adds the entries that `statement` finds after `from`, up to the limits.
fn take(
    found: &mut ClaimBatch,
    statement: &mut CachedStatement<'_>,
    door: &str,
    from: i64,
) -> rusqlite::Result<()> {
    if found.left() == 0 {
        return Ok(());
    }
    let mut rows = statement.query((door, from, found.left()))?;
    while let Some(row) = rows.next()? {
        if !found.take(Seq(row.get(0)?), row.get(1)?, row.get(2)?) {
            break;
        }
    }
    Ok(())
}

/// One call of `change`.
struct ChangeLeases {
    door: Door,
    changes: Vec<LeaseChange>,
    now: Millis,
}

impl WriteOp for ChangeLeases {
    type Output = Vec<LeaseResult>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Vec<LeaseResult>> {
        let head = head(tx.conn, self.door.as_str())?;
        let mut get = tx.conn.prepare_cached(queries::CLAIM_GET)?;
        let mut shown = StatusUpdates::at(tx.conn, &self.door, self.now)?;
        let mut answers = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            if change.seq > Seq::MAX {
                answers.push(LeaseResult::UnknownPlace);
                continue;
            }
            let held = get
                .query_row((self.door.as_str(), change.seq.0), |row| {
                    Ok(HeldLease {
                        lease: row.get::<_, Option<[u8; 16]>>(0)?.map(Lease::from_bytes),
                        consumer: row.get(1)?,
                        expires_at: Millis(row.get(2)?),
                    })
                })
                .optional()?;
            let answer = match held {
                Some(held) if held.is_held_by(change.lease, self.now) => {
                    self.apply(tx.conn, change, held.consumer)?;
                    shown.changed(change.seq, &change.change)?;
                    LeaseResult::Done
                }
                Some(_) => LeaseResult::StaleLease,
                None => {
                    result_without_lease(change.seq, head, has(tx.conn, &self.door, change.seq)?)
                }
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    fn notify(&self, answers: &Vec<LeaseResult>, notifier: &Notifier) {
        if let Some(seq) = given_back(&self.changes, answers) {
            notifier.notify(&self.door, seq);
        }
    }
}

impl ChangeLeases {
    /// Changes a lease.
    fn apply(
        &self,
        conn: &Connection,
        change: &LeaseChange,
        consumer: String,
    ) -> rusqlite::Result<()> {
        let (door, seq) = (self.door.as_str(), change.seq.0);
        match &change.change {
            LeaseAction::Finish { status } => {
                conn.prepare_cached(queries::CLAIM_REMOVE)?.execute((door, seq))?;
                if status != DONE {
                    let row = (door, seq, status, consumer, self.now.0);
                    conn.prepare_cached(queries::CLAIM_FINISHED_PUT)?.execute(row)?;
                }
            }
            LeaseAction::Extend { until } => {
                let row = (door, seq, Some(change.lease.as_bytes()), until.0);
                conn.prepare_cached(queries::CLAIM_UNTIL)?.execute(row)?;
            }
            LeaseAction::Release { again_at } => {
                let row = (door, seq, None::<&[u8; 16]>, again_at.0);
                conn.prepare_cached(queries::CLAIM_UNTIL)?.execute(row)?;
            }
        }
        Ok(())
    }
}

fn head(conn: &Connection, door: &str) -> rusqlite::Result<Seq> {
    let head =
        conn.prepare_cached(queries::CLAIM_HEAD)?.query_row([door], |row| row.get(0)).optional()?;
    Ok(Seq(head.unwrap_or(0)))
}

/// Whether `seq` is an entry of the stream at `door`.
fn has(conn: &Connection, door: &Door, seq: Seq) -> rusqlite::Result<bool> {
    conn.prepare_cached(queries::STREAM_HAS)?.exists((door.as_str(), seq.0))
}

fn newest(conn: &Connection, door: &Door) -> rusqlite::Result<Seq> {
    let newest = conn
        .prepare_cached(queries::STREAM_NEWEST)?
        .query_row([door.as_str()], |row| row.get(0))
        .optional()?;
    Ok(Seq(newest.unwrap_or(0)))
}

/// Whether there is anything to claim.
fn has_some(conn: &Connection, door: &Door, now: Millis) -> rusqlite::Result<bool> {
    if newest(conn, door)? > head(conn, door.as_str())? {
        return Ok(true);
    }
    let far = LEASE_LIFE_MAX.after(now).0;
    Ok(conn.prepare_cached(queries::CLAIM_FREE)?.exists((door.as_str(), now.0, 1))?
        || conn.prepare_cached(queries::CLAIM_STRAY)?.exists((door.as_str(), far, 1))?)
}

fn claimed(
    conn: &Connection,
    taken: Vec<GrantedClaim>,
    expires_at: Millis,
) -> rusqlite::Result<Vec<ClaimedEntry>> {
    let mut claimed = Vec::with_capacity(taken.len());
    for GrantedClaim { seq, lease, attempt } in taken {
        // Retention may have removed the entry and its claim in between.
        if let Some(entry) = streams::entry_at(conn, seq)? {
            claimed.push(ClaimedEntry { entry, lease, expires_at, attempt });
        }
    }
    Ok(claimed)
}

fn claim_progress(conn: &Connection, door: &Door, now: Millis) -> rusqlite::Result<ClaimProgress> {
    let (head, newest) = (head(conn, door.as_str())?, newest(conn, door)?);
    let params = (door.as_str(), now.0, LEASE_LIFE_MAX.after(now).0);
    conn.prepare_cached(queries::CLAIM_STANDING)?.query_row(params, |row| {
        let free_at = row.get::<_, Option<i64>>(2)?.map(Millis);
        Ok(ClaimProgress { head, newest, held: row.get(0)?, free: row.get(1)?, free_at })
    })
}

fn finished(
    conn: &Connection,
    door: &Door,
    after: Seq,
    rows_max: usize,
) -> rusqlite::Result<Vec<FinishedEntry>> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    conn.prepare_cached(queries::CLAIM_FINISHED_LIST)?
        .query_map((door.as_str(), after.0, rows_max), |row| {
            Ok(FinishedEntry {
                seq: Seq(row.get(0)?),
                status: row.get(1)?,
                consumer: row.get(2)?,
                finished_at: Millis(row.get(3)?),
            })
        })?
        .collect()
}
