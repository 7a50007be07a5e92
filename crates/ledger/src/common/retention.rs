//! Retention shared by all ledgers: finds what has expired, and removes it in small slices.
//!
//! ```text
//! bodies, in ledger order          -> slices that remove bodies
//! admissions whose body is gone,
//! a few hundred thousand at a time -> their keys, sorted, in slices; then the rows, in slices
//! ```
//!
//! Keys are sorted because neighbours in the key index share pages: the more of them are removed
//! together, the fewer pages are written. Two cursors hold the progress of bodies and rows; a restart
//! continues after them, and every removal is safe to repeat. Admissions that are skipped and expire
//! later are deferred.
//!
//! Invariant: a key is removed before the admission that claimed it, never after: a look-up that finds
//! a key always finds the admission too. Between the two commits there is an admission without a key,
//! which no copy can meet any more, because every copy is outside the horizon by then.

use std::collections::HashMap;
use std::future::Future;

use admit_core::{Fault, FaultKind, Horizon, Key, Millis, Seq};

use crate::port::SweepResult;

/// Names of the stored retention cursors.
pub(crate) const BODIES: &str = "retained_bodies";
pub(crate) const ROWS: &str = "retained_rows";
pub(crate) const FORGOTTEN_TO: &str = "forgotten_to";

/// Maximum rows in one slice.
pub(crate) const SLICE_ROWS: usize = 256;

/// Maximum bytes of bodies in one slice, unless the first one alone is larger.
const SLICE_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum sightings removed in one slice.
pub(crate) const SIGHTINGS_MAX: usize = 1_024;

/// Maximum admissions examined for one plan; about 20 MB of memory if all expire. The first plan after a
/// start is one slice and each later one is larger, so that a gate that restarts often makes progress
/// too.
const PLAN_ROWS_MAX: usize = 262_144;

/// Growth factor of the next plan.
const PLAN_GROWS: usize = 4;

/// Admissions per read.
const READ_ROWS: usize = 4_096;

/// Progress of retention.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// Bodies up to here are removed or deferred.
    bodies: Seq,
    /// Admissions up to here are removed, deferred, or stay for ever.
    rows: Seq,
    plan: Option<Plan>,
    /// Maximum admissions for the next plan.
    plan_rows: usize,
}

/// Admissions to remove: first their keys, then their rows.
#[derive(Debug, Default)]
struct Plan {
    /// Sorted.
    keys: Vec<DueKey>,
    forgotten: usize,
    /// In ledger order.
    items: Vec<SweepItem>,
    removed: usize,
    /// The cursor when the plan is done; `None` for deferred admissions.
    place: Option<Seq>,
    /// Admissions whose key stays, with the time to check again.
    kept: HashMap<Seq, Option<Millis>>,
    /// There may be more to do after this plan.
    more: bool,
}

/// Storage as retention needs it.
pub(crate) trait SweepStore: Sync {
    fn horizon(&self) -> &Horizon;

    /// Returns bodies after a seq, in ledger order.
    fn bodies(
        &self,
        after: Seq,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<RetainedBody>, Fault>> + Send;

    /// Returns admissions after `after` and up to `end`, in ledger order.
    fn admissions(
        &self,
        after: Seq,
        end: Seq,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<RetainedAdmission>, Fault>> + Send;

    /// Returns deferred admissions that are due now, with the time they were deferred to; they may be gone.
    fn deferred(
        &self,
        now: Millis,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<DeferredAdmission>, Fault>> + Send;

    /// Removes a slice, through the writer.
    fn remove(
        &self,
        remove: RemoveSlice,
    ) -> impl Future<Output = Result<RemovedCounts, Fault>> + Send;

    /// Removes keys, through the writer.
    fn forget(
        &self,
        forget: ForgetKeys,
    ) -> impl Future<Output = Result<ForgetResult, Fault>> + Send;
}

/// A body with what decides whether it is removed.
pub(crate) struct RetainedBody {
    pub(crate) seq: Seq,
    pub(crate) bytes: u64,
    pub(crate) received_at: Option<Millis>,
    pub(crate) refused: bool,
}

/// A deferred admission: due time, seq, and the admission if it exists.
pub(crate) type DeferredAdmission = (Millis, Seq, Option<RetainedAdmission>);

impl Sweeper {
    /// A sweeper that continues at these cursors.
    pub(crate) fn at(bodies: Seq, rows: Seq) -> Self {
        Self { bodies, rows, plan: None, plan_rows: SLICE_ROWS }
    }

    /// Another gate has progressed to here.
    pub(crate) fn skip_to(&mut self, bodies: Seq, rows: Seq) {
        self.bodies = self.bodies.max(bodies);
        if self.plan.is_none() {
            self.rows = self.rows.max(rows);
        }
    }

    /// Removes one slice of what has expired at `now`.
    pub(crate) async fn sweep(
        &mut self,
        ledger: &impl SweepStore,
        now: Millis,
    ) -> Result<SweepResult, Fault> {
        let mut swept = SweepResult::default();
        self.sweep_bodies(ledger, now, &mut swept).await?;
        self.sweep_rows(ledger, now, &mut swept).await?;
        Ok(swept)
    }

    /// Removes a slice of bodies.
    async fn sweep_bodies(
        &mut self,
        ledger: &impl SweepStore,
        now: Millis,
        swept: &mut SweepResult,
    ) -> Result<(), Fault> {
        let bodies = ledger.bodies(self.bodies, SLICE_ROWS).await?;
        let (items, more) = due_bodies(&bodies, ledger.horizon(), now);
        let Some(last) = items.last().map(|item| item.seq) else { return Ok(()) };
        let removed = ledger.remove(RemoveSlice { items, place: Some((BODIES, last)) }).await?;
        self.bodies = last;
        swept.bodies += removed.bodies as u64;
        swept.more |= more;
        Ok(())
    }

    /// Continues the plan, or makes the next one.
    async fn sweep_rows(
        &mut self,
        ledger: &impl SweepStore,
        now: Millis,
        swept: &mut SweepResult,
    ) -> Result<(), Fault> {
        if self.plan.is_none() {
            self.plan = match deferred(ledger, now).await? {
                Some(plan) => Some(plan),
                None => self.next_plan(ledger, now).await?,
            };
        }
        let Some(plan) = &mut self.plan else { return Ok(()) };
        if plan.forgotten < plan.keys.len() {
            plan.forget(ledger, now, swept).await?;
        }
        if plan.forgotten == plan.keys.len() {
            plan.remove(ledger, swept).await?;
        }
        if plan.forgotten < plan.keys.len() || plan.removed < plan.items.len() {
            swept.more = true;
            return Ok(());
        }
        swept.more |= plan.more;
        if let Some(place) = plan.place {
            self.rows = place;
            self.plan_rows = (self.plan_rows * PLAN_GROWS).min(PLAN_ROWS_MAX);
        }
        self.plan = None;
        Ok(())
    }

    /// Makes a plan for the next expired admissions, if there are any.
    async fn next_plan(
        &self,
        ledger: &impl SweepStore,
        now: Millis,
    ) -> Result<Option<Plan>, Fault> {
        let Some(cut) = ledger.horizon().key_cut(now) else { return Ok(None) };
        let (mut plan, end) = (Plan::default(), self.bodies);
        let (mut place, mut left) = (self.rows, self.plan_rows);
        loop {
            let rows_max = READ_ROWS.min(left);
            let rows = ledger.admissions(place, end, rows_max).await?;
            left -= rows.len();
            let at_end = rows.len() < rows_max;
            let young =
                |kept: &RetainedAdmission| kept.received_at >= cut && kept.received_at <= now;
            let due = rows.iter().position(young).unwrap_or(rows.len());
            for kept in &rows[..due] {
                place = kept.seq;
                plan.add(kept, ledger.horizon(), now);
            }
            if at_end || due < rows.len() {
                break;
            }
            if left == 0 {
                plan.more = true;
                break;
            }
        }
        if place == self.rows {
            return Ok(None);
        }
        plan.place = Some(place);
        plan.sorted().await.map(Some)
    }
}

impl Plan {
    /// Adds an admission if there is anything to do about it.
    fn add(&mut self, kept: &RetainedAdmission, horizon: &Horizon, now: Millis) {
        let item = kept.decide(horizon, now, None);
        if item.all || item.defer_to.is_some() {
            self.keys.extend(kept.due_key().filter(|_| item.all));
            self.items.push(item);
        }
    }

    /// Sorts the keys, off the async threads because there may be many.
    async fn sorted(mut self) -> Result<Self, Fault> {
        let sort = move || {
            self.keys.sort_unstable();
            self
        };
        let lost = |_| Fault::new(FaultKind::Internal, "the plan of what goes was lost");
        tokio::task::spawn_blocking(sort).await.map_err(lost)
    }

    async fn forget(
        &mut self,
        ledger: &impl SweepStore,
        now: Millis,
        swept: &mut SweepResult,
    ) -> Result<(), Fault> {
        let end = (self.forgotten + SLICE_ROWS).min(self.keys.len());
        let keys = self.keys[self.forgotten..end].to_vec();
        let horizon = ledger.horizon().clone();
        let Some(cut) = horizon.key_cut(now) else { return Ok(()) };
        // Set before it is true: from here on, copies of these events are outside the horizon.
        for due in &keys {
            horizon.forget_to(due.happened_at);
        }
        let forgot = ledger.forget(ForgetKeys { keys, horizon, cut }).await?;
        self.kept.extend(forgot.kept);
        self.forgotten = end;
        swept.keys += forgot.keys as u64;
        Ok(())
    }

    async fn remove(
        &mut self,
        ledger: &impl SweepStore,
        swept: &mut SweepResult,
    ) -> Result<(), Fault> {
        let end = (self.removed + SLICE_ROWS).min(self.items.len());
        let mut items = self.items[self.removed..end].to_vec();
        for item in &mut items {
            if let Some(defer_to) = self.kept.get(&item.seq) {
                (item.all, item.defer_to) = (false, *defer_to);
            }
        }
        let place = match items.last() {
            Some(last) if end < self.items.len() => self.place.map(|_| last.seq),
            _ => self.place,
        };
        let place = place.map(|place| (ROWS, place));
        let removed = ledger.remove(RemoveSlice { items, place }).await?;
        self.removed += removed.items;
        swept.bodies += removed.bodies as u64;
        swept.admissions += removed.admissions as u64;
        swept.sightings += removed.sightings as u64;
        Ok(())
    }
}

/// An admission with what decides whether it is removed.
pub(crate) struct RetainedAdmission {
    pub(crate) seq: Seq,
    pub(crate) refused: bool,
    /// The key it claimed, if it was the first to.
    pub(crate) key: Option<Key>,
    pub(crate) received_at: Millis,
    pub(crate) happened_at: Option<Millis>,
}

impl RetainedAdmission {
    /// Decides what to do about it at `now`.
    fn decide(&self, horizon: &Horizon, now: Millis, deferred: Option<Millis>) -> SweepItem {
        let body_due = horizon.body_due(self.received_at).unwrap_or(Millis(i64::MAX));
        let key_due = horizon.key_due(self.received_at, self.happened_at);
        let body = body_due < now;
        let all = key_due.is_some_and(|due| due < now);
        let defer_to = if body { key_due.filter(|_| !all) } else { Some(body_due) };
        SweepItem { seq: self.seq, refused: self.refused, body, all, defer_to, deferred }
    }

    fn due_key(&self) -> Option<DueKey> {
        Some(DueKey { key: self.key?, seq: self.seq, happened_at: self.happened_at? })
    }
}

/// Returns the next bodies to remove, and whether there are more. A body that seems to come from the
/// future, because of a wrong clock then or now, is deferred and holds up nothing.
fn due_bodies(bodies: &[RetainedBody], horizon: &Horizon, now: Millis) -> (Vec<SweepItem>, bool) {
    let (mut items, mut bytes) = (Vec::new(), 0);
    for body in bodies {
        bytes += body.bytes;
        if bytes > SLICE_BYTES && !items.is_empty() {
            return (items, true);
        }
        let received_at = body.received_at.unwrap_or(Millis(i64::MIN));
        let due = horizon.body_due(received_at).unwrap_or(Millis(i64::MAX));
        let (goes, future) = (due < now, received_at > now);
        if !goes && !future {
            return (items, false);
        }
        let (seq, refused, defer_to) = (body.seq, body.refused, future.then_some(due));
        items.push(SweepItem { seq, refused, body: goes, all: false, defer_to, deferred: None });
    }
    let more = items.len() == SLICE_ROWS;
    (items, more)
}

/// Makes a plan for deferred admissions that are due now.
async fn deferred(ledger: &impl SweepStore, now: Millis) -> Result<Option<Plan>, Fault> {
    let mut plan = Plan { more: true, ..Plan::default() };
    for (due, seq, kept) in ledger.deferred(now, SLICE_ROWS).await? {
        let item = match &kept {
            Some(kept) => kept.decide(ledger.horizon(), now, Some(due)),
            None => SweepItem {
                seq,
                refused: false,
                body: false,
                all: false,
                defer_to: None,
                deferred: Some(due),
            },
        };
        plan.keys.extend(kept.and_then(|kept| kept.due_key()).filter(|_| item.all));
        plan.items.push(item);
    }
    plan.keys.sort_unstable();
    Ok(Some(plan).filter(|plan| !plan.items.is_empty()))
}

/// One admission with what to do about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepItem {
    pub(crate) seq: Seq,
    /// It is a refusal, whose body counts towards a quota.
    pub(crate) refused: bool,
    /// Remove its body.
    pub(crate) body: bool,
    /// Remove everything else too; its key is gone already.
    pub(crate) all: bool,
    /// Time to check it again.
    pub(crate) defer_to: Option<Millis>,
    /// Time it was deferred to before.
    pub(crate) deferred: Option<Millis>,
}

/// Applies items in ledger order, and advances the named cursor accordingly.
#[derive(Debug)]
pub(crate) struct RemoveSlice {
    pub(crate) items: Vec<SweepItem>,
    /// Cursor name, and its value once all items are done.
    pub(crate) place: Option<(&'static str, Seq)>,
}

/// Removals of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemovedCounts {
    /// Items done.
    pub(crate) items: usize,
    pub(crate) bodies: usize,
    pub(crate) admissions: usize,
    pub(crate) sightings: usize,
}

/// An expired key, with the seq that claimed it and the time of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueKey {
    pub(crate) key: Key,
    pub(crate) seq: Seq,
    pub(crate) happened_at: Millis,
}

/// Removes keys, except those under which something newer was admitted.
#[derive(Debug)]
pub(crate) struct ForgetKeys {
    pub(crate) keys: Vec<DueKey>,
    pub(crate) horizon: Horizon,
    /// An admission that is not older than this keeps its key.
    pub(crate) cut: Millis,
}

/// Result of removing a slice of keys.
#[derive(Debug, Default)]
pub(crate) struct ForgetResult {
    pub(crate) keys: usize,
    /// Seqs whose key stays, with when to check again (`None`: never).
    pub(crate) kept: Vec<(Seq, Option<Millis>)>,
}
