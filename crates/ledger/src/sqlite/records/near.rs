//! The events around an arrival, read inside the transaction that it arrives in.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::record::{
    Far, Fields, Known, Link, LinkStatus, Neighbourhood, Policy, Range, RecordRule, Resolution,
    SourceEvent,
};
use admit_core::{Millis, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::RecordError;
use crate::sqlite::queries;

/// For so many numbers it is looked beyond the range.
const FAR_NUMBERS_MAX: usize = 8;

/// An event and what was decided about it.
type Decided = (SourceEvent, Link);

/// The events around one of them, with what is known. What they tell is read when it is needed.
pub(super) struct Near {
    pub(super) group: String,
    around: Option<i64>,
    covered: Option<(i64, i64)>,
    pub(super) events: Vec<SourceEvent>,
    pub(super) known: Vec<Known>,
    far: Vec<Far>,
    /// The events whose fields are here.
    loaded: BTreeSet<Seq>,
}

impl Near {
    /// Reads what is around `event`, which may be in the ledger already.
    pub(super) fn load(
        conn: &Connection,
        door: &str,
        rule: &dyn RecordRule,
        event: &SourceEvent,
    ) -> Result<Self, RecordError> {
        let range = led(conn, door, rule, event)?;
        let mut found: BTreeMap<Seq, Decided> = BTreeMap::new();
        let mut take = |rows: Vec<Decided>| {
            found.extend(rows.into_iter().map(|decided| (decided.0.seq, decided)));
        };
        let most = i64::try_from(range.events_max).unwrap_or(i64::MAX);
        let mut covered = None;
        if !range.group.is_empty() {
            let [before, after] = sides(&range);
            let half = most / 2;
            let near = |query, (from, to)| rows(conn, query, (door, &range.group, from, to, half));
            let before_it = near(queries::RECORD_NEAR_BEFORE, before)?;
            let after_it = near(queries::RECORD_NEAR_AFTER, after)?;
            covered = cover(&range, half, &before_it, &after_it);
            take(before_it);
            take(after_it);
            take(rows(conn, queries::RECORD_TIMELESS, (door, &range.group, half))?);
            let led = |query, (from, to)| rows(conn, query, (door, from, to, half));
            take(led(queries::RECORD_GROUPLESS_BEFORE, before)?);
            take(led(queries::RECORD_GROUPLESS_AFTER, after)?);
        }
        if let Some(hard_key) = &event.hard_key {
            let same = (door, hard_key, &range.group, most);
            take(rows(conn, queries::RECORD_SAME_KEY, same)?);
        }
        take(one(conn, event.seq)?.into_iter().collect());
        let mut near = Self {
            group: range.group.clone(),
            around: range.around,
            covered,
            events: Vec::with_capacity(found.len() + 1),
            known: Vec::with_capacity(found.len()),
            far: Vec::new(),
            loaded: BTreeSet::new(),
        };
        for (seq, (event, link)) in found {
            near.events.push(event);
            near.known.push(Known { seq, link });
        }
        near.far = far(conn, door, rule.policy(), &range, event, &near)?;
        Ok(near)
    }

    /// Adds the event that has just come.
    pub(super) fn arrives(&mut self, event: SourceEvent) {
        self.loaded.insert(event.seq);
        self.events.push(event);
    }

    /// What it all comes to. Links are decided by what names events; only for the records that this
    /// touches is read what their events tell.
    pub(super) fn resolve(
        &mut self,
        conn: &Connection,
        rule: &dyn RecordRule,
        now: Millis,
    ) -> Result<Resolution, RecordError> {
        let mut sketch = rule.resolve(self.neighbourhood(now));
        let touched: BTreeSet<&str> =
            sketch.records.iter().map(|record| record.record_id.as_str()).collect();
        let mut members: BTreeSet<Seq> = BTreeSet::new();
        for known in &self.known {
            let link = sketch.link(known.seq).unwrap_or(&known.link);
            if link.record_id.as_deref().is_some_and(|id| touched.contains(id)) {
                members.insert(known.seq);
            }
        }
        members.retain(|seq| !self.loaded.contains(seq));
        if members.is_empty() {
            return Ok(sketch);
        }
        for seq in members {
            self.read_fields(conn, seq)?;
        }
        rule.merge(self.neighbourhood(now), &mut sketch);
        Ok(sketch)
    }

    /// Makes sure that what an event tells is here.
    pub(super) fn read_fields(&mut self, conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
        if !self.loaded.insert(seq) {
            return Ok(());
        }
        if let Some(event) = self.events.iter_mut().find(|event| event.seq == seq) {
            let text: Option<String> = conn
                .prepare_cached(queries::RECORD_TOLD_GET)?
                .query_row([seq.0], |row| row.get(0))
                .optional()?;
            event.fields = text.map(Fields::from_stored).unwrap_or_default();
        }
        Ok(())
    }

    fn neighbourhood(&self, now: Millis) -> Neighbourhood<'_> {
        Neighbourhood {
            group: &self.group,
            around: self.around,
            covered: self.covered,
            now,
            events: &self.events,
            known: &self.known,
            far: &self.far,
        }
    }
}

/// The range up to its middle, and from there on.
fn sides(range: &Range) -> [(i64, i64); 2] {
    let around = range.around.unwrap_or_default();
    [(range.from, around.min(range.to)), (around.saturating_add(1).max(range.from), range.to)]
}

/// The times between which everything was read, where not all of the range was: events at the very
/// edge may have been left out.
fn cover(range: &Range, half: i64, before: &[Decided], after: &[Decided]) -> Option<(i64, i64)> {
    let edge = |side: &[Decided]| {
        let is_full = i64::try_from(side.len()).is_ok_and(|rows| rows >= half);
        side.last().filter(|_| is_full).and_then(|(event, _)| event.event_time)
    };
    let (from, to) = (edge(before), edge(after));
    (from.is_some() || to.is_some()).then(|| {
        let from = from.map_or(range.from, |time| time.saturating_add(1));
        (from, to.map_or(range.to, |time| time.saturating_sub(1)))
    })
}

/// The range of an event. One that does not say where it belongs, or when it was, is led there by
/// others that share its hard key.
fn led(
    conn: &Connection,
    door: &str,
    rule: &dyn RecordRule,
    event: &SourceEvent,
) -> Result<Range, RecordError> {
    let mut range = rule.policy().range(event);
    let Some(hard_key) = &event.hard_key else { return Ok(range) };
    if !range.group.is_empty() && range.around.is_some() {
        return Ok(range);
    }
    let most = i64::try_from(range.events_max).unwrap_or(i64::MAX);
    let others = rows(conn, queries::RECORD_SAME_KEY, (door, hard_key, &range.group, most))?;
    let guide = others.iter().find(|(other, _)| !other.group.is_empty());
    if let Some((guide, _)) = guide {
        let as_if = SourceEvent {
            group: guide.group.clone(),
            event_time: event.event_time.or(guide.event_time),
            ..event.clone()
        };
        range = rule.policy().range(&as_if);
    }
    Ok(range)
}

/// What lies beyond, for the numbers of events that are not linked: it can tell why they are not.
fn far(
    conn: &Connection,
    door: &str,
    policy: &Policy,
    range: &Range,
    event: &SourceEvent,
    near: &Near,
) -> Result<Vec<Far>, RecordError> {
    if range.group.is_empty() || range.around.is_none() {
        return Ok(Vec::new());
    }
    let is_open = |known: &Known| known.link.status != LinkStatus::Linked;
    let mut numbers: BTreeSet<i64> = near
        .known
        .iter()
        .filter(|known| is_open(known))
        .filter_map(|known| known.link.number)
        .collect();
    if !policy.opens(&event.source) {
        numbers.extend(event.number);
    }
    let opening = policy.sources.iter().filter(|source| source.opens);
    let opening: Vec<&str> = opening.map(|source| source.name).collect();
    let sides = [(queries::RECORD_FAR_BEFORE, range.from), (queries::RECORD_FAR_AFTER, range.to)];
    let mut found = Vec::new();
    for number in numbers.into_iter().take(FAR_NUMBERS_MAX) {
        let asked = opening.iter().flat_map(|source| sides.map(|side| (source, side)));
        for (source, (query, edge)) in asked {
            let row = conn
                .prepare_cached(query)?
                .query_row((door, &range.group, number, source, edge), |row| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
                })
                .optional()?;
            if let Some((time, head)) = row {
                let date = SourceEvent::from_text(&head, Fields::default())?.date;
                found.push(Far { number, time, date });
            }
        }
    }
    Ok(found)
}

/// The event at a place, with what was decided about it; not what it tells.
pub(super) fn one(conn: &Connection, seq: Seq) -> Result<Option<Decided>, RecordError> {
    Ok(rows(conn, queries::RECORD_EVENT_GET, [seq.0])?.into_iter().next())
}

fn rows(
    conn: &Connection,
    query: &str,
    asked: impl rusqlite::Params,
) -> Result<Vec<Decided>, RecordError> {
    let mut statement = conn.prepare_cached(query)?;
    let mut rows = statement.query(asked)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decided(row)?);
    }
    Ok(found)
}

fn decided(row: &Row<'_>) -> Result<Decided, RecordError> {
    let head = row.get_ref("head")?.as_str().map_err(rusqlite::Error::from)?;
    let link = row.get_ref("link")?.as_str().map_err(rusqlite::Error::from)?;
    let mut event = SourceEvent::from_text(head, Fields::default())?;
    // A copy tells nothing new but when its source last told it.
    event.received_at = event.received_at.max(Millis(row.get("seen_at")?));
    Ok((event, Link::from_text(link)?))
}

#[cfg(test)]
#[path = "near_tests.rs"]
mod tests;
