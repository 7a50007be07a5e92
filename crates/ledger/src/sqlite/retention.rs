//! Retention: finds what is too old on a read connection, and hands the writer small slices of it.
//!
//! ```text
//! bodies, in ledger order          -> slices that remove bodies
//! admissions whose body is gone,
//! a few hundred thousand at a time -> their keys, sorted, in slices; then the rows, in slices
//! ```
//!
//! Keys are sorted because neighbours in the key index share pages: the more of them go together,
//! the fewer pages are written. Two places in `meta` say how far the bodies and the rows are; a
//! restart finds again what lies after them, and every removal is safe to repeat. Admissions that
//! are passed by and become due later are in `retain_later`.

use std::collections::HashMap;

use admit_core::{Fault, FaultKind, Horizon, Key, Millis, Seq};
use rusqlite::{Connection, OptionalExtension, Row};

use super::sweep::{BODIES, DueKey, FORGOTTEN_TO, Forget, Item, ROWS, Remove};
use super::{SqliteLedger, queries};
use crate::port::{BoxFuture, Retention, Swept};

/// At most so many places in one slice.
const SLICE_ROWS: usize = 256;

/// At most so many bytes of bodies in one slice, unless the first one alone is larger.
const SLICE_BYTES: u64 = 4 * 1024 * 1024;

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
pub(super) struct Sweeper {
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

impl Sweeper {
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let place = |name| Ok::<_, rusqlite::Error>(Seq(meta(conn, name)?.unwrap_or(0)));
        Ok(Self { bodies: place(BODIES)?, rows: place(ROWS)?, plan: None, plan_rows: SLICE_ROWS })
    }

    /// Removes a slice of bodies.
    async fn sweep_bodies(
        &mut self,
        ledger: &SqliteLedger,
        now: Millis,
        swept: &mut Swept,
    ) -> Result<(), Fault> {
        let (horizon, after) = (ledger.horizon.clone(), self.bodies);
        let (items, more) =
            ledger.readers.read(move |conn, _| due_bodies(conn, &horizon, after, now)).await?;
        let Some(last) = items.last().map(|item| item.seq) else { return Ok(()) };
        let removed = ledger.write(Remove { items, place: Some((BODIES, last)) }).await?;
        self.bodies = last;
        swept.bodies += removed.bodies as u64;
        swept.more |= more;
        Ok(())
    }

    /// Goes on with the plan, or makes the next one.
    async fn sweep_rows(
        &mut self,
        ledger: &SqliteLedger,
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
    async fn next_plan(&self, ledger: &SqliteLedger, now: Millis) -> Result<Option<Plan>, Fault> {
        let Some(cut) = ledger.horizon.key_cut(now) else { return Ok(None) };
        let (mut plan, end) = (Plan::default(), self.bodies);
        let (mut place, mut left) = (self.rows, self.plan_rows);
        loop {
            let rows_max = READ_ROWS.min(left);
            let read = move |conn: &Connection, _| admissions(conn, place, end, rows_max);
            let rows = ledger.readers.read(read).await?;
            left -= rows.len();
            let at_end = rows.len() < rows_max;
            let young = |kept: &Kept| kept.received_at >= cut && kept.received_at <= now;
            let due = rows.iter().position(young).unwrap_or(rows.len());
            for kept in &rows[..due] {
                place = kept.seq;
                plan.add(kept, &ledger.horizon, now);
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
        ledger: &SqliteLedger,
        now: Millis,
        swept: &mut Swept,
    ) -> Result<(), Fault> {
        let end = (self.forgotten + SLICE_ROWS).min(self.keys.len());
        let keys = self.keys[self.forgotten..end].to_vec();
        let horizon = ledger.horizon.clone();
        let Some(cut) = horizon.key_cut(now) else { return Ok(()) };
        // Said before it is true: from here on, copies of these events are outside.
        for due in &keys {
            horizon.forget_to(due.happened_at);
        }
        let forgot = ledger.write(Forget { keys, horizon, cut }).await?;
        self.kept.extend(forgot.kept);
        self.forgotten = end;
        swept.keys += forgot.keys as u64;
        Ok(())
    }

    async fn remove(&mut self, ledger: &SqliteLedger, swept: &mut Swept) -> Result<(), Fault> {
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
        let removed = ledger.write(Remove { items, place }).await?;
        self.removed += removed.items;
        swept.bodies += removed.bodies as u64;
        swept.admissions += removed.admissions as u64;
        swept.sightings += removed.sightings as u64;
        Ok(())
    }
}

impl Retention for SqliteLedger {
    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<Swept, Fault>> {
        Box::pin(async move {
            let mut swept = Swept::default();
            if self.horizon.age().is_some() {
                let mut sweeper = self.sweeper.lock().await;
                sweeper.sweep_bodies(self, now, &mut swept).await?;
                sweeper.sweep_rows(self, now, &mut swept).await?;
            }
            Ok(swept)
        })
    }
}

/// The horizon of a ledger that is opened with `retain`, with what it has forgotten before. The age
/// is written down for whoever reads beside the gate.
pub(super) fn load_horizon(
    conn: &Connection,
    retain: Option<admit_core::Age>,
) -> rusqlite::Result<Horizon> {
    match retain {
        Some(age) => conn.execute(queries::META_PUT, ("retain_ms", age.as_millis()))?,
        None => conn.execute(queries::META_REMOVE, ["retain_ms"])?,
    };
    Ok(Horizon::new(retain, meta(conn, FORGOTTEN_TO)?.map(Millis)))
}

fn meta<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> rusqlite::Result<Option<T>> {
    conn.query_row(queries::META_GET, [name], |row| row.get(0)).optional()
}

/// An admission with what decides whether it goes.
struct Kept {
    seq: Seq,
    refused: bool,
    /// The key it claimed, if it was the first to.
    key: Option<Key>,
    received_at: Millis,
    happened_at: Option<Millis>,
}

impl Kept {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let verdict = row.get_ref("verdict")?.as_str()?;
        let (refused, fresh) = (verdict == "refused", verdict == "fresh");
        let key: Option<[u8; 32]> = row.get("key")?;
        Ok(Self {
            seq: Seq(row.get("seq")?),
            refused,
            key: key.filter(|_| fresh).map(Key::from_bytes),
            received_at: Millis(row.get("received_at")?),
            happened_at: row.get::<_, Option<i64>>("happened_at")?.map(Millis),
        })
    }

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
fn due_bodies(
    conn: &Connection,
    horizon: &Horizon,
    after: Seq,
    now: Millis,
) -> rusqlite::Result<(Vec<Item>, bool)> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    let mut statement = conn.prepare_cached(queries::RETAIN_BODIES)?;
    let mut rows = statement.query((after.0, SLICE_ROWS))?;
    while let Some(row) = rows.next()? {
        let seq = Seq(row.get(0)?);
        bytes += row.get::<_, u64>(1)?;
        if bytes > SLICE_BYTES && !items.is_empty() {
            return Ok((items, true));
        }
        let refused = row.get_ref(3)?.as_str_or_null()? == Some("refused");
        let received_at = row.get::<_, Option<i64>>(2)?.map_or(Millis(i64::MIN), Millis);
        let due = horizon.body_due(received_at).unwrap_or(Millis(i64::MAX));
        let (body, future) = (due < now, received_at > now);
        if !body && !future {
            return Ok((items, false));
        }
        let later = future.then_some(due);
        items.push(Item { seq, refused, body, all: false, later, put_off: None });
    }
    let more = items.len() == SLICE_ROWS;
    Ok((items, more))
}

/// What was put off before and is due now.
async fn put_off(ledger: &SqliteLedger, now: Millis) -> Result<Option<Plan>, Fault> {
    let horizon = ledger.horizon.clone();
    let plan = ledger.readers.read(move |conn, _| {
        let mut plan = Plan { more: true, ..Plan::default() };
        let mut statement = conn.prepare_cached(queries::RETAIN_DUE)?;
        let mut rows = statement.query((now.0, SLICE_ROWS))?;
        while let Some(row) = rows.next()? {
            let (due, seq) = (Some(Millis(row.get("due_at")?)), Seq(row.get("later_seq")?));
            if row.get::<_, Option<u64>>("seq")?.is_none() {
                let gone = Item {
                    seq,
                    refused: false,
                    body: false,
                    all: false,
                    later: None,
                    put_off: due,
                };
                plan.items.push(gone);
                continue;
            }
            let kept = Kept::read(row)?;
            let item = kept.judge(&horizon, now, due);
            plan.keys.extend(kept.due_key().filter(|_| item.all));
            plan.items.push(item);
        }
        plan.keys.sort_unstable();
        Ok(plan)
    });
    Ok(Some(plan.await?).filter(|plan| !plan.items.is_empty()))
}

/// Admissions after `after` and up to `end`, in ledger order.
fn admissions(
    conn: &Connection,
    after: Seq,
    end: Seq,
    rows_max: usize,
) -> rusqlite::Result<Vec<Kept>> {
    conn.prepare_cached(queries::RETAIN_ROWS)?
        .query_map((after.0, end.0, rows_max), Kept::read)?
        .collect()
}
