//! Stream claims: leases of entries, decided under the head lock, so that two gates never grant the same
//! entry.
//!
//! Invariant: entries are first claimed in ledger order, so everything up to the head was claimed, and an
//! entry up to the head is finished exactly when it has no row in `claim`. Every call takes a few
//! statements, regardless of the number of entries.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Door, Fault, Millis, Seq};

use super::conn::{Columns, Conn, Error, Param, Query, Result, big, rows};
use super::inbox::StatusUpdates;
use super::nul_escape::escape;
use super::write_op::{Tx, WriteOp};
use super::{PostgresLedger, sql, streams};
use crate::common::claims::{
    ClaimBatch, GrantedClaim, HeldLease, given_back, result_without_lease,
};
use crate::common::notifier::Notifier;
use crate::port::{
    BoxFuture, ClaimProgress, ClaimRequest, ClaimedEntry, Claims, DONE, FinishedEntry,
    LEASE_LIFE_MAX, Lease, LeaseAction, LeaseChange, LeaseResult, inbox_status,
};

impl Claims for PostgresLedger {
    fn claim(
        &self,
        wanted: ClaimRequest,
    ) -> BoxFuture<'_, std::result::Result<Vec<ClaimedEntry>, Fault>> {
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
            self.readers.read(move |conn, _| claimed(conn, &taken, expires_at)).await
        })
    }

    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<LeaseResult>, Fault>> {
        Box::pin(self.write(ChangeLeases { door, changes, now }))
    }

    fn claim_progress(
        &self,
        door: Door,
        now: Millis,
    ) -> BoxFuture<'_, std::result::Result<ClaimProgress, Fault>> {
        Box::pin(self.readers.read(move |conn, _| claim_progress(conn, &door, now)))
    }

    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<FinishedEntry>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| finished(conn, &door, after, rows_max)))
    }
}

/// One call of `claim`.
struct Claim(ClaimRequest);

impl WriteOp for Claim {
    type Output = Vec<GrantedClaim>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Vec<GrantedClaim>> {
        let Self(wanted) = self;
        let (door, now) = (escape(wanted.door.as_str()), wanted.now.0);
        let far = LEASE_LIFE_MAX.after(wanted.now).0;
        let mut found = ClaimBatch::new(wanted);
        let most = found.left();
        let answers = tx.conn.query_all(&[
            Query::new(sql!("claim_head"), vec![&door]),
            Query::new(sql!("claim_free"), vec![&door, &now, &most]),
            Query::new(sql!("claim_stray"), vec![&door, &far, &most]),
            Query::new(sql!("claim_new"), vec![&door, &most]),
        ])?;
        let head = answers[0].first().map(|row| row.seq(0)).transpose()?.unwrap_or(Seq(0));
        for row in answers[1..].iter().flatten() {
            let (seq, before) = (row.seq("seq")?, row.small("attempt")?);
            if found.left() == 0 || !found.take(seq, before, row.num("bytes")?) {
                break;
            }
        }
        let taken =
            found.grant().map_err(|error| Error::Unexpected(format!("no randomness: {error}")))?;
        if taken.is_empty() {
            return Ok(taken);
        }
        let seqs: Vec<i64> = taken.iter().map(|taken| big(taken.seq.0)).collect();
        let leases: Vec<&[u8]> = taken.iter().map(|taken| &taken.lease.as_bytes()[..]).collect();
        let attempts: Vec<i64> = taken.iter().map(|taken| i64::from(taken.attempt)).collect();
        let consumer = escape(&wanted.consumer);
        let expires_at = wanted.lease.after(wanted.now).0;
        let mut shown = StatusUpdates::at(&wanted.door, wanted.now);
        taken.iter().for_each(|taken| shown.status(taken.seq, inbox_status::CLAIMED));
        let shown = shown.named(tx.conn)?;
        let put: Vec<Param<'_>> = vec![&door, &seqs, &leases, &attempts, &consumer, &expires_at];
        let mut queries = vec![Query::new(sql!("claim_put"), put)];
        queries.extend(shown.queries());
        let last = taken.last().map(|last| last.seq).filter(|last| *last > head);
        let last = last.map(|last| big(last.0));
        if let Some(last) = &last {
            queries.push(Query::new(sql!("claim_head_put"), vec![&door, last]));
        }
        tx.conn.execute_all(&queries)?;
        Ok(taken)
    }
}

/// One call of `change`.
struct ChangeLeases {
    door: Door,
    changes: Vec<LeaseChange>,
    now: Millis,
}

/// Rows read by a call of `change`, and its writes.
#[derive(Default)]
struct LeaseWrites {
    head: Seq,
    held: BTreeMap<Seq, HeldLease>,
    in_stream: BTreeSet<Seq>,
    removed: Vec<i64>,
    /// With status and consumer.
    finished: Vec<(i64, String, String)>,
    moved: BTreeSet<Seq>,
}

impl WriteOp for ChangeLeases {
    type Output = Vec<LeaseResult>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Vec<LeaseResult>> {
        let mut changed = self.read(tx.conn)?;
        let mut shown = StatusUpdates::at(&self.door, self.now);
        let mut answers = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let answer = match changed.held.get(&change.seq) {
                Some(held) if held.is_held_by(change.lease, self.now) => {
                    changed.apply(change);
                    shown.changed(change.seq, &change.change);
                    LeaseResult::Done
                }
                Some(_) => LeaseResult::StaleLease,
                None => {
                    let is_in_stream = changed.in_stream.contains(&change.seq);
                    result_without_lease(change.seq, changed.head, is_in_stream)
                }
            };
            answers.push(answer);
        }
        if given_back(&self.changes, &answers).is_some() {
            tx.position.given_back += 1;
        }
        self.put(tx.conn, &changed, shown)?;
        Ok(answers)
    }

    fn notify(&self, answers: &Vec<LeaseResult>, notifier: &Notifier) {
        if let Some(seq) = given_back(&self.changes, answers) {
            notifier.notify(&self.door, seq);
        }
    }
}

impl ChangeLeases {
    fn read(&self, conn: &Conn) -> Result<LeaseWrites> {
        let door = escape(self.door.as_str());
        let seqs: Vec<i64> = self.changes.iter().map(|change| big(change.seq.0)).collect();
        let answers = conn.query_all(&[
            Query::new(sql!("claim_head"), vec![&door]),
            Query::new(sql!("claim_get"), vec![&door, &seqs]),
            Query::new(sql!("claim_has"), vec![&door, &seqs]),
        ])?;
        let head = answers[0].first().map(|row| row.seq(0)).transpose()?.unwrap_or(Seq(0));
        let mut changed = LeaseWrites { head, ..LeaseWrites::default() };
        for row in &answers[1] {
            let held = HeldLease {
                lease: row.val::<Option<Vec<u8>>>("lease")?.map(lease).transpose()?,
                consumer: row.text("consumer")?,
                expires_at: row.millis("expires_at")?,
            };
            changed.held.insert(row.seq("seq")?, held);
        }
        changed.in_stream = answers[2].iter().map(|row| row.seq(0)).collect::<Result<_>>()?;
        Ok(changed)
    }

    fn put(&self, conn: &Conn, changed: &LeaseWrites, shown: StatusUpdates) -> Result<()> {
        let shown = shown.named(conn)?;
        let (door, now) = (escape(self.door.as_str()), self.now.0);
        let finished = || changed.finished.iter();
        let seqs: Vec<i64> = finished().map(|(seq, _, _)| *seq).collect();
        let words: Vec<_> = finished().map(|(_, word, _)| escape(word)).collect();
        let consumers: Vec<_> = finished().map(|(_, _, consumer)| escape(consumer)).collect();
        let moved: Vec<(i64, &HeldLease)> = changed
            .moved
            .iter()
            .filter_map(|seq| Some((big(seq.0), changed.held.get(seq)?)))
            .collect();
        let places: Vec<i64> = moved.iter().map(|(seq, _)| *seq).collect();
        let leases: Vec<Option<&[u8]>> = moved
            .iter()
            .map(|(_, held)| held.lease.as_ref().map(|lease| &lease.as_bytes()[..]))
            .collect();
        let untils: Vec<i64> = moved.iter().map(|(_, held)| held.expires_at.0).collect();
        let mut queries = shown.queries();
        if !changed.removed.is_empty() {
            queries.push(Query::new(sql!("claim_remove"), vec![&door, &changed.removed]));
        }
        if !seqs.is_empty() {
            let put: Vec<Param<'_>> = vec![&door, &seqs, &words, &consumers, &now];
            queries.push(Query::new(sql!("claim_finished_put"), put));
        }
        if !places.is_empty() {
            let put: Vec<Param<'_>> = vec![&door, &places, &leases, &untils];
            queries.push(Query::new(sql!("claim_until"), put));
        }
        if !queries.is_empty() {
            conn.execute_all(&queries)?;
        }
        Ok(())
    }
}

impl LeaseWrites {
    /// Changes a lease.
    fn apply(&mut self, change: &LeaseChange) {
        let seq = change.seq;
        match &change.change {
            LeaseAction::Finish { status } => {
                let Some(held) = self.held.remove(&seq) else { return };
                self.moved.remove(&seq);
                self.removed.push(big(seq.0));
                if status != DONE {
                    self.finished.push((big(seq.0), status.clone(), held.consumer));
                }
            }
            LeaseAction::Extend { until } => self.move_on(seq, *until, Some(change.lease)),
            LeaseAction::Release { again_at } => self.move_on(seq, *again_at, None),
        }
    }

    fn move_on(&mut self, seq: Seq, until: Millis, lease: Option<Lease>) {
        if let Some(held) = self.held.get_mut(&seq) {
            held.lease = lease;
            held.expires_at = until;
            self.moved.insert(seq);
        }
    }
}

fn lease(bytes: Vec<u8>) -> Result<Lease> {
    let length = bytes.len();
    let bits =
        bytes.try_into().map_err(|_| Error::Unexpected(format!("a lease of {length} bytes")))?;
    Ok(Lease::from_bytes(bits))
}

/// Whether there is anything to claim.
fn has_some(conn: &Conn, door: &Door, now: Millis) -> Result<bool> {
    let far = LEASE_LIFE_MAX.after(now).0;
    conn.query_one(sql!("claim_some"), &[&escape(door.as_str()), &now.0, &far])?.val(0)
}

fn claimed(conn: &Conn, taken: &[GrantedClaim], expires_at: Millis) -> Result<Vec<ClaimedEntry>> {
    let seqs: Vec<i64> = taken.iter().map(|taken| big(taken.seq.0)).collect();
    let found = conn.query(sql!("claimed"), &[&seqs])?;
    let mut entries: BTreeMap<Seq, _> = BTreeMap::new();
    for row in &found {
        let entry = streams::entry(row)?;
        entries.insert(entry.seq, entry);
    }
    // Retention may have removed the entry and its claim in between.
    let claimed = taken.iter().filter_map(|GrantedClaim { seq, lease, attempt }| {
        let entry = entries.remove(seq)?;
        Some(ClaimedEntry { entry, lease: *lease, expires_at, attempt: *attempt })
    });
    Ok(claimed.collect())
}

fn claim_progress(conn: &Conn, door: &Door, now: Millis) -> Result<ClaimProgress> {
    let far = LEASE_LIFE_MAX.after(now).0;
    let row = conn.query_one(sql!("claim_standing"), &[&escape(door.as_str()), &now.0, &far])?;
    Ok(ClaimProgress {
        head: row.seq("head")?,
        newest: row.seq("newest")?,
        held: row.num("held")?,
        free: row.num("free")?,
        free_at: row.millis_opt("free_at")?,
    })
}

fn finished(conn: &Conn, door: &Door, after: Seq, rows_max: usize) -> Result<Vec<FinishedEntry>> {
    let params: [Param<'_>; 3] = [&escape(door.as_str()), &big(after.0), &rows(rows_max)];
    let found = conn.query(sql!("claim_finished_list"), &params)?;
    let finished = found.iter().map(|row| {
        Ok(FinishedEntry {
            seq: row.seq("seq")?,
            status: row.text("status")?,
            consumer: row.text("consumer")?,
            finished_at: row.millis("finished_at")?,
        })
    });
    finished.collect()
}
