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
pub(super) struct Near {
    pub(super) group: String,
    around: Option<i64>,
    pub(super) events: Vec<SourceEvent>,
    pub(super) known: Vec<Known>,
    far: Vec<Far>,
    /// The events whose fields are here.
    loaded: BTreeSet<Seq>,
}

impl Near {
    /// Reads what is around `event`, which may be in the ledger already.
    pub(super) fn load<T: Tables>(
        tables: &mut T,
        door: &str,
        rule: &dyn RecordRule,
        event: &SourceEvent,
    ) -> Result<Self, RecordError<T::Error>> {
        let range = led(tables, door, rule, event)?;
        let most = most(&range);
        let (from, to, around) = (range.from, range.to, range.around.unwrap_or_default());
        let group = &*range.group;
        let mut asked = vec![Asked::At(event.seq)];
        if !group.is_empty() {
            asked.push(Asked::Near { group, from, to, around, most });
            asked.push(Asked::Timeless { group, most });
            asked.push(Asked::Groupless { from, to, around, most });
        }
        if let Some(hard_key) = &event.hard_key {
            asked.push(Asked::SameKey { hard_key, group, most });
        }
        let found = tables.events(door, &asked)?;
        let found: BTreeMap<Seq, Decided> =
            found.into_iter().map(|decided| (decided.0.seq, decided)).collect();
        let mut near = Self {
            group: range.group.clone(),
            around: range.around,
            events: Vec::with_capacity(found.len() + 1),
            known: Vec::with_capacity(found.len()),
            far: Vec::new(),
            loaded: BTreeSet::new(),
        };
        for (seq, (event, link)) in found {
            near.events.push(event);
            near.known.push(Known { seq, link });
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
    let sources: Vec<&'static str> =
        policy.sources.iter().filter(|source| source.opens).map(|source| source.name).collect();
    let mut found = Vec::new();
    for number in numbers.into_iter().take(FAR_NUMBERS_MAX) {
        for (side, edge) in [(Side::Before, range.from), (Side::After, range.to)] {
            let group = &range.group;
            let asked = FarAsked { side, door, group, edge, number, sources: &sources };
            if let Some((time, head)) = tables.far(&asked).map_err(RecordError::Store)? {
                let date = SourceEvent::from_text(&head, Fields::default())?.date;
                found.push(Far { number, time, date });
            }
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
    Ok(tables.events("", &[Asked::At(seq)])?.into_iter().next())
}
