//! Strands: what one source says under one hard key, taken together in ledger order.

use std::collections::BTreeMap;

use super::event::SourceEvent;
use super::fingerprint::Named;
use super::policy::{Number, Policy, Replay};
use crate::hash::Key;

/// The tellings of one source under one hard key that can be one thing.
#[derive(Clone, Debug)]
pub(super) struct Strand<'e> {
    /// The source.
    pub(super) source: &'e str,
    /// Its place in the order of trust.
    pub(super) rank: usize,
    /// Whether it opens a record.
    pub(super) opens: bool,
    /// Whether its hard key may lead to its group.
    is_led: bool,
    /// The key its events share.
    pub(super) key: Key,
    /// What they are named by, all together.
    pub(super) named: Named,
    /// Where the number comes from.
    pub(super) number_from: Option<String>,
    /// The events, in ledger order.
    pub(super) events: Vec<&'e SourceEvent>,
}

/// All the strands of a neighbourhood.
pub(super) struct Folded<'e> {
    pub(super) strands: Vec<Strand<'e>>,
    /// Events that cannot be what their hard key says.
    pub(super) collided: Vec<&'e SourceEvent>,
}

impl<'e> Strand<'e> {
    fn begin(policy: &Policy, event: &'e SourceEvent) -> Self {
        Self {
            source: &event.source,
            rank: policy.rank(&event.source),
            opens: policy.opens(&event.source),
            is_led: policy.source(&event.source).is_some_and(|source| source.is_led),
            key: event.key,
            named: Named::of(event),
            number_from: event.number_from.clone(),
            events: vec![event],
        }
    }

    /// Takes in a later telling. What it leaves out erases nothing.
    fn take_in(&mut self, policy: &Policy, event: &'e SourceEvent) {
        let later = Named::of(event);
        let is_overwritten = policy
            .source(self.source)
            .is_some_and(|source| matches!(source.replay, Replay::Overwrite { .. }));
        if is_overwritten {
            self.named.end = later.end.or(self.named.end);
        }
        self.named.fill_from(&later);
        if self.named.group.is_empty() {
            self.named.group = later.group;
        }
        self.events.push(event);
    }

    /// What the source itself says, without a correction of the number.
    pub(super) fn own(&self) -> Named {
        Named { number: self.events.first().and_then(|event| event.number), ..self.named.clone() }
    }

    /// The best time there is.
    pub(super) fn time(&self) -> Option<i64> {
        let told = || self.events.iter().find_map(|event| event.event_time);
        self.named.end.or(self.named.start).or_else(told)
    }

    /// The other reading of that time, where it is a clock's.
    pub(super) fn late(&self) -> Option<i64> {
        if self.named.end.or(self.named.start).is_some() {
            return None;
        }
        self.events.iter().find_map(|event| event.event_time_late)
    }

    /// The hard key.
    pub(super) fn hard_key(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.hard_key.as_deref())
    }

    /// The record it says it belongs to; the newest word counts.
    pub(super) fn claims(&self) -> Option<&'e str> {
        self.events.iter().rev().find_map(|event| event.claims.as_deref())
    }

    /// The events that a person has accepted, the one that counts most last.
    pub(super) fn accepted(&self) -> Vec<&'e SourceEvent> {
        let mut accepted: Vec<&SourceEvent> =
            self.events.iter().filter(|event| event.accepted.is_some()).copied().collect();
        accepted.sort_by_key(|event| (event.accepted.as_ref().map(|word| word.at), event.seq));
        accepted
    }

    /// The hash of what it carries.
    pub(super) fn payload(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.payload.as_deref())
    }

    /// The day of its time.
    pub(super) fn local_date(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.local_date.as_deref())
    }

    /// Whether it has what a link needs: a group and a number.
    pub(super) fn is_linkable(&self) -> bool {
        !self.named.group.is_empty() && self.named.number.is_some_and(|number| number != 0)
    }

    /// Whether only its hard key can lead somewhere.
    pub(super) fn is_lost(&self) -> bool {
        self.is_led
            && self.named.group.is_empty()
            && self.hard_key().is_some()
            && self.named.number != Some(0)
    }

    /// What breaks ties: the time it tells of, then its key. Never when it came.
    pub(super) fn tie(&self) -> (usize, i64, Key) {
        (self.rank, self.time().unwrap_or(i64::MAX), self.key)
    }
}

/// Puts the events that could be read into strands.
pub(super) fn fold<'e>(
    policy: &Policy,
    events: impl Iterator<Item = &'e SourceEvent>,
) -> Folded<'e> {
    let mut by_key: BTreeMap<(&str, Key), Vec<&SourceEvent>> = BTreeMap::new();
    for event in events.filter(|event| event.is_parsed()) {
        by_key.entry((&event.source, event.key)).or_default().push(event);
    }
    let mut strands: Vec<Strand<'e>> = Vec::with_capacity(by_key.len());
    let mut collided = Vec::new();
    for mut events in by_key.into_values() {
        events.sort_by_key(|event| event.seq);
        let mut strand: Option<Strand<'e>> = None;
        for event in events {
            match &mut strand {
                _ if event.collides => collided.push(event),
                Some(strand)
                    if strand.named.contradicts(&Named::of(event), policy.tolerance_seconds) =>
                {
                    collided.push(event);
                }
                Some(strand) => strand.take_in(policy, event),
                None => strand = Some(Strand::begin(policy, event)),
            }
        }
        strands.extend(strand);
    }
    correct(policy, &mut strands);
    strands.sort_by_key(Strand::tie);
    Folded { strands, collided }
}

/// Gives the strands whose source cannot be trusted with the number that of a better source that
/// tells of the same end.
fn correct(policy: &Policy, strands: &mut [Strand<'_>]) {
    let trusted: Vec<(&str, Key, Named)> = strands
        .iter()
        .filter(|strand| strand.is_linkable())
        .map(|strand| (strand.source, strand.key, strand.named.clone()))
        .collect();
    for strand in strands.iter_mut() {
        let Some(Number::Corrected(by)) = policy.source(strand.source).map(|source| source.number)
        else {
            continue;
        };
        let Some(end) = strand.named.end else { continue };
        for (source, word) in by {
            let same = trusted.iter().filter(|(name, _, named)| {
                name == source && named.end == Some(end) && named.group == strand.named.group
            });
            if let Some((_, _, named)) = same.min_by_key(|(_, key, _)| *key) {
                strand.named.number = named.number;
                strand.number_from = Some((*word).to_owned());
                break;
            }
        }
    }
}
