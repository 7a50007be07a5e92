//! Retention: reads outside the writer, removes through the writer, in bounded slices that are safe to
//! repeat.

use std::collections::HashMap;

use admit_core::{Age, Door, Fault, Horizon, Key, Millis, Seq};

use super::clock::{ConfirmTime, NoteTime};
use super::{claim, clock, meta};
use crate::common::retention::{
    BODIES, DeferredAdmission, FORGOTTEN_TO, ForgetKeys, ForgetResult, ROWS, RemoveSlice,
    RemovedCounts, RetainedAdmission, RetainedBody, SIGHTINGS_MAX, SweepItem, SweepStore, Sweeper,
};
use crate::db::{
    Call, Columns, Db, Operation, Param, Statement, Transaction, WriteBackend, params, row,
    statements,
};
use crate::port::{BoxFuture, ClockConfirmation, KnownTime, Retention, SweepResult};

statements! {
    each ADMISSION_REMOVE "admission_remove";
    each BODY_REMOVE "body_remove";
    each INBOX_REMOVE "inbox_remove";
    each QUOTA_GIVE_BACK "quota_give_back";
    shared RETAIN_BODIES "retain_bodies";
    shared RETAIN_DUE "retain_due";
    each RETAIN_LATER_PUT "retain_later_put";
    each RETAIN_LATER_REMOVE "retain_later_remove";
    shared RETAIN_ROWS "retain_rows";
    each SIGHTINGS_COUNT "sightings_count";
    each SIGHTINGS_REMOVE "sightings_remove";
    shared SIGHTINGS_REMOVE_SOME "sightings_remove_some";
}

/// What retention needs of a ledger.
pub(crate) trait RetentionBackend: WriteBackend {
    fn horizon(&self) -> &Horizon;

    fn sweeper(&self) -> &tokio::sync::Mutex<Sweeper>;

    /// Removes keys from the key index, through the writer.
    fn forget(&self, forget: ForgetKeys) -> BoxFuture<'_, Result<ForgetResult, Fault>>;

    /// Drops a partition if all of it has expired or gone. Returns the number of removed bodies, if one was
    /// dropped; there may be no partitions.
    fn drop_partition(&self, age: Age, now: Millis) -> BoxFuture<'_, Result<Option<u64>, Fault>>;
}

impl<B: RetentionBackend> SweepStore for B {
    fn horizon(&self) -> &Horizon {
        RetentionBackend::horizon(self)
    }

    async fn bodies(&self, after: Seq, rows_max: usize) -> Result<Vec<RetainedBody>, Fault> {
        let bodies = move |db: &B::Db, _| {
            db.query(&RETAIN_BODIES, params![after, rows_max])?.iter().map(body_of).collect()
        };
        self.read(bodies).await
    }

    async fn admissions(
        &self,
        after: Seq,
        end: Seq,
        rows_max: usize,
    ) -> Result<Vec<RetainedAdmission>, Fault> {
        let admissions = move |db: &B::Db, _| {
            let rows = db.query(&RETAIN_ROWS, params![after, end, rows_max])?;
            rows.iter().map(admission_of).collect()
        };
        self.read(admissions).await
    }

    async fn deferred(
        &self,
        now: Millis,
        rows_max: usize,
    ) -> Result<Vec<DeferredAdmission>, Fault> {
        let deferred = move |db: &B::Db, _| {
            db.query(&RETAIN_DUE, params![now, rows_max])?.iter().map(deferred_of).collect()
        };
        self.read(deferred).await
    }

    async fn remove(&self, remove: RemoveSlice) -> Result<RemovedCounts, Fault> {
        self.apply(remove).await
    }

    async fn forget(&self, forget: ForgetKeys) -> Result<ForgetResult, Fault> {
        RetentionBackend::forget(self, forget).await
    }
}

impl<B: RetentionBackend> Retention for B {
    fn horizon(&self) -> Horizon {
        RetentionBackend::horizon(self).clone()
    }

    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<SweepResult, Fault>> {
        Box::pin(async move {
            let Some(age) = RetentionBackend::horizon(self).age() else {
                return Ok(SweepResult::default());
            };
            let mut sweeper = self.sweeper().lock().await;
            let dropped = self.drop_partition(age, now).await?;
            // Other gates sweep too; what they have done is skipped.
            let (bodies, rows) = self.read(|db, _| cursors(db)).await?;
            sweeper.skip_to(bodies, rows);
            let mut swept = sweeper.sweep(self, now).await?;
            swept.bodies += dropped.unwrap_or(0);
            swept.more |= dropped.is_some();
            Ok(swept)
        })
    }

    fn known_time(&self) -> BoxFuture<'_, Result<KnownTime, Fault>> {
        self.read(|db, _| clock::known(db))
    }

    fn note_time(&self, at: Millis) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(NoteTime(at))
    }

    fn confirm_time(&self, confirmation: ClockConfirmation) -> BoxFuture<'_, Result<(), Fault>> {
        self.apply(ConfirmTime(confirmation))
    }
}

/// A sweeper that continues where the last one stopped.
pub(crate) fn load_sweeper<D: Db>(db: &D) -> Result<Sweeper, D::Error> {
    let (bodies, rows) = cursors(db)?;
    Ok(Sweeper::at(bodies, rows))
}

fn cursors<D: Db>(db: &D) -> Result<(Seq, Seq), D::Error> {
    let cursor = |name| Ok::<_, D::Error>(Seq(meta::num(db, name)?.unwrap_or(0)));
    Ok((cursor(BODIES)?, cursor(ROWS)?))
}

/// The horizon of a ledger opened with `retain`, including what was forgotten before. The age is stored for
/// readers beside the gate.
pub(crate) fn load_horizon<D: Db>(db: &D, retain: Option<Age>) -> Result<Horizon, D::Error> {
    match retain {
        Some(age) => meta::put(db, "retain_ms", age.as_millis())?,
        None => meta::remove(db, "retain_ms")?,
    }
    clock::settle_known(db, retain)?;
    Ok(Horizon::new(retain, forgotten_to(db)?))
}

/// Keys of events up to this wall time of their producer may have been removed, by any gate.
pub(crate) fn forgotten_to<D: Db>(db: &D) -> Result<Option<Millis>, D::Error> {
    Ok(meta::get(db, FORGOTTEN_TO)?.map(Millis))
}

/// Stores what was removed of the key index.
pub(crate) fn note_forgotten<D: Db>(db: &D, to: Millis, keys: usize) -> Result<(), D::Error> {
    meta::raise(db, FORGOTTEN_TO, to)?;
    count(db, "removed_keys", keys)
}

/// Raises a counter.
pub(crate) fn count<D: Db>(db: &D, name: &str, count: usize) -> Result<(), D::Error> {
    if count > 0 { meta::add(db, name, count as u64) } else { Ok(()) }
}

fn body_of<R: Columns>(row: &R) -> Result<RetainedBody, R::Error> {
    Ok(RetainedBody {
        seq: row.seq("seq")?,
        bytes: row.num("bytes")?,
        received_at: row.millis_opt("received_at")?,
        refused: row.text_opt("verdict")?.as_deref() == Some("refused"),
    })
}

fn admission_of<R: Columns>(row: &R) -> Result<RetainedAdmission, R::Error> {
    let verdict = row.text("verdict")?;
    let is_fresh = verdict == "fresh";
    Ok(RetainedAdmission {
        seq: row.seq("seq")?,
        refused: verdict == "refused",
        key: row.bytes32_opt("key")?.filter(|_| is_fresh).map(Key::from_bytes),
        received_at: row.millis("received_at")?,
        happened_at: row.millis_opt("happened_at")?,
    })
}

fn deferred_of<R: Columns>(row: &R) -> Result<DeferredAdmission, R::Error> {
    let is_there = row.seq_opt("seq")?.is_some();
    let kept = if is_there { Some(admission_of(row)?) } else { None };
    Ok((row.millis("due_at")?, row.seq("later_seq")?, kept))
}

impl<D: Db> Operation<D> for RemoveSlice {
    type Output = RemovedCounts;

    fn apply(&mut self, tx: &Transaction<'_, D>) -> Result<RemovedCounts, D::Error> {
        let mut removed = RemovedCounts::default();
        remove_sightings(tx.db, &self.items, &mut removed)?;
        let done = &self.items[..removed.items];
        remove_bodies(tx.db, done, &mut removed)?;
        remove_admissions(tx.db, done, &mut removed)?;
        defer(tx.db, done)?;
        if let Some((name, all)) = self.place {
            let last = done.last().map(|item| item.seq);
            let place = if done.len() == self.items.len() { Some(all) } else { last };
            if let Some(place) = place {
                meta::raise(tx.db, name, place)?;
            }
        }
        count(tx.db, "removed_bodies", removed.bodies)?;
        count(tx.db, "removed_admissions", removed.admissions)?;
        count(tx.db, "removed_sightings", removed.sightings)?;
        Ok(removed)
    }
}

/// Sightings go first, a slice at a time: there may be any number of them. An item is done when all of its
/// own are removed; the first that is not ends the slice.
fn remove_sightings<D: Db>(
    db: &D,
    items: &[SweepItem],
    removed: &mut RemovedCounts,
) -> Result<(), D::Error> {
    let mut counts = HashMap::new();
    let all: Vec<Seq> = items.iter().filter(|item| item.all).map(|item| item.seq).collect();
    for row in all_of(db, &SIGHTINGS_COUNT, &all)? {
        let of = usize::try_from(row.num("count")?).unwrap_or(usize::MAX);
        counts.insert(row.seq("admission")?, of);
    }
    let (mut left, mut whole, mut part) = (SIGHTINGS_MAX, Vec::new(), None);
    for item in items {
        let own = if item.all { counts.get(&item.seq).copied().unwrap_or(0) } else { 0 };
        if own > 0 && own >= left {
            part = Some((item.seq, left));
            break;
        }
        if own > 0 {
            left -= own;
            whole.push(item.seq);
        }
        removed.items += 1;
    }
    let mut gone = 0;
    if let Some(oldest) = whole.iter().min() {
        let rows: Vec<_> = whole.iter().map(|seq| row![*seq]).collect();
        gone += execute_rows(db, &SIGHTINGS_REMOVE, params![*oldest], &rows)?;
    }
    if let Some((seq, some)) = part {
        gone += db.execute(&SIGHTINGS_REMOVE_SOME, params![seq, some])?;
    }
    removed.sightings = usize::try_from(gone).unwrap_or(usize::MAX);
    Ok(())
}

/// The rows of a statement about sightings of these admissions, which come after the oldest of them.
fn all_of<D: Db>(
    db: &D,
    statement: &'static Statement,
    admissions: &[Seq],
) -> Result<Vec<D::Row>, D::Error> {
    let Some(oldest) = admissions.iter().min() else { return Ok(Vec::new()) };
    let rows: Vec<_> = admissions.iter().map(|seq| row![*seq]).collect();
    let found = db.query_all(&[Call::rows(statement, params![*oldest], &rows)])?;
    Ok(found.into_iter().flatten().collect())
}

fn execute_rows<D: Db>(
    db: &D,
    statement: &'static Statement,
    params: &[Param<'_>],
    rows: &[Vec<Param<'_>>],
) -> Result<u64, D::Error> {
    Ok(db.execute_all(&[Call::rows(statement, params, rows)])?.into_iter().sum())
}

fn seqs(done: &[SweepItem], is_meant: impl Fn(&SweepItem) -> bool) -> Vec<Vec<Param<'static>>> {
    done.iter().filter(|item| is_meant(item)).map(|item| row![item.seq]).collect()
}

fn remove_bodies<D: Db>(
    db: &D,
    done: &[SweepItem],
    removed: &mut RemovedCounts,
) -> Result<(), D::Error> {
    let bodies = seqs(done, |item| item.body);
    let refused = seqs(done, |item| item.body && item.refused);
    let gone = db.execute_all(&[
        Call::rows(&QUOTA_GIVE_BACK, &[], &refused),
        Call::rows(&INBOX_REMOVE, &[], &bodies),
        Call::rows(&BODY_REMOVE, &[], &bodies),
    ])?;
    removed.bodies = usize::try_from(gone[2]).unwrap_or(usize::MAX);
    Ok(())
}

fn remove_admissions<D: Db>(
    db: &D,
    done: &[SweepItem],
    removed: &mut RemovedCounts,
) -> Result<(), D::Error> {
    let all = seqs(done, |item| item.all);
    let mut in_streams = Vec::new();
    for row in db.query_all(&[Call::rows(&ADMISSION_REMOVE, &[], &all)])?.iter().flatten() {
        removed.admissions += 1;
        let door = Door::new(&row.text("door")?);
        if door.is_stream() {
            in_streams.push((door, row.seq("seq")?));
        }
    }
    if in_streams.is_empty() { Ok(()) } else { claim::remove(db, &in_streams) }
}

/// Items examined, and items to check again.
fn defer<D: Db>(db: &D, done: &[SweepItem]) -> Result<(), D::Error> {
    let due = |at: fn(&SweepItem) -> Option<Millis>| -> Vec<_> {
        done.iter().filter_map(|item| Some(row![at(item)?, item.seq])).collect()
    };
    let (examined, deferred) = (due(|item| item.deferred), due(|item| item.defer_to));
    let changed = [
        Call::rows(&RETAIN_LATER_REMOVE, &[], &examined),
        Call::rows(&RETAIN_LATER_PUT, &[], &deferred),
    ];
    db.execute_all(&changed).map(drop)
}
