//! The events around an arrival, read inside the transaction that it arrives in.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::record::{
    Far, Fields, Known, LinkStatus, Neighbourhood, Policy, Range, RecordRule, Resolution,
    SourceEvent,
};
use admit_core::{Millis, Seq};

use super::RecordError;
use super::tables::{Asked, Decided, FarAsked, Side, Tables};

/// For so many numbers it is looked beyond the range.
const FAR_NUMBERS_MAX: usize = 8;

/// The events around one of them, with what is known. What they tell is read when it is needed.
pub(crate) struct Near {
    pub(super) group: String,
    around: Option<i64>,
    pub(crate) covered: Option<(i64, i64)>,
    pub(crate) events: Vec<SourceEvent>,
    pub(super) known: Vec<Known>,
    /// Why rows of events are missing, as it was written down before.
    pub(super) drift: BTreeMap<Seq, String>,
    pub(crate) far: Vec<Far>,
    /// The events whose fields are here.
    loaded: BTreeSet<Seq>,
}

impl Near {
    /// Reads what is around `event`, which may be in the ledger already.
    pub(crate) fn load<T: Tables>(
        tables: &mut T,
        door: &str,
        rule: &dyn RecordRule,
        event: &SourceEvent,
    ) -> Result<Self, RecordError<T::Error>> {
        let range = led(tables, door, rule, event)?;
        let most = most(&range);
        let group = &*range.group;
        let half = most / 2;
        let mut asked = Vec::with_capacity(7);
        if !group.is_empty() {
            let sides = sides(&range);
            let near = |(side, from, to)| Asked::Near { side, group, from, to, most: half };
            asked.extend(sides.map(near));
            asked.push(Asked::Timeless { group, most: half });
            asked.extend(sides.map(|(side, from, to)| Asked::Groupless {
                side,
                from,
                to,
                most: half,
            }));
        }
        if let Some(hard_key) = &event.hard_key {
            asked.push(Asked::SameKey { hard_key, group, most });
        }
        asked.push(Asked::At(event.seq));
        let found = tables.events(door, &asked)?;
        let covered = match (&found[..], group) {
            ([before, after, ..], group) if !group.is_empty() => cover(&range, half, before, after),
            _ => None,
        };
        let found: BTreeMap<Seq, Decided> =
            found.into_iter().flatten().map(|found| (found.event.seq, found)).collect();
        let mut near = Self {
            group: range.group.clone(),
            around: range.around,
            covered,
            events: Vec::with_capacity(found.len() + 1),
            known: Vec::with_capacity(found.len()),
            drift: BTreeMap::new(),
            far: Vec::new(),
            loaded: BTreeSet::new(),
        };
        for (seq, Decided { event, link, drift }) in found {
            near.events.push(event);
            near.known.push(Known { seq, link });
            near.drift.extend(drift.map(|drift| (seq, drift)));
        }
        near.far = far(tables, door, rule.policy(), &range, event, &near)?;
        Ok(near)
    }

    /// Adds the event that has just come.
    pub(super) fn arrives(&mut self, event: SourceEvent) {
        self.loaded.insert(event.seq);
        self.events.push(event);
    }

    /// What it all comes to. Links are decided by what names events; only for the records that this
    /// touches is read what their events tell.
    pub(super) fn resolve<T: Tables>(
        &mut self,
        tables: &mut T,
        rule: &dyn RecordRule,
        now: Millis,
    ) -> Result<Resolution, RecordError<T::Error>> {
        let mut sketch = rule.resolve(self.neighbourhood(now));
        let touched: BTreeSet<&str> =
            sketch.records.iter().map(|record| record.record_id.as_str()).collect();
        let mut members: Vec<Seq> = Vec::new();
        for known in &self.known {
            let link = sketch.link(known.seq).unwrap_or(&known.link);
            if link.record_id.as_deref().is_some_and(|id| touched.contains(id)) {
                members.push(known.seq);
            }
        }
        members.retain(|seq| !self.loaded.contains(seq));
        if members.is_empty() {
            return Ok(sketch);
        }
        self.read_fields(tables, &members).map_err(RecordError::Store)?;
        rule.merge(self.neighbourhood(now), &mut sketch);
        Ok(sketch)
    }

    /// Makes sure that what events tell is here.
    pub(super) fn read_fields<T: Tables>(
        &mut self,
        tables: &mut T,
        seqs: &[Seq],
    ) -> Result<(), T::Error> {
        let missing: Vec<Seq> =
            seqs.iter().copied().filter(|seq| self.loaded.insert(*seq)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut told: BTreeMap<Seq, Fields> = tables.told(&missing)?.into_iter().collect();
        for event in &mut self.events {
            if let Some(fields) = told.remove(&event.seq) {
                event.fields = fields;
            }
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

/// The limit of a range, as databases count.
fn most(range: &Range) -> i64 {
    i64::try_from(range.events_max).unwrap_or(i64::MAX)
}

/// The range up to its middle, and from there on.
fn sides(range: &Range) -> [(Side, i64, i64); 2] {
    let around = range.around.unwrap_or_default();
    [
        (Side::Before, range.from, around.min(range.to)),
        (Side::After, around.saturating_add(1).max(range.from), range.to),
    ]
}

/// The times between which everything was read, where not all of the range was: events at the very
/// edge may have been left out.
fn cover(range: &Range, half: i64, before: &[Decided], after: &[Decided]) -> Option<(i64, i64)> {
    let edge = |side: &[Decided]| {
        let is_full = i64::try_from(side.len()).is_ok_and(|rows| rows >= half);
        side.last().filter(|_| is_full).and_then(|found| found.event.event_time)
    };
    let (from, to) = (edge(before), edge(after));
    (from.is_some() || to.is_some()).then(|| {
        let from = from.map_or(range.from, |time| time.saturating_add(1));
        (from, to.map_or(range.to, |time| time.saturating_sub(1)))
    })
}

/// The range of an event. One that does not say where it belongs, or when it was, is led there by
/// others that share its hard key.
fn led<T: Tables>(
    tables: &mut T,
    door: &str,
    rule: &dyn RecordRule,
    event: &SourceEvent,
) -> Result<Range, RecordError<T::Error>> {
    let mut range = rule.policy().range(event);
    let Some(hard_key) = &event.hard_key else { return Ok(range) };
    if !range.group.is_empty() && range.around.is_some() {
        return Ok(range);
    }
    let asked = Asked::SameKey { hard_key, group: &range.group, most: most(&range) };
    let others = tables.events(door, &[asked])?;
    let mut others = others.iter().flatten().map(|found| &found.event);
    if let Some(guide) = others.find(|other| !other.group.is_empty()) {
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
fn far<T: Tables>(
    tables: &mut T,
    door: &str,
    policy: &Policy,
    range: &Range,
    event: &SourceEvent,
    near: &Near,
) -> Result<Vec<Far>, RecordError<T::Error>> {
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
    let opening = || policy.sources.iter().filter(|source| source.opens).map(|source| source.name);
    let sides = [(Side::Before, range.from), (Side::After, range.to)];
    let group = &*range.group;
    let mut asked = Vec::new();
    for number in numbers.into_iter().take(FAR_NUMBERS_MAX) {
        for source in opening() {
            let ask = |(side, edge)| FarAsked { side, door, group, edge, number, source };
            asked.extend(sides.map(ask));
        }
    }
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tables.far(&asked).map_err(RecordError::Store)?;
    let mut found = Vec::new();
    for (FarAsked { number, .. }, row) in asked.into_iter().zip(rows) {
        if let Some((time, head)) = row {
            let date = SourceEvent::from_text(&head, Fields::default())?.date;
            found.push(Far { number, time, date });
        }
    }
    Ok(found)
}

/// The event at a place, with what was decided about it; not what it tells.
pub(super) fn one<T: Tables>(
    tables: &mut T,
    seq: Seq,
) -> Result<Option<Decided>, RecordError<T::Error>> {
    // A place belongs to one door, whichever that is.
    Ok(tables.events("", &[Asked::At(seq)])?.into_iter().flatten().next())
}
