//! Stream claims: leases of entries, decided inside the writer's transaction, so that no entry is granted
//! twice.
//!
//! Invariant: entries are first claimed in ledger order, so everything up to the head was claimed, and an
//! entry up to the head is finished exactly when it has no row in `claim`. So finished entries leave no
//! rows and the cost of a claim depends on its result only. Every call takes a few statements, regardless
//! of the number of entries.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Door, Fault, Millis, Seq};

use super::inbox::StatusUpdates;
use super::stream;
use crate::common::claims::{
    ClaimBatch, GrantedClaim, HeldLease, given_back, result_without_lease,
};
use crate::common::notifier::Notifier;
use crate::db::{
    Call, Columns, Db, InvalidValue, Operation, Transaction, WriteBackend, params, row, statements,
};
use crate::port::{
    BoxFuture, ClaimProgress, ClaimRequest, ClaimedEntry, Claims, DONE, FinishedEntry,
    LEASE_LIFE_MAX, Lease, LeaseAction, LeaseChange, LeaseResult, inbox_status,
};

statements! {
    each CLAIMED "claimed";
    shared FINISHED_LIST "claim_finished_list";
    each FINISHED_PUT "claim_finished_put";
    each FINISHED_REMOVE "claim_finished_remove";
    shared FREE "claim_free";
    each GET "claim_get";
    each HAS "claim_has";
    shared HEAD "claim_head";
    shared HEAD_PUT "claim_head_put";
    shared NEW "claim_new";
    each PUT "claim_put";
    each REMOVE "claim_remove";
    shared SOME "claim_some";
    shared STANDING "claim_standing";
    shared STRAY "claim_stray";
    each UNTIL "claim_until";
}

impl<B: WriteBackend> Claims for B {
    fn claim(&self, wanted: ClaimRequest) -> BoxFuture<'_, Result<Vec<ClaimedEntry>, Fault>> {
        Box::pin(async move {
            // A consumer that polls must not cost a commit each time.
            let (door, now) = (wanted.door.clone(), wanted.now);
            let some =
                wanted.rows_max > 0 && self.read(move |db, _| has_some(db, &door, now)).await?;
            if !some {
                return Ok(Vec::new());
            }
            let expires_at = wanted.lease.after(wanted.now);
            let taken = self.apply(Claim(wanted)).await?;
            // The bodies are read outside the writer.
            self.read(move |db, _| claimed(db, &taken, expires_at)).await
        })
    }

    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, Result<Vec<LeaseResult>, Fault>> {
        self.apply(ChangeLeases { door, changes, now })
    }

    fn claim_progress(
        &self,
        door: Door,
        now: Millis,
    ) -> BoxFuture<'_, Result<ClaimProgress, Fault>> {
        self.read(move |db, _| claim_progress(db, &door, now))
    }

    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<FinishedEntry>, Fault>> {
        self.read(move |db, _| {
            let rows = db.query(&FINISHED_LIST, params![door.as_str(), after, rows_max])?;
            rows.iter().map(finished_entry).collect()
        })
    }
}

/// One call of `claim`.
struct Claim(ClaimRequest);

impl<D: Db> Operation<D> for Claim {
    type Output = Vec<GrantedClaim>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Vec<GrantedClaim>, D::Error> {
        let Self(wanted) = self;
        let door = wanted.door.as_str();
        let far = LEASE_LIFE_MAX.after(wanted.now);
        let mut found = ClaimBatch::new(wanted);
        let most = found.left();
        let results = tx.db.query_all(&[
            Call::new(&HEAD, params![door]),
            Call::new(&FREE, params![door, wanted.now, most]),
            Call::new(&STRAY, params![door, far, most]),
            Call::new(&NEW, params![door, most]),
        ])?;
        let head = head_of(&results[0])?;
        for row in results[1..].iter().flatten() {
            let (seq, before) = (row.seq("seq")?, row.small("attempt")?);
            if found.left() == 0 || !found.take(seq, before, row.num("bytes")?) {
                break;
            }
        }
        let no_randomness =
            |error: getrandom::Error| InvalidValue::new(format!("no randomness: {error}"));
        let taken = found.grant().map_err(no_randomness)?;
        if !taken.is_empty() {
            put_claims(tx.db, wanted, &taken, head)?;
        }
        Ok(taken)
    }
}

/// Stores what was granted.
fn put_claims<D: Db>(
    db: &D,
    wanted: &ClaimRequest,
    taken: &[GrantedClaim],
    head: Seq,
) -> Result<(), D::Error> {
    let door = wanted.door.as_str();
    let mut updates = StatusUpdates::at(&wanted.door, wanted.now);
    taken.iter().for_each(|taken| updates.status(taken.seq, inbox_status::CLAIMED));
    let updates = updates.named(db)?;
    let updates = updates.params();
    let expires_at = wanted.lease.after(wanted.now);
    let claims: Vec<_> = taken
        .iter()
        .map(|taken| row![taken.seq, &taken.lease.as_bytes()[..], taken.attempt])
        .collect();
    let newest = taken.last().map(|last| last.seq).filter(|last| *last > head);
    let head_put = params![door, newest];
    let put = params![door, &wanted.consumer, expires_at];
    let mut calls = vec![Call::rows(&PUT, put, &claims)];
    calls.extend(updates.calls());
    calls.extend(newest.map(|_| Call::new(&HEAD_PUT, head_put)));
    db.execute_all(&calls).map(drop)
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
    removed: Vec<Seq>,
    /// With status and consumer.
    finished: Vec<(Seq, String, String)>,
    moved: BTreeSet<Seq>,
}

impl<D: Db> Operation<D> for ChangeLeases {
    type Output = Vec<LeaseResult>;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<Vec<LeaseResult>, D::Error> {
        let mut changed = self.read(tx.db)?;
        let mut updates = StatusUpdates::at(&self.door, self.now);
        let mut results = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let result = match changed.held.get(&change.seq) {
                Some(held) if held.is_held_by(change.lease, self.now) => {
                    changed.apply(change);
                    updates.changed(change.seq, &change.change);
                    LeaseResult::Done
                }
                Some(_) => LeaseResult::StaleLease,
                None => {
                    let is_in_stream = changed.in_stream.contains(&change.seq);
                    result_without_lease(change.seq, changed.head, is_in_stream)
                }
            };
            results.push(result);
        }
        if given_back(&self.changes, &results).is_some() {
            tx.has_released.set(true);
        }
        self.put(tx.db, &changed, updates)?;
        Ok(results)
    }

    fn notify(&self, results: &Vec<LeaseResult>, notifier: &Notifier) {
        if let Some(seq) = given_back(&self.changes, results) {
            notifier.notify(&self.door, seq);
        }
    }
}

impl ChangeLeases {
    fn read<D: Db>(&self, db: &D) -> Result<LeaseWrites, D::Error> {
        let door = params![self.door.as_str()];
        let seqs: Vec<_> = self.changes.iter().map(|change| row![change.seq]).collect();
        let results = db.query_all(&[
            Call::new(&HEAD, door),
            Call::rows(&GET, door, &seqs),
            Call::rows(&HAS, door, &seqs),
        ])?;
        let mut changed = LeaseWrites { head: head_of(&results[0])?, ..LeaseWrites::default() };
        for row in &results[1] {
            let held = HeldLease {
                lease: row.bytes_opt("lease")?.map(lease).transpose()?,
                consumer: row.text("consumer")?,
                expires_at: row.millis("expires_at")?,
            };
            changed.held.insert(row.seq("seq")?, held);
        }
        changed.in_stream =
            results[2].iter().map(|row| row.seq("seq")).collect::<Result<_, _>>()?;
        Ok(changed)
    }

    fn put<D: Db>(
        &self,
        db: &D,
        changed: &LeaseWrites,
        updates: StatusUpdates,
    ) -> Result<(), D::Error> {
        let updates = updates.named(db)?;
        let updates = updates.params();
        let door = self.door.as_str();
        let removed: Vec<_> = changed.removed.iter().map(|seq| row![door, *seq]).collect();
        let finished: Vec<_> = changed
            .finished
            .iter()
            .map(|(seq, status, consumer)| row![*seq, status, consumer])
            .collect();
        let moved: Vec<_> = changed
            .moved
            .iter()
            .filter_map(|seq| {
                let held = changed.held.get(seq)?;
                let lease = held.lease.as_ref().map(|lease| &lease.as_bytes()[..]);
                Some(row![*seq, lease, held.expires_at])
            })
            .collect();
        let of_door = params![door];
        let finished_at = params![door, self.now];
        let mut calls = Vec::from(updates.calls());
        calls.push(Call::rows(&REMOVE, &[], &removed));
        calls.push(Call::rows(&FINISHED_PUT, finished_at, &finished));
        calls.push(Call::rows(&UNTIL, of_door, &moved));
        db.execute_all(&calls).map(drop)
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
                self.removed.push(seq);
                if status != DONE {
                    self.finished.push((seq, status.clone(), held.consumer));
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

/// Removes claims of entries that retention removes, each with its door.
pub(crate) fn remove<D: Db>(db: &D, entries: &[(Door, Seq)]) -> Result<(), D::Error> {
    let rows: Vec<_> = entries.iter().map(|(door, seq)| row![door.as_str(), *seq]).collect();
    let removed = [Call::rows(&REMOVE, &[], &rows), Call::rows(&FINISHED_REMOVE, &[], &rows)];
    db.execute_all(&removed).map(drop)
}

fn lease(bytes: Vec<u8>) -> Result<Lease, InvalidValue> {
    let length = bytes.len();
    let bits = bytes.try_into();
    let bits = bits.map_err(|_| InvalidValue::new(format!("a lease of {length} bytes")))?;
    Ok(Lease::from_bytes(bits))
}

fn head_of<R: Columns>(rows: &[R]) -> Result<Seq, R::Error> {
    Ok(rows.first().map(|row| row.seq("head")).transpose()?.unwrap_or_default())
}

/// Whether there is anything to claim.
fn has_some<D: Db>(db: &D, door: &Door, now: Millis) -> Result<bool, D::Error> {
    let far = LEASE_LIFE_MAX.after(now);
    db.query_one(&SOME, params![door.as_str(), now, far])?.flag("is_some")
}

fn claimed<D: Db>(
    db: &D,
    taken: &[GrantedClaim],
    expires_at: Millis,
) -> Result<Vec<ClaimedEntry>, D::Error> {
    let seqs: Vec<_> = taken.iter().map(|taken| row![taken.seq]).collect();
    let mut entries: BTreeMap<Seq, _> = BTreeMap::new();
    for row in db.query_all(&[Call::rows(&CLAIMED, &[], &seqs)])?.iter().flatten() {
        let entry = stream::entry(row)?;
        entries.insert(entry.seq, entry);
    }
    // Retention may have removed the entry and its claim in between.
    let claimed = taken.iter().filter_map(|GrantedClaim { seq, lease, attempt }| {
        let entry = entries.remove(seq)?;
        Some(ClaimedEntry { entry, lease: *lease, expires_at, attempt: *attempt })
    });
    Ok(claimed.collect())
}

fn claim_progress<D: Db>(db: &D, door: &Door, now: Millis) -> Result<ClaimProgress, D::Error> {
    let far = LEASE_LIFE_MAX.after(now);
    let row = db.query_one(&STANDING, params![door.as_str(), now, far])?;
    Ok(ClaimProgress {
        head: row.seq("head")?,
        newest: row.seq("newest")?,
        held: row.num("held")?,
        free: row.num("free")?,
        free_at: row.millis_opt("free_at")?,
    })
}

fn finished_entry<R: Columns>(row: &R) -> Result<FinishedEntry, R::Error> {
    Ok(FinishedEntry {
        seq: row.seq("seq")?,
        status: row.text("status")?,
        consumer: row.text("consumer")?,
        finished_at: row.millis("finished_at")?,
    })
}
