//! Canonical events, which open entities, and the linker that assigns identities to them.
//!
//! An identity is compared with the nearest canonical event only, and a canonical event takes the
//! nearest identity and those that agree with it. There is no fallback to the second nearest: that
//! would be a guess, and would make a link depend on events far away. So the events that can change
//! a link lie within a fixed reach.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate_set::{DistantEvent, KnownLink};
use super::fingerprint::{EntityIdentifiers, FingerprintKind, FingerprintMatch};
use super::identity::Identity;
use super::link::{LinkDiagnostics, LinkReason, LinkStatus, MatchBasis};
use super::policy::Policy;
use super::source_thread::SourceThread;
use crate::hash::{Key, sha256_hex};
use crate::receipt::Seq;

/// Number of hex digits in an entity id.
const ID_DIGITS: usize = 16;

/// Event that opens an entity.
#[derive(Clone, Debug)]
pub(super) struct CanonicalEvent {
    /// Id of the entity.
    pub(super) record_id: String,
    /// Identifiers.
    pub(super) identifiers: EntityIdentifiers,
    /// Time, and the alternative reading of an ambiguous local time.
    pub(super) time: Option<i64>,
    pub(super) late: Option<i64>,
    /// Key, for tie-breaking.
    pub(super) key: Key,
    /// Index of the opening thread, then of threads with the same payload under another key.
    pub(super) threads: Vec<usize>,
}

impl CanonicalEvent {
    /// Distance to `time` in seconds.
    fn distance(&self, time: i64) -> Option<u64> {
        let readings = [self.time, self.late].into_iter().flatten();
        readings.map(|reading| reading.abs_diff(time)).min()
    }

    fn tie(&self) -> (i64, Key) {
        (self.time.unwrap_or(i64::MAX), self.key)
    }
}

/// Link decision for an identity.
#[derive(Clone, Debug)]
pub(super) struct LinkDecision {
    pub(super) status: LinkStatus,
    pub(super) reason: LinkReason,
    pub(super) canonical: Option<usize>,
    pub(super) matched: Option<MatchBasis>,
    pub(super) diagnostics: LinkDiagnostics,
}

/// Collects canonical events, ordered by time.
pub(super) fn canonical_events(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    known: &[KnownLink],
) -> Vec<CanonicalEvent> {
    let mut opening: Vec<usize> = (0..threads.len())
        .filter(|place| threads[*place].opens && threads[*place].is_linkable())
        .collect();
    // An entity stays open under the id it was first opened with.
    let opened: BTreeSet<Seq> = known
        .iter()
        .filter(|known| known.link.matched == Some(MatchBasis::Opens))
        .map(|known| known.seq)
        .collect();
    let is_open =
        |thread: &SourceThread<'_>| thread.events.iter().any(|event| opened.contains(&event.seq));
    opening.sort_by_cached_key(|place| (!is_open(&threads[*place]), threads[*place].tie()));
    let mut canonical_events: Vec<CanonicalEvent> = Vec::new();
    let mut by_payload: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in opening {
        let thread = &threads[place];
        let alike = thread.payload().map(|payload| by_payload.entry(payload).or_default());
        let is_copy = |canonical: &&usize| is_copy(policy, &canonical_events[**canonical], thread);
        if let Some(canonical) = alike.as_ref().and_then(|alike| alike.iter().find(is_copy)) {
            canonical_events[*canonical].threads.push(place);
            continue;
        }
        if let Some(alike) = alike {
            alike.push(canonical_events.len());
        }
        canonical_events.push(CanonicalEvent {
            record_id: record_id(policy, thread),
            identifiers: thread.identifiers.clone(),
            time: thread.time(),
            late: thread.late(),
            key: thread.key,
            threads: vec![place],
        });
    }
    canonical_events.sort_by_key(CanonicalEvent::tie);
    canonical_events
}

/// Whether a thread with the same payload is the same entity under another key.
fn is_copy(policy: &Policy, canonical: &CanonicalEvent, thread: &SourceThread<'_>) -> bool {
    let is_near = match (canonical.time, thread.time()) {
        (Some(one), Some(two)) => one.abs_diff(two) <= policy.window_seconds.unsigned_abs(),
        _ => false,
    };
    is_near
        && canonical.identifiers.group == thread.identifiers.group
        && canonical.identifiers.number == thread.identifiers.number
}

/// Id of the entity that a thread opens, independent of the order of arrival.
pub(super) fn record_id(policy: &Policy, thread: &SourceThread<'_>) -> String {
    let name = thread.hard_key().map_or_else(|| thread.key.to_string(), str::to_owned);
    let hex = sha256_hex(name.as_bytes());
    format!("{}{}", policy.id_prefix, &hex[..ID_DIGITS])
}

/// Links every identity to a canonical event.
pub(super) fn link(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    identities: &[Identity],
    canonical_events: &[CanonicalEvent],
    far: &[DistantEvent],
) -> Vec<LinkDecision> {
    let mut outcomes: Vec<LinkDecision> = identities
        .iter()
        .map(|identity| nearest(policy, identity, threads, canonical_events, far))
        .collect();
    // An identity that loses goes to no other canonical event, so conflicts are resolved per
    // canonical event.
    let mut contenders: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, outcome) in outcomes.iter().enumerate() {
        if let Some(canonical) = outcome.canonical {
            contenders.entry(canonical).or_default().push(place);
        }
    }
    for contenders in contenders.into_values().filter(|contenders| contenders.len() > 1) {
        choose(policy, threads, identities, &mut outcomes, contenders);
    }
    outcomes
}

/// Nearest canonical event for an identity, ignoring other identities: by identifiers first, by
/// time second.
fn nearest(
    policy: &Policy,
    identity: &Identity,
    threads: &[SourceThread<'_>],
    canonical_events: &[CanonicalEvent],
    far: &[DistantEvent],
) -> LinkDecision {
    let is_candidate = |canonical: &CanonicalEvent| {
        canonical.identifiers.group == identity.identifiers.group
            && canonical.identifiers.number == identity.identifiers.number
    };
    let candidates: Vec<usize> = (0..canonical_events.len())
        .filter(|place| is_candidate(&canonical_events[*place]))
        .collect();
    let timed = candidates.iter().filter(|place| canonical_events[**place].time.is_some()).count();
    let outcome = LinkDecision {
        status: LinkStatus::Unlinked,
        reason: LinkReason::NoRows,
        canonical: None,
        matched: None,
        diagnostics: LinkDiagnostics {
            candidates: u32::try_from(candidates.len()).unwrap_or(u32::MAX),
            timed_candidates: u32::try_from(timed).unwrap_or(u32::MAX),
            best_diff_seconds: None,
            window_seconds: policy.window_seconds,
        },
    };
    let leader = identity.leader(threads);
    let distance =
        |canonical: &CanonicalEvent| leader.time().and_then(|time| canonical.distance(time));
    // Identifiers are trusted only within the maximum clock difference of one entity: events beyond
    // it are not loaded when either of them arrives.
    let is_near = |canonical: &CanonicalEvent| {
        let apart = policy.window_seconds.saturating_add(policy.span_seconds).unsigned_abs();
        distance(canonical).is_some_and(|distance| distance <= apart)
    };
    let claimed = identity.members.iter().find_map(|member| threads[member.thread].claims());
    let is_claimed = |canonical: &CanonicalEvent| {
        claimed == Some(canonical.record_id.as_str())
            && canonical.identifiers.group == identity.identifiers.group
            && is_near(canonical)
    };
    if let Some(place) = canonical_events.iter().position(is_claimed) {
        let outcome = outcome.at(distance(&canonical_events[place]));
        return outcome.linked_to(place, MatchBasis::Named, LinkReason::ResolvedCanonicalIdMatch);
    }
    for place in candidates.iter().filter(|place| is_near(&canonical_events[**place])) {
        if let FingerprintMatch::Same(kind) =
            canonical_events[*place].identifiers.compare(&identity.identifiers)
        {
            let outcome = outcome.at(distance(&canonical_events[*place]));
            return outcome.linked_to(*place, MatchBasis::Fingerprint(kind), LinkReason::Resolved);
        }
    }
    match leader.time() {
        Some(time) => {
            by_time(policy, identity, (leader, time), (canonical_events, &candidates), far, outcome)
        }
        None => LinkDecision { reason: LinkReason::TimeParseFailed, ..outcome },
    }
}

/// Nearest candidate in time within the window; otherwise the reason why there is none.
fn by_time(
    policy: &Policy,
    identity: &Identity,
    (leader, time): (&SourceThread<'_>, i64),
    (canonical_events, candidates): (&[CanonicalEvent], &[usize]),
    far: &[DistantEvent],
    outcome: LinkDecision,
) -> LinkDecision {
    let by_distance = |place: &usize| {
        let canonical = &canonical_events[*place];
        canonical.distance(time).map(|distance| (distance, canonical.tie(), *place))
    };
    match candidates.iter().filter_map(by_distance).min() {
        Some((distance, _, place)) if distance <= policy.window_seconds.unsigned_abs() => {
            let comparison = canonical_events[place].identifiers.compare(&identity.identifiers);
            let outcome = outcome.at(Some(distance));
            if matches!(
                comparison,
                FingerprintMatch::Other(FingerprintKind::Start | FingerprintKind::End)
            ) {
                let (status, reason) = (LinkStatus::Ambiguous, LinkReason::FingerprintMismatch);
                return LinkDecision { status, reason, ..outcome };
            }
            outcome.linked_to(place, MatchBasis::Window, LinkReason::Resolved)
        }
        Some((distance, ..)) => {
            let date = |place: &usize| {
                canonical_events[*place].identifiers.clock.as_ref().map(|(date, _)| &**date)
            };
            outcome.at(Some(distance)).outside(leader.local_date(), candidates.iter().map(date))
        }
        None if !candidates.is_empty() => {
            LinkDecision { reason: LinkReason::TimeParseFailed, ..outcome }
        }
        None => {
            let same = far.iter().filter(|far| Some(far.number) == identity.identifiers.number);
            match same.min_by_key(|far| far.time.abs_diff(time)) {
                Some(far) => outcome
                    .at(Some(far.time.abs_diff(time)))
                    .outside(leader.local_date(), [far.date.as_deref()].into_iter()),
                None => outcome,
            }
        }
    }
}

impl LinkDecision {
    fn linked_to(mut self, canonical: usize, matched: MatchBasis, reason: LinkReason) -> Self {
        self.status = LinkStatus::Linked;
        (self.canonical, self.matched, self.reason) = (Some(canonical), Some(matched), reason);
        self
    }

    fn at(mut self, distance: Option<u64>) -> Self {
        self.diagnostics.best_diff_seconds = distance;
        self
    }

    /// All candidates are too far away, possibly all on other days.
    fn outside<'d>(
        mut self,
        day: Option<&str>,
        mut dates: impl Iterator<Item = Option<&'d str>>,
    ) -> Self {
        let is_same_day = day.is_none() || dates.any(|date| date.is_none() || date == day);
        self.reason =
            if is_same_day { LinkReason::OutsideWindow } else { LinkReason::DateExcluded };
        self
    }

    fn lost_to_another(&mut self) {
        self.status = LinkStatus::Ambiguous;
        self.reason = LinkReason::FingerprintMismatch;
        (self.canonical, self.matched) = (None, None);
    }
}

/// Of the identities that match one canonical event, keeps the nearest and those that agree with
/// it. Within the tolerance the most trusted counts as the nearest.
fn choose(
    policy: &Policy,
    threads: &[SourceThread<'_>],
    identities: &[Identity],
    outcomes: &mut [LinkDecision],
    mut contenders: Vec<usize>,
) {
    let is_near = |outcome: &LinkDecision| outcome.matched == Some(MatchBasis::Window);
    let distance = |place: usize| outcomes[place].diagnostics.best_diff_seconds.unwrap_or_default();
    let best = contenders.iter().map(|place| distance(*place)).min().unwrap_or_default();
    let as_near = best.saturating_add(policy.tolerance_seconds.unsigned_abs());
    contenders.sort_by_key(|place| {
        let leader = identities[*place].leader(threads);
        let is_farther = distance(*place) > as_near;
        // Distant ones are ordered by distance, near ones by trust.
        let far = if is_farther { distance(*place) } else { 0 };
        (is_near(&outcomes[*place]), far, leader.rank, distance(*place), leader.tie())
    });
    let mut kept: Vec<usize> = Vec::new();
    for place in contenders {
        let agrees = |other: &usize| agree(threads, &identities[*other], &identities[place]);
        if kept.iter().all(agrees) {
            kept.push(place);
        } else {
            outcomes[place].lost_to_another();
        }
    }
}

/// Whether two identities can be one entity: they differ on no level, and no source contributed to
/// both.
fn agree(threads: &[SourceThread<'_>], one: &Identity, two: &Identity) -> bool {
    let has_source = |identity: &Identity, source: &str| {
        identity.members.iter().any(|member| threads[member.thread].source == source)
    };
    !matches!(one.identifiers.compare(&two.identifiers), FingerprintMatch::Other(_))
        && !two.members.iter().any(|member| has_source(one, threads[member.thread].source))
}
