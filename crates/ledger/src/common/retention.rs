//! Retention, whatever stores the ledger: finds what is too old, and has it removed in small slices.
//!
//! ```text
//! bodies, in ledger order          -> slices that remove bodies
//! admissions whose body is gone,
//! a few hundred thousand at a time -> their keys, sorted, in slices; then the rows, in slices
//! ```
//!
//! Keys are sorted because neighbours in the key index share pages: the more of them go together,
//! the fewer pages are written. Two places say how far the bodies and the rows are; a restart finds
//! again what lies after them, and every removal is safe to repeat. Admissions that are passed by and
//! become due later are put off.
//!
//! Invariant: a key goes before the admission that claimed it, never after: a look-up that finds a
//! key always finds the admission too. Between the two commits there is an admission without a key,
//! which no copy can meet any more, because every copy is outside the horizon by then.

use std::collections::HashMap;
use std::future::Future;

use admit_core::{Fault, FaultKind, Horizon, Key, Millis, Seq};

use crate::port::Swept;

/// The names of the single values that say how far retention is.
pub(crate) const BODIES: &str = "retained_bodies";
pub(crate) const ROWS: &str = "retained_rows";
pub(crate) const FORGOTTEN_TO: &str = "forgotten_to";

/// At most so many places in one slice.
pub(crate) const SLICE_ROWS: usize = 256;

/// At most so many bytes of bodies in one slice, unless the first one alone is larger.
const SLICE_BYTES: u64 = 4 * 1024 * 1024;

/// At most so many sightings go in one slice.
pub(crate) const SIGHTINGS_MAX: usize = 1_024;

/// At most so many admissions are looked at for one plan; about 20 MB of memory when all go. The
/// first plan after a start is one slice and each one is larger than the last, so that a gate that
/// is restarted again and again gets on too.
const PLAN_ROWS_MAX: usize = 262_144;

/// How much larger the next plan may be.
const PLAN_GROWS: usize = 4;

/// So many admissions in one read.
const READ_ROWS: usize = 4_096;

/// How far retention is, and what it is at.
#[derive(Debug)]
pub(crate) struct Sweeper {
    /// Bodies up to here are gone, or put off.
    bodies: Seq,
    /// Admissions up to here are gone, put off, or stay for ever.
    rows: Seq,
    plan: Option<Plan>,
    /// How many admissions the next plan may look at.
    plan_rows: usize,
}

/// Admissions that go: first their keys, then they.
#[derive(Debug, Default)]
struct Plan {
    /// Sorted.
    keys: Vec<DueKey>,
    forgotten: usize,
    /// In ledger order.
    items: Vec<Item>,
    removed: usize,
    /// How far the rows are when all of it is done; none for what was put off before.
    place: Option<Seq>,
    /// Something keeps a key: what to do about its admission instead.
    kept: HashMap<Seq, Option<Millis>>,
    /// There may be more after it.
    more: bool,
}

/// What retention needs of a ledger.
pub(crate) trait Sweeping: Sync {
    fn horizon(&self) -> &Horizon;

    /// Bodies after a place in ledger order.
    fn bodies(
        &self,
        after: Seq,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<Body>, Fault>> + Send;

    /// Admissions after `after` and up to `end`, in ledger order.
    fn admissions(
        &self,
        after: Seq,
        end: Seq,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<Kept>, Fault>> + Send;

    /// What was put off before and is due now, with the time it was put off to; it may be gone.
    fn put_off(
        &self,
        now: Millis,
        rows_max: usize,
    ) -> impl Future<Output = Result<Vec<PutOff>, Fault>> + Send;

    /// Has the writer remove a slice.
    fn remove(&self, remove: Remove) -> impl Future<Output = Result<Removed, Fault>> + Send;

    /// Has the writer forget keys.
    fn forget(&self, forget: Forget) -> impl Future<Output = Result<Forgot, Fault>> + Send;
}

/// A body with what decides whether it goes.
pub(crate) struct Body {
    pub(crate) seq: Seq,
    pub(crate) bytes: u64,
    pub(crate) received_at: Option<Millis>,
    pub(crate) refused: bool,
}

/// Something that was put off: when to, where it stands, and what is there.
pub(crate) type PutOff = (Millis, Seq, Option<Kept>);

impl Sweeper {
    /// One that goes on from where the bodies and the rows are.
    pub(crate) fn at(bodies: Seq, rows: Seq) -> Self {
        Self { bodies, rows, plan: None, plan_rows: SLICE_ROWS }
    }

    /// Somebody else has come as far as this.
    #[cfg(feature = "postgres")]
    pub(crate) fn skip_to(&mut self, bodies: Seq, rows: Seq) {
        self.bodies = self.bodies.max(bodies);
        if self.plan.is_none() {
            self.rows = self.rows.max(rows);
        }
    }

    /// Removes one slice of what is too old at `now`.
    pub(crate) async fn sweep(
        &mut self,
        ledger: &impl Sweeping,
        now: Millis,
    ) -> Result<Swept, Fault> {
        let mut swept = Swept::default();
        self.sweep_bodies(ledger, now, &mut swept).await?;
        self.sweep_rows(ledger, now, &mut swept).await?;
        Ok(swept)
    }

    /// Removes a slice of bodies.
    async fn sweep_bodies(
        &mut self,
        ledger: &impl Sweeping,
        now: Millis,
        swept: &mut Swept,
    ) -> Result<(), Fault> {
        let bodies = ledger.bodies(self.bodies, SLICE_ROWS).await?;
        let (items, more) = due_bodies(&bodies, ledger.horizon(), now);
        let Some(last) = items.last().map(|item| item.seq) else { return Ok(()) };
        let removed = ledger.remove(Remove { items, place: Some((BODIES, last)) }).await?;
        self.bodies = last;
        swept.bodies += removed.bodies as u64;
        swept.more |= more;
        Ok(())
    }

    /// Goes on with the plan, or makes the next one.
    async fn sweep_rows(
        &mut self,
        ledger: &impl Sweeping,
        now: Millis,
        swept: &mut Swept,
    ) -> Result<(), Fault> {
        if self.plan.is_none() {
            self.plan = match put_off(ledger, now).await? {
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

    /// A plan for the next admissions that are due, if there are any.
    async fn next_plan(&self, ledger: &impl Sweeping, now: Millis) -> Result<Option<Plan>, Fault> {
        let Some(cut) = ledger.horizon().key_cut(now) else { return Ok(None) };
        let (mut plan, end) = (Plan::default(), self.bodies);
        let (mut place, mut left) = (self.rows, self.plan_rows);
        loop {
            let rows_max = READ_ROWS.min(left);
            let rows = ledger.admissions(place, end, rows_max).await?;
            left -= rows.len();
            let at_end = rows.len() < rows_max;
            let young = |kept: &Kept| kept.received_at >= cut && kept.received_at <= now;
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
    /// Takes an admission in, if anything is to be done about it.
    fn add(&mut self, kept: &Kept, horizon: &Horizon, now: Millis) {
        let item = kept.judge(horizon, now, None);
        if item.all || item.later.is_some() {
            self.keys.extend(kept.due_key().filter(|_| item.all));
            self.items.push(item);
        }
    }

    /// The same with its keys in order, which takes a moment when there are many.
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
        ledger: &impl Sweeping,
        now: Millis,
        swept: &mut Swept,
    ) -> Result<(), Fault> {
        let end = (self.forgotten + SLICE_ROWS).min(self.keys.len());
        let keys = self.keys[self.forgotten..end].to_vec();
        let horizon = ledger.horizon().clone();
        let Some(cut) = horizon.key_cut(now) else { return Ok(()) };
        // Said before it is true: from here on, copies of these events are outside.
        for due in &keys {
            horizon.forget_to(due.happened_at);
        }
        let forgot = ledger.forget(Forget { keys, horizon, cut }).await?;
        self.kept.extend(forgot.kept);
        self.forgotten = end;
        swept.keys += forgot.keys as u64;
        Ok(())
    }

    async fn remove(&mut self, ledger: &impl Sweeping, swept: &mut Swept) -> Result<(), Fault> {
        let end = (self.removed + SLICE_ROWS).min(self.items.len());
        let mut items = self.items[self.removed..end].to_vec();
        for item in &mut items {
            if let Some(later) = self.kept.get(&item.seq) {
                (item.all, item.later) = (false, *later);
            }
        }
        let place = match items.last() {
            Some(last) if end < self.items.len() => self.place.map(|_| last.seq),
            _ => self.place,
        };
        let place = place.map(|place| (ROWS, place));
        let removed = ledger.remove(Remove { items, place }).await?;
        self.removed += removed.items;
        swept.bodies += removed.bodies as u64;
        swept.admissions += removed.admissions as u64;
        swept.sightings += removed.sightings as u64;
        Ok(())
    }
}

/// An admission with what decides whether it goes.
pub(crate) struct Kept {
    pub(crate) seq: Seq,
    pub(crate) refused: bool,
    /// The key it claimed, if it was the first to.
    pub(crate) key: Option<Key>,
    pub(crate) received_at: Millis,
    pub(crate) happened_at: Option<Millis>,
}

impl Kept {
    /// What is to be done about it at `now`.
    fn judge(&self, horizon: &Horizon, now: Millis, put_off: Option<Millis>) -> Item {
        let body_due = horizon.body_due(self.received_at).unwrap_or(Millis(i64::MAX));
        let key_due = horizon.key_due(self.received_at, self.happened_at);
        let body = body_due < now;
        let all = key_due.is_some_and(|due| due < now);
        let later = if body { key_due.filter(|_| !all) } else { Some(body_due) };
        Item { seq: self.seq, refused: self.refused, body, all, later, put_off }
    }

    fn due_key(&self) -> Option<DueKey> {
        Some(DueKey { key: self.key?, seq: self.seq, happened_at: self.happened_at? })
    }
}

/// The next bodies that go, and whether there are more. What seems to come from the future, because
/// the clock was wrong then or is now, is put off and holds up nothing.
fn due_bodies(bodies: &[Body], horizon: &Horizon, now: Millis) -> (Vec<Item>, bool) {
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
        let (seq, refused, later) = (body.seq, body.refused, future.then_some(due));
        items.push(Item { seq, refused, body: goes, all: false, later, put_off: None });
    }
    let more = items.len() == SLICE_ROWS;
    (items, more)
}

/// What was put off before and is due now.
async fn put_off(ledger: &impl Sweeping, now: Millis) -> Result<Option<Plan>, Fault> {
    let mut plan = Plan { more: true, ..Plan::default() };
    for (due, seq, kept) in ledger.put_off(now, SLICE_ROWS).await? {
        let item = match &kept {
            Some(kept) => kept.judge(ledger.horizon(), now, Some(due)),
            None => Item {
                seq,
                refused: false,
                body: false,
                all: false,
                later: None,
                put_off: Some(due),
            },
        };
        plan.keys.extend(kept.and_then(|kept| kept.due_key()).filter(|_| item.all));
        plan.items.push(item);
    }
    plan.keys.sort_unstable();
    Ok(Some(plan).filter(|plan| !plan.items.is_empty()))
}

/// One place with what is to be done about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) seq: Seq,
    /// A refusal, whose body counts for a quota.
    pub(crate) refused: bool,
    /// Its body goes.
    pub(crate) body: bool,
    /// Everything else goes too; its key is gone already.
    pub(crate) all: bool,
    /// It must be looked at again after this time.
    pub(crate) later: Option<Millis>,
    /// Under which time it was put off before.
    pub(crate) put_off: Option<Millis>,
}

/// Does what the items say, in ledger order, and moves the named place to where it got.
#[derive(Debug)]
pub(crate) struct Remove {
    pub(crate) items: Vec<Item>,
    /// Which place moves, and how far once all items are done.
    pub(crate) place: Option<(&'static str, Seq)>,
}

/// What a slice removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Removed {
    /// How many items are done.
    pub(crate) items: usize,
    pub(crate) bodies: usize,
    pub(crate) admissions: usize,
    pub(crate) sightings: usize,
}

/// A key that is due, with the place that claimed it and when its event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DueKey {
    pub(crate) key: Key,
    pub(crate) seq: Seq,
    pub(crate) happened_at: Millis,
}

/// Forgets keys, except those under which something newer was admitted.
#[derive(Debug)]
pub(crate) struct Forget {
    pub(crate) keys: Vec<DueKey>,
    pub(crate) horizon: Horizon,
    /// Whatever is not older than this holds its key.
    pub(crate) cut: Millis,
}

/// What became of a slice of keys.
#[derive(Debug, Default)]
pub(crate) struct Forgot {
    pub(crate) keys: usize,
    /// Places whose key stays, with when to look again (`None`: never).
    pub(crate) kept: Vec<(Seq, Option<Millis>)>,
}
