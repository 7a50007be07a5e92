//! Claims on streams: who holds which place, decided under the lock on the head, so that two gates
//! never hand out one place.
//!
//! Invariant: places are first handed out in ledger order, so everything up to the head was handed
//! out, and a place up to the head is finished exactly when it has no row in `claim`. Every call is a
//! few statements, however many places it is about.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::{Door, Fault, Millis, Seq};

use super::conn::{Ask, Columns, Conn, Error, Param, Result, big, rows};
use super::inbox::Shown;
use super::task::{Tx, Work};
use super::text::kept;
use super::{PostgresLedger, sql, streams};
use crate::common::claims::{Found, Held, Taken, given_back, unheld};
use crate::common::news::News;
use crate::port::{
    BoxFuture, Change, Claimed, Claims, DONE, Finished, LEASE_LIFE_MAX, Lease, LeaseAnswer,
    LeaseChange, Standing, Wanted, inbox_status,
};

impl Claims for PostgresLedger {
    fn claim(&self, wanted: Wanted) -> BoxFuture<'_, std::result::Result<Vec<Claimed>, Fault>> {
        Box::pin(async move {
            // A consumer that asks again and again must not cost a commit each time.
            let (door, now) = (wanted.door.clone(), wanted.now);
            let some = wanted.rows_max > 0
                && self.readers.read(move |conn, _| has_some(conn, &door, now)).await?;
            if !some {
                return Ok(Vec::new());
            }
            let expires_at = wanted.lease.after(wanted.now);
            let taken = self.write(Claim(wanted)).await?;
            // The bodies are read apart: the writer has better things to do.
            self.readers.read(move |conn, _| claimed(conn, &taken, expires_at)).await
        })
    }

    fn change(
        &self,
        door: Door,
        changes: Vec<LeaseChange>,
        now: Millis,
    ) -> BoxFuture<'_, std::result::Result<Vec<LeaseAnswer>, Fault>> {
        Box::pin(self.write(ChangeLeases { door, changes, now }))
    }

    fn standing(
        &self,
        door: Door,
        now: Millis,
    ) -> BoxFuture<'_, std::result::Result<Standing, Fault>> {
        Box::pin(self.readers.read(move |conn, _| standing(conn, &door, now)))
    }

    fn finished(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
    ) -> BoxFuture<'_, std::result::Result<Vec<Finished>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| finished(conn, &door, after, rows_max)))
    }
}

/// One call of `claim`.
struct Claim(Wanted);

impl Work for Claim {
    type Answer = Vec<Taken>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Vec<Taken>> {
        let Self(wanted) = self;
        let (door, now) = (kept(wanted.door.as_str()), wanted.now.0);
        let far = LEASE_LIFE_MAX.after(wanted.now).0;
        let mut found = Found::new(wanted);
        let most = found.left();
        let answers = tx.conn.query_all(&[
            Ask::new(sql!("claim_head"), vec![&door]),
            Ask::new(sql!("claim_free"), vec![&door, &now, &most]),
            Ask::new(sql!("claim_stray"), vec![&door, &far, &most]),
            Ask::new(sql!("claim_new"), vec![&door, &most]),
        ])?;
        let head = answers[0].first().map(|row| row.seq(0)).transpose()?.unwrap_or(Seq(0));
        for row in answers[1..].iter().flatten() {
            let (seq, before) = (row.seq("seq")?, row.small("attempt")?);
            if found.left() == 0 || !found.take(seq, before, row.num("bytes")?) {
                break;
            }
        }
        let taken =
            found.hand_out().map_err(|error| Error::NotOurs(format!("no randomness: {error}")))?;
        if taken.is_empty() {
            return Ok(taken);
        }
        let seqs: Vec<i64> = taken.iter().map(|taken| big(taken.seq.0)).collect();
        let leases: Vec<&[u8]> = taken.iter().map(|taken| &taken.lease.as_bytes()[..]).collect();
        let attempts: Vec<i64> = taken.iter().map(|taken| i64::from(taken.attempt)).collect();
        let consumer = kept(&wanted.consumer);
        let expires_at = wanted.lease.after(wanted.now).0;
        let mut shown = Shown::at(&wanted.door, wanted.now);
        taken.iter().for_each(|taken| shown.status(taken.seq, inbox_status::CLAIMED));
        let shown = shown.named(tx.conn)?;
        let put: Vec<Param<'_>> = vec![&door, &seqs, &leases, &attempts, &consumer, &expires_at];
        let mut asks = vec![Ask::new(sql!("claim_put"), put)];
        asks.extend(shown.asks());
        let last = taken.last().map(|last| last.seq).filter(|last| *last > head);
        let last = last.map(|last| big(last.0));
        if let Some(last) = &last {
            asks.push(Ask::new(sql!("claim_head_put"), vec![&door, last]));
        }
        tx.conn.execute_all(&asks)?;
        Ok(taken)
    }
}

/// One call of `change`.
struct ChangeLeases {
    door: Door,
    changes: Vec<LeaseChange>,
    now: Millis,
}

/// What a call of `change` has read, and what it will write.
#[derive(Default)]
struct Changed {
    head: Seq,
    held: BTreeMap<Seq, Held>,
    in_stream: BTreeSet<Seq>,
    removed: Vec<i64>,
    /// With the word and who said it.
    finished: Vec<(i64, String, String)>,
    moved: BTreeSet<Seq>,
}

impl Work for ChangeLeases {
    type Answer = Vec<LeaseAnswer>;

    fn write(&mut self, tx: &mut Tx<'_>) -> Result<Vec<LeaseAnswer>> {
        let mut changed = self.read(tx.conn)?;
        let mut shown = Shown::at(&self.door, self.now);
        let mut answers = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let answer = match changed.held.get(&change.seq) {
                Some(held) if held.is_by(change.lease, self.now) => {
                    changed.apply(change);
                    shown.changed(change.seq, &change.change);
                    LeaseAnswer::Done
                }
                Some(_) => LeaseAnswer::StaleLease,
                None => {
                    let is_in_stream = changed.in_stream.contains(&change.seq);
                    unheld(change.seq, changed.head, is_in_stream)
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

    fn tell(&self, answers: &Vec<LeaseAnswer>, news: &News) {
        if let Some(seq) = given_back(&self.changes, answers) {
            news.tell(&self.door, seq);
        }
    }
}

impl ChangeLeases {
    fn read(&self, conn: &Conn) -> Result<Changed> {
        let door = kept(self.door.as_str());
        let seqs: Vec<i64> = self.changes.iter().map(|change| big(change.seq.0)).collect();
        let answers = conn.query_all(&[
            Ask::new(sql!("claim_head"), vec![&door]),
            Ask::new(sql!("claim_get"), vec![&door, &seqs]),
            Ask::new(sql!("claim_has"), vec![&door, &seqs]),
        ])?;
        let head = answers[0].first().map(|row| row.seq(0)).transpose()?.unwrap_or(Seq(0));
        let mut changed = Changed { head, ..Changed::default() };
        for row in &answers[1] {
            let held = Held {
                lease: row.val::<Option<Vec<u8>>>("lease")?.map(lease).transpose()?,
                consumer: row.text("consumer")?,
                expires_at: row.millis("expires_at")?,
            };
            changed.held.insert(row.seq("seq")?, held);
        }
        changed.in_stream = answers[2].iter().map(|row| row.seq(0)).collect::<Result<_>>()?;
        Ok(changed)
    }

    fn put(&self, conn: &Conn, changed: &Changed, shown: Shown) -> Result<()> {
        let shown = shown.named(conn)?;
        let (door, now) = (kept(self.door.as_str()), self.now.0);
        let finished = || changed.finished.iter();
        let seqs: Vec<i64> = finished().map(|(seq, _, _)| *seq).collect();
        let words: Vec<_> = finished().map(|(_, word, _)| kept(word)).collect();
        let consumers: Vec<_> = finished().map(|(_, _, consumer)| kept(consumer)).collect();
        let moved: Vec<(i64, &Held)> = changed
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
        let mut asks = shown.asks();
        if !changed.removed.is_empty() {
            asks.push(Ask::new(sql!("claim_remove"), vec![&door, &changed.removed]));
        }
        if !seqs.is_empty() {
            let put: Vec<Param<'_>> = vec![&door, &seqs, &words, &consumers, &now];
            asks.push(Ask::new(sql!("claim_finished_put"), put));
        }
        if !places.is_empty() {
            let put: Vec<Param<'_>> = vec![&door, &places, &leases, &untils];
            asks.push(Ask::new(sql!("claim_until"), put));
        }
        if !asks.is_empty() {
            conn.execute_all(&asks)?;
        }
        Ok(())
    }
}

impl Changed {
    /// Changes what the lease holds.
    fn apply(&mut self, change: &LeaseChange) {
        let seq = change.seq;
        match &change.change {
            Change::Finish { status } => {
                let Some(held) = self.held.remove(&seq) else { return };
                self.moved.remove(&seq);
                self.removed.push(big(seq.0));
                if status != DONE {
                    self.finished.push((big(seq.0), status.clone(), held.consumer));
                }
            }
            Change::Extend { until } => self.move_on(seq, *until, Some(change.lease)),
            Change::Release { again_at } => self.move_on(seq, *again_at, None),
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
        bytes.try_into().map_err(|_| Error::NotOurs(format!("a lease of {length} bytes")))?;
    Ok(Lease::from_bytes(bits))
}

/// Whether there is anything to claim.
fn has_some(conn: &Conn, door: &Door, now: Millis) -> Result<bool> {
    let far = LEASE_LIFE_MAX.after(now).0;
    conn.query_one(sql!("claim_some"), &[&kept(door.as_str()), &now.0, &far])?.val(0)
}

fn claimed(conn: &Conn, taken: &[Taken], expires_at: Millis) -> Result<Vec<Claimed>> {
    let seqs: Vec<i64> = taken.iter().map(|taken| big(taken.seq.0)).collect();
    let found = conn.query(sql!("claimed"), &[&seqs])?;
    let mut entries: BTreeMap<Seq, _> = BTreeMap::new();
    for row in &found {
        let entry = streams::entry(row)?;
        entries.insert(entry.seq, entry);
    }
    // Retention may have been quicker; then the claim is gone with the entry.
    let claimed = taken.iter().filter_map(|Taken { seq, lease, attempt }| {
        let entry = entries.remove(seq)?;
        Some(Claimed { entry, lease: *lease, expires_at, attempt: *attempt })
    });
    Ok(claimed.collect())
}

fn standing(conn: &Conn, door: &Door, now: Millis) -> Result<Standing> {
    let far = LEASE_LIFE_MAX.after(now).0;
    let row = conn.query_one(sql!("claim_standing"), &[&kept(door.as_str()), &now.0, &far])?;
    Ok(Standing {
        head: row.seq("head")?,
        newest: row.seq("newest")?,
        held: row.num("held")?,
        free: row.num("free")?,
        free_at: row.millis_opt("free_at")?,
    })
}

fn finished(conn: &Conn, door: &Door, after: Seq, rows_max: usize) -> Result<Vec<Finished>> {
    let asked: [Param<'_>; 3] = [&kept(door.as_str()), &big(after.0), &rows(rows_max)];
    let found = conn.query(sql!("claim_finished_list"), &asked)?;
    let finished = found.iter().map(|row| {
        Ok(Finished {
            seq: row.seq("seq")?,
            status: row.text("status")?,
            consumer: row.text("consumer")?,
            finished_at: row.millis("finished_at")?,
        })
    });
    finished.collect()
}
