//! Loads the candidate events around an arrival, inside its transaction.

use std::collections::{BTreeMap, BTreeSet};

use admit_core::entity::{
    CandidateRange, CandidateSet, DistantEvent, EntityRule, EventFields, KnownLink, LinkStatus,
    Policy, Resolution, SourceEvent,
};
use admit_core::{Millis, Seq};

use super::RecordError;
use super::tables::{EventQuery, FarQuery, Side, StoredEvent, Tables};

/// Maximum numbers that are searched for beyond the range.
const FAR_NUMBERS_MAX: usize = 8;

/// Events around one of them, with their links. Fields are loaded on demand.
pub(crate) struct LoadedCandidates {
    pub(super) group: String,
    around: Option<i64>,
    pub(crate) covered: Option<(i64, i64)>,
    pub(crate) events: Vec<SourceEvent>,
    pub(super) known: Vec<KnownLink>,
    /// Stored reasons why rows of events are missing.
    pub(super) drift: BTreeMap<Seq, String>,
    pub(crate) far: Vec<DistantEvent>,
    /// Events whose fields are loaded.
    loaded: BTreeSet<Seq>,
}

impl LoadedCandidates {
    /// Loads the events around `event`, which may be in the ledger already.
    pub(crate) fn load<T: Tables>(
        tables: &mut T,
        door: &str,
        rule: &dyn EntityRule,
        event: &SourceEvent,
    ) -> Result<Self, RecordError<T::Error>> {
        let range = range_of(tables, door, rule, event)?;
        let most = most(&range);
        let group = &*range.group;
        let half = most / 2;
        let mut queries = Vec::with_capacity(7);
        if !group.is_empty() {
            let sides = sides(&range);
            let near = |(side, from, to)| EventQuery::Near { side, group, from, to, most: half };
            queries.extend(sides.map(near));
            queries.push(EventQuery::Timeless { group, most: half });
            queries.extend(sides.map(|(side, from, to)| EventQuery::Groupless {
                side,
                from,
                to,
                most: half,
            }));
        }
        if let Some(hard_key) = &event.hard_key {
            queries.push(EventQuery::SameKey { hard_key, group, most });
        }
        queries.push(EventQuery::At(event.seq));
        let found = tables.events(door, &queries)?;
        let covered = match (&found[..], group) {
            ([before, after, ..], group) if !group.is_empty() => cover(&range, half, before, after),
            _ => None,
        };
        let found: BTreeMap<Seq, StoredEvent> =
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
        for (seq, StoredEvent { event, link, drift }) in found {
            near.events.push(event);
            near.known.push(KnownLink { seq, link });
            near.drift.extend(drift.map(|drift| (seq, drift)));
        }
        near.far = far(tables, door, rule.policy(), &range, event, &near)?;
        Ok(near)
    }

    /// Adds the event that has just arrived.
    pub(super) fn add_arrival(&mut self, event: SourceEvent) {
        self.loaded.insert(event.seq);
        self.events.push(event);
    }

    /// Resolves the candidates. Links depend on the heads of events only; fields are loaded only for events of
    /// the records that change.
    pub(super) fn resolve<T: Tables>(
        &mut self,
        tables: &mut T,
        rule: &dyn EntityRule,
        now: Millis,
    ) -> Result<Resolution, RecordError<T::Error>> {
        let mut resolution = rule.resolve(self.candidate_set(now));
        let touched: BTreeSet<&str> =
            resolution.entities.iter().map(|record| record.record_id.as_str()).collect();
        let mut members: Vec<Seq> = Vec::new();
        for known in &self.known {
            let link = resolution.link(known.seq).unwrap_or(&known.link);
            if link.record_id.as_deref().is_some_and(|id| touched.contains(id)) {
                members.push(known.seq);
            }
        }
        members.retain(|seq| !self.loaded.contains(seq));
        if members.is_empty() {
            return Ok(resolution);
        }
        self.read_fields(tables, &members).map_err(RecordError::Store)?;
        rule.merge(self.candidate_set(now), &mut resolution);
        Ok(resolution)
    }

    /// Loads the fields of events that are not loaded yet.
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
        let mut loaded_fields: BTreeMap<Seq, EventFields> =
            tables.fields(&missing)?.into_iter().collect();
        for event in &mut self.events {
            if let Some(fields) = loaded_fields.remove(&event.seq) {
                event.fields = fields;
            }
        }
        Ok(())
    }

    fn candidate_set(&self, now: Millis) -> CandidateSet<'_> {
        CandidateSet {
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

/// The limit of a range.
fn most(range: &CandidateRange) -> i64 {
    i64::try_from(range.events_max).unwrap_or(i64::MAX)
}

/// The range split at its middle.
fn sides(range: &CandidateRange) -> [(Side, i64, i64); 2] {
    let around = range.around.unwrap_or_default();
    [
        (Side::Before, range.from, around.min(range.to)),
        (Side::After, around.saturating_add(1).max(range.from), range.to),
    ]
}

/// The times between which everything was read, if the limit cut the range; events at the very edge may be
/// missing.
fn cover(
    range: &CandidateRange,
    half: i64,
    before: &[StoredEvent],
    after: &[StoredEvent],
) -> Option<(i64, i64)> {
    let edge = |side: &[StoredEvent]| {
        let is_full = i64::try_from(side.len()).is_ok_and(|rows| rows >= half);
        side.last().filter(|_| is_full).and_then(|found| found.event.event_time)
    };
    let (from, to) = (edge(before), edge(after));
    (from.is_some() || to.is_some()).then(|| {
        let from = from.map_or(range.from, |time| time.saturating_add(1));
        (from, to.map_or(range.to, |time| time.saturating_sub(1)))
    })
}

/// The range of an event. An event without a group or time takes them from others that share its hard
/// key.
fn range_of<T: Tables>(
    tables: &mut T,
    door: &str,
    rule: &dyn EntityRule,
    event: &SourceEvent,
) -> Result<CandidateRange, RecordError<T::Error>> {
    let mut range = rule.policy().range(event);
    let Some(hard_key) = &event.hard_key else { return Ok(range) };
    if !range.group.is_empty() && range.around.is_some() {
        return Ok(range);
    }
    let queries = EventQuery::SameKey { hard_key, group: &range.group, most: most(&range) };
    let others = tables.events(door, &[queries])?;
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

/// Nearest events beyond the range, for the numbers of events that are not linked, to explain why.
fn far<T: Tables>(
    tables: &mut T,
    door: &str,
    policy: &Policy,
    range: &CandidateRange,
    event: &SourceEvent,
    near: &LoadedCandidates,
) -> Result<Vec<DistantEvent>, RecordError<T::Error>> {
    if range.group.is_empty() || range.around.is_none() {
        return Ok(Vec::new());
    }
    let is_open = |known: &KnownLink| known.link.status != LinkStatus::Linked;
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
    let mut queries = Vec::new();
    for number in numbers.into_iter().take(FAR_NUMBERS_MAX) {
        for source in opening() {
            let query = |(side, edge)| FarQuery { side, door, group, edge, number, source };
            queries.extend(sides.map(query));
        }
    }
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tables.far(&queries).map_err(RecordError::Store)?;
    let mut found = Vec::new();
    for (FarQuery { number, .. }, row) in queries.into_iter().zip(rows) {
        if let Some((time, head)) = row {
            let date = SourceEvent::from_text(&head, EventFields::default())?.date;
            found.push(DistantEvent { number, time, date });
        }
    }
    Ok(found)
}

/// Returns the event at a seq with its link, without its fields.
pub(super) fn event_at<T: Tables>(
    tables: &mut T,
    seq: Seq,
) -> Result<Option<StoredEvent>, RecordError<T::Error>> {
    // A seq belongs to one door, so the door can be empty.
    Ok(tables.events("", &[EventQuery::At(seq)])?.into_iter().flatten().next())
}
