//! Resolution of a candidate set: links, entities and transitions.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate_set::{CandidateSet, Resolution};
use super::canonical_event::{self, CanonicalEvent};
use super::fingerprint::EntityIdentifiers;
use super::identity;
use super::link::{Confidence, Link, LinkDiagnostics, LinkReason, LinkStatus, MatchBasis};
use super::merge;
use super::policy::Policy;
use super::source_event::SourceEvent;
use super::source_thread::{self, SourceThread};
use super::state::{ProcessingState, Transition};
use crate::receipt::Seq;
use crate::time::Millis;

/// Resolves all events of a candidate set.
pub fn resolve(policy: &Policy, candidate_set: CandidateSet<'_>) -> Resolution {
    let mut links = decide_links(policy, &candidate_set);
    let known: BTreeMap<Seq, &Link> =
        candidate_set.known.iter().map(|known| (known.seq, &known.link)).collect();
    keep_known_links(policy, &candidate_set, &known, &mut links);
    let touched = touched(&known, &links);
    let mut entities = Vec::new();
    for id in &touched {
        let is_member = |event: &&SourceEvent| {
            links.get(&event.seq).is_some_and(|link| link.record_id.as_ref() == Some(id))
        };
        let members: Vec<&SourceEvent> = candidate_set.events.iter().filter(is_member).collect();
        if let Some((entity, applied)) = merge::entity(policy, id, &members) {
            for member in &members {
                if let Some(link) = links.get_mut(&member.seq) {
                    link.is_applied = applied.contains(&member.seq);
                }
            }
            entities.push(entity);
        }
    }
    // An entity is retired only if its opening event is in the set and no longer opens it.
    let is_gone = |id: &&String| {
        let mut before = known.values().filter(|link| link.matched == Some(MatchBasis::Opens));
        before.any(|link| link.record_id.as_ref() == Some(*id))
            && !entities.iter().any(|entity| entity.record_id == **id)
    };
    let retired = touched.iter().filter(is_gone).cloned().collect();
    let mut resolution = Resolution { entities, retired, ..Resolution::default() };
    add_changes(&candidate_set, &known, links, &mut resolution);
    resolution
}

/// Merges the entities of a resolution again after the fields of their events were loaded. Links
/// depend on identifiers alone, so only the entities and the applied events change.
pub(super) fn merge_again(
    policy: &Policy,
    candidate_set: &CandidateSet<'_>,
    resolution: &mut Resolution,
) {
    let mut links: BTreeMap<Seq, Link> =
        candidate_set.known.iter().map(|known| (known.seq, known.link.clone())).collect();
    links.extend(std::mem::take(&mut resolution.links));
    for entity in &mut resolution.entities {
        let is_member = |event: &&SourceEvent| {
            let link = links.get(&event.seq);
            link.is_some_and(|link| link.record_id.as_ref() == Some(&entity.record_id))
        };
        let members: Vec<&SourceEvent> = candidate_set.events.iter().filter(is_member).collect();
        let Some((again, applied)) = merge::entity(policy, &entity.record_id, &members) else {
            continue;
        };
        *entity = again;
        for member in members {
            if let Some(link) = links.get_mut(&member.seq) {
                link.is_applied = applied.contains(&member.seq);
            }
        }
    }
    for known in candidate_set.known {
        if links.get(&known.seq) == Some(&known.link) {
            links.remove(&known.seq);
        }
    }
    resolution.links = links.into_iter().collect();
}

/// Links all events, ignoring earlier links.
fn decide_links(policy: &Policy, candidate_set: &CandidateSet<'_>) -> BTreeMap<Seq, Link> {
    let mut links = BTreeMap::new();
    let folded = source_thread::fold(policy, candidate_set.events.iter());
    for event in &folded.collided {
        let link = unresolved(policy, event, LinkStatus::Ambiguous, LinkReason::HardKeyCollision);
        links.insert(event.seq, link);
    }
    for event in candidate_set.events.iter().filter(|event| !event.is_parsed()) {
        links.insert(event.seq, unparsed(policy, event));
    }
    let threads = folded.threads;
    let canonical_events = canonical_event::canonical_events(policy, &threads, candidate_set.known);
    for canonical in &canonical_events {
        open(policy, &threads, canonical, &mut links);
    }
    let identities = identity::identities(policy, &threads);
    for clash in &identities.clashes {
        for event in &threads[clash.thread].events {
            let mut link = unresolved(policy, event, LinkStatus::Ambiguous, clash.reason);
            apply_number(&mut link, &threads[clash.thread]);
            links.insert(event.seq, link);
        }
    }
    let found = canonical_event::link(
        policy,
        &threads,
        &identities.identities,
        &canonical_events,
        candidate_set.far,
    );
    for (identity, outcome) in identities.identities.iter().zip(&found) {
        for member in &identity.members {
            let thread = &threads[member.thread];
            for event in &thread.events {
                let mut link = unresolved(policy, event, outcome.status, outcome.reason);
                apply_number(&mut link, thread);
                link.diagnostics = outcome.diagnostics.clone();
                if let Some(canonical) = outcome.canonical {
                    let matched = member.joined.or(outcome.matched).unwrap_or(MatchBasis::Window);
                    set_linked(&mut link, event, &canonical_events[canonical], matched);
                }
                links.insert(event.seq, link);
            }
        }
    }
    for thread in threads.iter().filter(|thread| !thread.opens) {
        for event in &thread.events {
            // Neither group nor number, or a hard key that no candidate shares.
            let reason =
                if thread.needs_hard_key() { LinkReason::NoRows } else { LinkReason::InvalidInput };
            let missing = || unresolved(policy, event, LinkStatus::Unlinked, reason);
            links.entry(event.seq).or_insert_with(missing);
        }
    }
    for thread in threads.iter().filter(|thread| thread.opens) {
        for event in &thread.events {
            let missing =
                || unresolved(policy, event, LinkStatus::Unlinked, LinkReason::InvalidInput);
            links.entry(event.seq).or_insert_with(missing);
        }
    }
    links
}

/// Links the events that open an entity, and their copies under other keys.
fn open(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    canonical: &CanonicalEvent,
    links: &mut BTreeMap<Seq, Link>,
) {
    for (place, thread) in canonical.threads.iter().enumerate() {
        let (reason, matched) = match place {
            0 => (LinkReason::Resolved, MatchBasis::Opens),
            _ => (LinkReason::DuplicatePayload, MatchBasis::Payload),
        };
        let thread = &threads[*thread];
        let accepted = thread.accepted().last().map(|event| event.seq);
        for event in &thread.events {
            let is_accepted = place == 0 && accepted == Some(event.seq);
            let reason = if is_accepted { LinkReason::Accepted } else { reason };
            let mut link = unresolved(policy, event, LinkStatus::Linked, reason);
            set_linked(&mut link, event, canonical, matched);
            links.insert(event.seq, link);
        }
    }
}

/// Unresolved link.
fn unresolved(
    policy: &Policy,
    event: &SourceEvent,
    status: LinkStatus,
    reason: LinkReason,
) -> Link {
    Link {
        status,
        state: ProcessingState::LinkFailed,
        reason: reason.word().to_owned(),
        confidence: Confidence::Low,
        matched: None,
        record_id: None,
        fingerprints: EntityIdentifiers::of(event).fingerprints(),
        number: event.number,
        number_from: event.number_from.clone(),
        is_applied: false,
        attempt: 1,
        diagnostics: LinkDiagnostics {
            window_seconds: policy.window_seconds,
            ..LinkDiagnostics::default()
        },
        unsent: None,
    }
}

/// Link of an event that could not be parsed.
fn unparsed(policy: &Policy, event: &SourceEvent) -> Link {
    let link = unresolved(policy, event, LinkStatus::Unlinked, LinkReason::InvalidInput);
    let reason = event.parse.reason.clone().unwrap_or(link.reason);
    Link { state: ProcessingState::ParseFailed, reason, ..link }
}

fn set_linked(
    link: &mut Link,
    event: &SourceEvent,
    canonical: &CanonicalEvent,
    matched: MatchBasis,
) {
    link.status = LinkStatus::Linked;
    link.state = if event.enriches { ProcessingState::Enriched } else { ProcessingState::Linked };
    link.confidence = matched.confidence();
    link.matched = Some(matched);
    link.record_id = Some(canonical.record_id.clone());
    link.is_applied = true;
}

/// Applies the corrected number of the thread and recomputes the fingerprints.
fn apply_number(link: &mut Link, thread: &SourceThread<'_>) {
    if link.number != thread.identifiers.number {
        let identifiers = EntityIdentifiers { number: thread.identifiers.number, ..thread.own() };
        link.fingerprints = identifiers.fingerprints();
    }
    link.number = thread.identifiers.number;
    link.number_from = thread.number_from.clone();
}

/// Keeps known links that this candidate set cannot decide: events beyond the reach or of another
/// group, and events without group or time that are linked elsewhere.
fn keep_known_links(
    policy: &Policy,
    candidate_set: &CandidateSet<'_>,
    known: &BTreeMap<Seq, &Link>,
    links: &mut BTreeMap<Seq, Link>,
) {
    let reach = policy.reach().unsigned_abs();
    let opening = links.values().filter(|link| link.matched == Some(MatchBasis::Opens));
    let open: BTreeSet<String> = opening.filter_map(|link| link.record_id.clone()).collect();
    let own = own_entities(policy, candidate_set, known);
    for event in candidate_set.events {
        let Some(known) = known.get(&event.seq) else { continue };
        let Some(link) = links.get_mut(&event.seq) else { continue };
        let is_beyond = event.event_time.is_some_and(|time| !candidate_set.decides_at(time, reach));
        // Its canonical event was not loaded, and no nearer one has arrived.
        let is_torn = candidate_set.covered.is_some()
            && known.status == LinkStatus::Linked
            && link.status == LinkStatus::Unlinked
            && known.record_id.as_ref().is_some_and(|id| !open.contains(id));
        let is_foreign = !event.group.is_empty() && event.group != candidate_set.group;
        let is_floating = event.group.is_empty() || event.event_time.is_none();
        let is_own = known.record_id.as_ref().is_some_and(|id| match event.event_time {
            Some(_) => own.contains_key(id),
            None => own.get(id) == Some(&true),
        });
        let is_linked_elsewhere = is_floating
            && !is_own
            && known.status == LinkStatus::Linked
            && link.status != LinkStatus::Linked;
        let is_led_elsewhere = event.group.is_empty() && !is_led(policy, candidate_set, event);
        let is_elsewhere = is_linked_elsewhere || is_led_elsewhere;
        if is_beyond || is_foreign || is_torn || is_elsewhere {
            *link = (*known).clone();
        }
        if known.is_same(link) {
            link.attempt = known.attempt;
            link.is_applied = known.is_applied;
            // Keep the diagnostics of the first decision: otherwise every new entity would change
            // every event around it.
            if link.diagnostics.best_diff_seconds == known.diagnostics.best_diff_seconds {
                link.diagnostics = known.diagnostics.clone();
            }
            if link.state == ProcessingState::Enriched
                && ProcessingState::Enriched.leads_to(known.state)
            {
                link.state = known.state;
                link.unsent = known.unsent.clone();
            }
        } else {
            link.attempt = known.attempt.saturating_add(1);
        }
    }
}

/// Entities opened so far by events of this group, and whether links at their time are decided
/// here. An event that no longer belongs to one of them leaves it; events linked to other entities
/// are decided in the candidate set of that entity.
fn own_entities(
    policy: &Policy,
    candidate_set: &CandidateSet<'_>,
    known: &BTreeMap<Seq, &Link>,
) -> BTreeMap<String, bool> {
    let reach = policy.reach().unsigned_abs();
    let opened = |event: &SourceEvent| {
        let link = known.get(&event.seq)?;
        let is_own = link.matched == Some(MatchBasis::Opens) && event.group == candidate_set.group;
        let time = event.event_time;
        let is_decided = time.is_some_and(|time| candidate_set.decides_at(time, reach));
        Some((link.record_id.clone().filter(|_| is_own)?, is_decided))
    };
    candidate_set.events.iter().filter_map(opened).collect()
}

/// Whether an event of this group shares the hard key of an event without a group.
fn is_led(policy: &Policy, candidate_set: &CandidateSet<'_>, event: &SourceEvent) -> bool {
    candidate_set.events.iter().any(|other| {
        other.group == candidate_set.group
            && !other.group.is_empty()
            && other.hard_key.is_some()
            && other.hard_key == event.hard_key
            && policy.family(&other.source) == policy.family(&event.source)
    })
}

/// Ids of entities that gained or lost an event.
fn touched(known: &BTreeMap<Seq, &Link>, links: &BTreeMap<Seq, Link>) -> BTreeSet<String> {
    let mut touched = BTreeSet::new();
    for (seq, link) in links {
        let before = known.get(seq);
        if !before.is_some_and(|before| before.is_same(link) && before.number == link.number) {
            touched.extend(link.record_id.clone());
            touched.extend(before.and_then(|before| before.record_id.clone()));
        }
    }
    touched
}

/// Adds changed links and their transitions to the resolution.
fn add_changes(
    candidate_set: &CandidateSet<'_>,
    known: &BTreeMap<Seq, &Link>,
    mut links: BTreeMap<Seq, Link>,
    resolution: &mut Resolution,
) {
    let mut events: Vec<&SourceEvent> = candidate_set.events.iter().collect();
    events.sort_by_key(|event| event.seq);
    for event in events {
        let Some(link) = links.remove(&event.seq) else { continue };
        let before = known.get(&event.seq);
        if before.is_some_and(|before| **before == link) {
            continue;
        }
        let begin = match before {
            None => Some(ProcessingState::Seen),
            Some(before) if !before.is_same(&link) => Some(ProcessingState::Parsed),
            Some(_) => None,
        };
        if let Some(begin) = begin {
            let path = link.state.path_from(begin);
            resolution.transitions.extend(
                path.windows(2).map(|step| transition_of(candidate_set.now, event, &link, step)),
            );
        }
        resolution.links.push((event.seq, link));
    }
}

fn transition_of(
    now: Millis,
    event: &SourceEvent,
    link: &Link,
    step: &[ProcessingState],
) -> Transition {
    let is_last = step[1] == link.state;
    Transition {
        seq: event.seq,
        attempt: link.attempt,
        from: step[0],
        to: step[1],
        at: now,
        source: event.source.clone(),
        fingerprint: link.fingerprint().cloned(),
        link_status: if step[1] == ProcessingState::Parsed {
            LinkStatus::Unlinked
        } else {
            link.status
        },
        confidence: link.confidence,
        reason: Some(link.reason.clone()).filter(|_| is_last || step[1] == ProcessingState::Linked),
        record_id: link.record_id.clone().filter(|_| step[1] != ProcessingState::Parsed),
    }
}

impl Link {
    /// Whether both links agree on status, entity and acceptance.
    fn is_same(&self, other: &Self) -> bool {
        self.status == other.status
            && self.record_id == other.record_id
            && self.is_accepted() == other.is_accepted()
    }
}
