//! Anchors: what opens a record, and the linker that finds the one an identity belongs to.
//!
//! An identity looks at the nearest anchor only, and an anchor takes the nearest identity and those
//! that say nothing else. Nobody moves on to the second nearest: that would be a guess, and would
//! make a link depend on events far away. So what can change a link lies within a fixed reach.

use std::collections::{BTreeMap, BTreeSet};

use super::fingerprint::{Kind, Likeness, Named};
use super::identity::Identity;
use super::link::{Diagnostics, LinkStatus, Matched, Reason};
use super::neighbourhood::{Far, Known};
use super::policy::Policy;
use super::strand::Strand;
use crate::hash::{Key, sha256_hex};
use crate::receipt::Seq;

/// Hex digits of a record's id.
const ID_DIGITS: usize = 16;

/// What opens a record.
#[derive(Clone, Debug)]
pub(super) struct Anchor {
    /// The id of the record.
    pub(super) record_id: String,
    /// What it is named by.
    pub(super) named: Named,
    /// Its time; its clock may have another reading.
    pub(super) time: Option<i64>,
    pub(super) late: Option<i64>,
    /// Its key, to break ties.
    pub(super) key: Key,
    /// The strand that opens it, then those that carry the same under another name.
    pub(super) strands: Vec<usize>,
}

impl Anchor {
    /// How far a time is away from it.
    fn distance(&self, time: i64) -> Option<u64> {
        let readings = [self.time, self.late].into_iter().flatten();
        readings.map(|reading| reading.abs_diff(time)).min()
    }

    fn tie(&self) -> (i64, Key) {
        (self.time.unwrap_or(i64::MAX), self.key)
    }
}

/// Where an identity belongs.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) status: LinkStatus,
    pub(super) reason: Reason,
    pub(super) anchor: Option<usize>,
    pub(super) matched: Option<Matched>,
    pub(super) diagnostics: Diagnostics,
}

/// Everything that opens a record, by time.
pub(super) fn anchors(policy: &Policy, strands: &[Strand<'_>], known: &[Known]) -> Vec<Anchor> {
    let mut opening: Vec<usize> = (0..strands.len())
        .filter(|place| strands[*place].opens && strands[*place].is_linkable())
        .collect();
    // A record that was opened once stays open under its name, whatever comes later.
    let opened: BTreeSet<Seq> = known
        .iter()
        .filter(|known| known.link.matched == Some(Matched::Opens))
        .map(|known| known.seq)
        .collect();
    let is_open =
        |strand: &Strand<'_>| strand.events.iter().any(|event| opened.contains(&event.seq));
    opening.sort_by_cached_key(|place| (!is_open(&strands[*place]), strands[*place].tie()));
    let mut anchors: Vec<Anchor> = Vec::new();
    let mut by_payload: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for place in opening {
        let strand = &strands[place];
        let alike = strand.payload().map(|payload| by_payload.entry(payload).or_default());
        let is_copy = |anchor: &&usize| is_copy(policy, &anchors[**anchor], strand);
        if let Some(anchor) = alike.as_ref().and_then(|alike| alike.iter().find(is_copy)) {
            anchors[*anchor].strands.push(place);
            continue;
        }
        if let Some(alike) = alike {
            alike.push(anchors.len());
        }
        anchors.push(Anchor {
            record_id: record_id(policy, strand),
            named: strand.named.clone(),
            time: strand.time(),
            late: strand.late(),
            key: strand.key,
            strands: vec![place],
        });
    }
    anchors.sort_by_key(Anchor::tie);
    anchors
}

/// Whether a strand that carries what the anchor carries is the same thing under another name.
fn is_copy(policy: &Policy, anchor: &Anchor, strand: &Strand<'_>) -> bool {
    let is_near = match (anchor.time, strand.time()) {
        (Some(one), Some(two)) => one.abs_diff(two) <= policy.window_seconds.unsigned_abs(),
        _ => false,
    };
    is_near
        && anchor.named.group == strand.named.group
        && anchor.named.number == strand.named.number
}

/// The id of the record that a strand opens: always the same, whoever came first.
pub(super) fn record_id(policy: &Policy, strand: &Strand<'_>) -> String {
    let name = strand.hard_key().map_or_else(|| strand.key.to_string(), str::to_owned);
    let hex = sha256_hex(name.as_bytes());
    format!("{}{}", policy.id_prefix, &hex[..ID_DIGITS])
}

/// Finds the anchor of every identity.
pub(super) fn link(
    policy: &Policy,
    strands: &[Strand<'_>],
    identities: &[Identity],
    anchors: &[Anchor],
    far: &[Far],
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = identities
        .iter()
        .map(|identity| nearest(policy, identity, strands, anchors, far))
        .collect();
    // Whom an anchor does not take goes to no other, so each anchor chooses for itself.
    let mut wanting: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (place, outcome) in outcomes.iter().enumerate() {
        if let Some(anchor) = outcome.anchor {
            wanting.entry(anchor).or_default().push(place);
        }
    }
    for wanting in wanting.into_values().filter(|wanting| wanting.len() > 1) {
        choose(policy, strands, identities, &mut outcomes, wanting);
    }
    outcomes
}

/// The anchor an identity would belong to, if nothing else did: by name first, by time second.
fn nearest(
    policy: &Policy,
    identity: &Identity,
    strands: &[Strand<'_>],
    anchors: &[Anchor],
    far: &[Far],
) -> Outcome {
    let is_candidate = |anchor: &Anchor| {
        anchor.named.group == identity.named.group && anchor.named.number == identity.named.number
    };
    let candidates: Vec<usize> =
        (0..anchors.len()).filter(|place| is_candidate(&anchors[*place])).collect();
    let timed = candidates.iter().filter(|place| anchors[**place].time.is_some()).count();
    let outcome = Outcome {
        status: LinkStatus::Unlinked,
        reason: Reason::NoRows,
        anchor: None,
        matched: None,
        diagnostics: Diagnostics {
            candidates: u32::try_from(candidates.len()).unwrap_or(u32::MAX),
            timed_candidates: u32::try_from(timed).unwrap_or(u32::MAX),
            best_diff_seconds: None,
            window_seconds: policy.window_seconds,
        },
    };
    let leader = identity.leader(strands);
    let distance = |anchor: &Anchor| leader.time().and_then(|time| anchor.distance(time));
    // A name is believed as far as the clocks of one entity can be apart, and no further: what lies
    // beyond that is not looked at when either of them arrives.
    let is_near = |anchor: &Anchor| {
        let apart = policy.window_seconds.saturating_add(policy.span_seconds).unsigned_abs();
        distance(anchor).is_some_and(|distance| distance <= apart)
    };
    let claimed = identity.members.iter().find_map(|member| strands[member.strand].claims());
    let is_claimed = |anchor: &Anchor| {
        claimed == Some(anchor.record_id.as_str())
            && anchor.named.group == identity.named.group
            && is_near(anchor)
    };
    if let Some(place) = anchors.iter().position(is_claimed) {
        let outcome = outcome.at(distance(&anchors[place]));
        return outcome.found(place, Matched::Named, Reason::ResolvedCanonicalIdMatch);
    }
    for place in candidates.iter().filter(|place| is_near(&anchors[**place])) {
        if let Likeness::Same(kind) = anchors[*place].named.likeness(&identity.named) {
            let outcome = outcome.at(distance(&anchors[*place]));
            return outcome.found(*place, Matched::Fingerprint(kind), Reason::Resolved);
        }
    }
    match leader.time() {
        Some(time) => {
            by_time(policy, identity, (leader, time), (anchors, &candidates), far, outcome)
        }
        None => Outcome { reason: Reason::TimeParseFailed, ..outcome },
    }
}

/// The candidate that is nearest in time, if it is near enough; otherwise why there is none.
fn by_time(
    policy: &Policy,
    identity: &Identity,
    (leader, time): (&Strand<'_>, i64),
    (anchors, candidates): (&[Anchor], &[usize]),
    far: &[Far],
    outcome: Outcome,
) -> Outcome {
    let by_distance = |place: &usize| {
        let anchor = &anchors[*place];
        anchor.distance(time).map(|distance| (distance, anchor.tie(), *place))
    };
    match candidates.iter().filter_map(by_distance).min() {
        Some((distance, _, place)) if distance <= policy.window_seconds.unsigned_abs() => {
            let likeness = anchors[place].named.likeness(&identity.named);
            let outcome = outcome.at(Some(distance));
            if matches!(likeness, Likeness::Other(Kind::Start | Kind::End)) {
                let (status, reason) = (LinkStatus::Ambiguous, Reason::FingerprintMismatch);
                return Outcome { status, reason, ..outcome };
            }
            outcome.found(place, Matched::Window, Reason::Resolved)
        }
        Some((distance, ..)) => {
            let date =
                |place: &usize| anchors[*place].named.clock.as_ref().map(|(date, _)| &**date);
            outcome.at(Some(distance)).outside(leader.local_date(), candidates.iter().map(date))
        }
        None if !candidates.is_empty() => Outcome { reason: Reason::TimeParseFailed, ..outcome },
        None => {
            let same = far.iter().filter(|far| Some(far.number) == identity.named.number);
            match same.min_by_key(|far| far.time.abs_diff(time)) {
                Some(far) => outcome
                    .at(Some(far.time.abs_diff(time)))
                    .outside(leader.local_date(), [far.date.as_deref()].into_iter()),
                None => outcome,
            }
        }
    }
}

impl Outcome {
    fn found(mut self, anchor: usize, matched: Matched, reason: Reason) -> Self {
        self.status = LinkStatus::Linked;
        (self.anchor, self.matched, self.reason) = (Some(anchor), Some(matched), reason);
        self
    }

    fn at(mut self, distance: Option<u64>) -> Self {
        self.diagnostics.best_diff_seconds = distance;
        self
    }

    /// There are candidates, all of them too far away, and perhaps all on other days.
    fn outside<'d>(
        mut self,
        day: Option<&str>,
        mut dates: impl Iterator<Item = Option<&'d str>>,
    ) -> Self {
        let is_same_day = day.is_none() || dates.any(|date| date.is_none() || date == day);
        self.reason = if is_same_day { Reason::OutsideWindow } else { Reason::DateExcluded };
        self
    }

    fn lost_to_another(&mut self) {
        self.status = LinkStatus::Ambiguous;
        self.reason = Reason::FingerprintMismatch;
        (self.anchor, self.matched) = (None, None);
    }
}

/// Of the identities that want to belong to one anchor, keeps the nearest and those that agree with
/// it. Among those about as near as each other the most trusted is the nearest.
fn choose(
    policy: &Policy,
    strands: &[Strand<'_>],
    identities: &[Identity],
    outcomes: &mut [Outcome],
    mut wanting: Vec<usize>,
) {
    let is_near = |outcome: &Outcome| outcome.matched == Some(Matched::Window);
    let distance = |place: usize| outcomes[place].diagnostics.best_diff_seconds.unwrap_or_default();
    let best = wanting.iter().map(|place| distance(*place)).min().unwrap_or_default();
    let as_near = best.saturating_add(policy.tolerance_seconds.unsigned_abs());
    wanting.sort_by_key(|place| {
        let leader = identities[*place].leader(strands);
        let is_farther = distance(*place) > as_near;
        // The far ones are ordered by how far they are, the near ones by trust.
        let far = if is_farther { distance(*place) } else { 0 };
        (is_near(&outcomes[*place]), far, leader.rank, distance(*place), leader.tie())
    });
    let mut kept: Vec<usize> = Vec::new();
    for place in wanting {
        let agrees = |other: &usize| agree(strands, &identities[*other], &identities[place]);
        if kept.iter().all(agrees) {
            kept.push(place);
        } else {
            outcomes[place].lost_to_another();
        }
    }
}

/// Whether two identities can be one thing: no level on which they differ, and no source that tells
/// of both.
fn agree(strands: &[Strand<'_>], one: &Identity, two: &Identity) -> bool {
    let tells = |identity: &Identity, source: &str| {
        identity.members.iter().any(|member| strands[member.strand].source == source)
    };
    !matches!(one.named.likeness(&two.named), Likeness::Other(_))
        && !two.members.iter().any(|member| tells(one, strands[member.strand].source))
}
