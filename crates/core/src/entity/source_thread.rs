//! Source threads: events of one source under one hard key, in ledger order.

use std::collections::BTreeMap;

use super::fingerprint::EntityIdentifiers;
use super::policy::{NumberTrust, Policy, ReplayRule};
use super::source_event::SourceEvent;
use crate::hash::Key;

/// Consistent events of one source under one hard key.
#[derive(Clone, Debug)]
pub(super) struct SourceThread<'e> {
    /// Source name.
    pub(super) source: &'e str,
    /// Rank in the order of trust.
    pub(super) rank: usize,
    /// Whether it opens an entity.
    pub(super) opens: bool,
    /// Whether its group may be inferred from its hard key.
    is_led: bool,
    /// Key shared by its events.
    pub(super) key: Key,
    /// Combined identifiers.
    pub(super) identifiers: EntityIdentifiers,
    /// Origin of the number.
    pub(super) number_from: Option<String>,
    /// Events in ledger order.
    pub(super) events: Vec<&'e SourceEvent>,
}

/// Source threads of a candidate set.
pub(super) struct FoldedThreads<'e> {
    pub(super) threads: Vec<SourceThread<'e>>,
    /// Events that contradict earlier events under their hard key.
    pub(super) collided: Vec<&'e SourceEvent>,
}

impl<'e> SourceThread<'e> {
    fn begin(policy: &Policy, event: &'e SourceEvent) -> Self {
        Self {
            source: &event.source,
            rank: policy.rank(&event.source),
            opens: policy.opens(&event.source),
            is_led: policy.source(&event.source).is_some_and(|source| source.is_led),
            key: event.key,
            identifiers: EntityIdentifiers::of(event),
            number_from: event.number_from.clone(),
            events: vec![event],
        }
    }

    /// Adds a later event. Missing values erase nothing.
    fn absorb(&mut self, policy: &Policy, event: &'e SourceEvent) {
        let later = EntityIdentifiers::of(event);
        let is_overwritten = policy
            .source(self.source)
            .is_some_and(|source| matches!(source.replay, ReplayRule::Overwrite { .. }));
        if is_overwritten {
            self.identifiers.end = later.end.or(self.identifiers.end);
        }
        self.identifiers.fill_from(&later);
        if self.identifiers.group.is_empty() {
            self.identifiers.group = later.group;
        }
        self.events.push(event);
    }

    /// Identifiers as sent by the source, without correction of the number.
    pub(super) fn own(&self) -> EntityIdentifiers {
        EntityIdentifiers {
            number: self.events.first().and_then(|event| event.number),
            ..self.identifiers.clone()
        }
    }

    /// Best known time.
    pub(super) fn time(&self) -> Option<i64> {
        let stated = || self.events.iter().find_map(|event| event.event_time);
        self.identifiers.end.or(self.identifiers.start).or_else(stated)
    }

    /// Alternative reading of an ambiguous local time.
    pub(super) fn late(&self) -> Option<i64> {
        if self.identifiers.end.or(self.identifiers.start).is_some() {
            return None;
        }
        self.events.iter().find_map(|event| event.event_time_late)
    }

    /// Hard key.
    pub(super) fn hard_key(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.hard_key.as_deref())
    }

    /// Entity id named by the source; the newest value wins.
    pub(super) fn claims(&self) -> Option<&'e str> {
        self.events.iter().rev().find_map(|event| event.claims.as_deref())
    }

    /// Events accepted by an operator, highest precedence last.
    pub(super) fn accepted(&self) -> Vec<&'e SourceEvent> {
        let mut accepted: Vec<&SourceEvent> =
            self.events.iter().filter(|event| event.accepted.is_some()).copied().collect();
        accepted.sort_by_key(|event| (event.accepted.as_ref().map(|word| word.at), event.seq));
        accepted
    }

    /// Payload hash.
    pub(super) fn payload(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.payload.as_deref())
    }

    /// Local date of its time.
    pub(super) fn local_date(&self) -> Option<&'e str> {
        self.events.iter().find_map(|event| event.local_date.as_deref())
    }

    /// Whether it has the group and number required for a link.
    pub(super) fn is_linkable(&self) -> bool {
        !self.identifiers.group.is_empty()
            && self.identifiers.number.is_some_and(|number| number != 0)
    }

    /// Whether it can be linked by its hard key only.
    pub(super) fn needs_hard_key(&self) -> bool {
        self.is_led
            && self.identifiers.group.is_empty()
            && self.hard_key().is_some()
            && self.identifiers.number != Some(0)
    }

    /// Tie-breaker: event time, then key. Never the order of arrival.
    pub(super) fn tie(&self) -> (usize, i64, Key) {
        (self.rank, self.time().unwrap_or(i64::MAX), self.key)
    }
}

/// Groups parsed events into source threads.
pub(super) fn fold<'e>(
    policy: &Policy,
    events: impl Iterator<Item = &'e SourceEvent>,
) -> FoldedThreads<'e> {
    let mut by_key: BTreeMap<(&str, Key), Vec<&SourceEvent>> = BTreeMap::new();
    for event in events.filter(|event| event.is_parsed()) {
        by_key.entry((&event.source, event.key)).or_default().push(event);
    }
    let mut threads: Vec<SourceThread<'e>> = Vec::with_capacity(by_key.len());
    let mut collided = Vec::new();
    for mut events in by_key.into_values() {
        events.sort_by_key(|event| event.seq);
        let mut thread: Option<SourceThread<'e>> = None;
        for event in events {
            match &mut thread {
                _ if event.collides => collided.push(event),
                Some(thread)
                    if thread
                        .identifiers
                        .contradicts(&EntityIdentifiers::of(event), policy.tolerance_seconds) =>
                {
                    collided.push(event);
                }
                Some(thread) => thread.absorb(policy, event),
                None => thread = Some(SourceThread::begin(policy, event)),
            }
        }
        threads.extend(thread);
    }
    correct(policy, &mut threads);
    threads.sort_by_key(SourceThread::tie);
    FoldedThreads { threads, collided }
}

/// Corrects the number of threads with an untrusted number from a better source with the same end.
fn correct(policy: &Policy, threads: &mut [SourceThread<'_>]) {
    let trusted: Vec<(&str, Key, EntityIdentifiers)> = threads
        .iter()
        .filter(|thread| thread.is_linkable())
        .map(|thread| (thread.source, thread.key, thread.identifiers.clone()))
        .collect();
    for thread in threads.iter_mut() {
        let Some(NumberTrust::Corrected(by)) =
            policy.source(thread.source).map(|source| source.number)
        else {
            continue;
        };
        let Some(end) = thread.identifiers.end else { continue };
        for (source, word) in by {
            let same = trusted.iter().filter(|(name, _, identifiers)| {
                name == source
                    && identifiers.end == Some(end)
                    && identifiers.group == thread.identifiers.group
            });
            if let Some((_, _, identifiers)) = same.min_by_key(|(_, key, _)| *key) {
                thread.identifiers.number = identifiers.number;
                thread.number_from = Some((*word).to_owned());
                break;
            }
        }
    }
}
