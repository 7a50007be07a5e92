//! The whole rule, top to bottom: a neighbourhood of events in, links, records and steps out.

use std::collections::{BTreeMap, BTreeSet};

use super::anchor::{self, Anchor};
use super::event::SourceEvent;
use super::fingerprint::Named;
use super::identity;
use super::link::{Confidence, Diagnostics, Link, LinkStatus, Matched, Reason};
use super::merge;
use super::neighbourhood::{Neighbourhood, Resolution};
use super::policy::Policy;
use super::state::{State, Transition};
use super::strand::{self, Strand};
use crate::receipt::Seq;
use crate::time::Millis;

/// What becomes of every event of a neighbourhood.
pub fn resolve(policy: &Policy, neighbourhood: Neighbourhood<'_>) -> Resolution {
    let mut links = decided(policy, &neighbourhood);
    let known: BTreeMap<Seq, &Link> =
        neighbourhood.known.iter().map(|known| (known.seq, &known.link)).collect();
    stand(policy, &neighbourhood, &known, &mut links);
    let touched = touched(&known, &links);
    let mut records = Vec::new();
    for id in &touched {
        let is_member = |event: &&SourceEvent| {
            links.get(&event.seq).is_some_and(|link| link.record_id.as_ref() == Some(id))
        };
        let members: Vec<&SourceEvent> = neighbourhood.events.iter().filter(is_member).collect();
        if let Some((record, applied)) = merge::record(policy, id, &members) {
            for member in &members {
                if let Some(link) = links.get_mut(&member.seq) {
                    link.is_applied = applied.contains(&member.seq);
                }
            }
            records.push(record);
        }
    }
    // A record goes only when what opened it is here and opens it no more.
    let is_gone = |id: &&String| {
        let mut before = known.values().filter(|link| link.matched == Some(Matched::Opens));
        before.any(|link| link.record_id.as_ref() == Some(*id))
            && !records.iter().any(|record| record.record_id == **id)
    };
    let retired = touched.iter().filter(is_gone).cloned().collect();
    let mut resolution = Resolution { records, retired, ..Resolution::default() };
    tell(&neighbourhood, &known, links, &mut resolution);
    resolution
}

/// The records of a resolution once more, when what their events tell was not there before. Links
/// depend on what names events alone, so only the records change, and which events count in them.
pub(super) fn merge_again(
    policy: &Policy,
    neighbourhood: &Neighbourhood<'_>,
    resolution: &mut Resolution,
) {
    let mut links: BTreeMap<Seq, Link> =
        neighbourhood.known.iter().map(|known| (known.seq, known.link.clone())).collect();
    links.extend(std::mem::take(&mut resolution.links));
    for record in &mut resolution.records {
        let is_member = |event: &&SourceEvent| {
            let link = links.get(&event.seq);
            link.is_some_and(|link| link.record_id.as_ref() == Some(&record.record_id))
        };
        let members: Vec<&SourceEvent> = neighbourhood.events.iter().filter(is_member).collect();
        let Some((again, applied)) = merge::record(policy, &record.record_id, &members) else {
            continue;
        };
        *record = again;
        for member in members {
            if let Some(link) = links.get_mut(&member.seq) {
                link.is_applied = applied.contains(&member.seq);
            }
        }
    }
    for known in neighbourhood.known {
        if links.get(&known.seq) == Some(&known.link) {
            links.remove(&known.seq);
        }
    }
    resolution.links = links.into_iter().collect();
}

/// A link for every event, as if nothing were known.
fn decided(policy: &Policy, neighbourhood: &Neighbourhood<'_>) -> BTreeMap<Seq, Link> {
    let mut links = BTreeMap::new();
    let folded = strand::fold(policy, neighbourhood.events.iter());
    for event in &folded.collided {
        let link = failed(policy, event, LinkStatus::Ambiguous, Reason::HardKeyCollision);
        links.insert(event.seq, link);
    }
    for event in neighbourhood.events.iter().filter(|event| !event.is_parsed()) {
        links.insert(event.seq, unread(policy, event));
    }
    let strands = folded.strands;
    let anchors = anchor::anchors(policy, &strands, neighbourhood.known);
    for anchor in &anchors {
        open(policy, &strands, anchor, &mut links);
    }
    let identities = identity::identities(policy, &strands);
    for clash in &identities.clashes {
        for event in &strands[clash.strand].events {
            let mut link = failed(policy, event, LinkStatus::Ambiguous, clash.reason);
            numbered(&mut link, &strands[clash.strand]);
            links.insert(event.seq, link);
        }
    }
    let found = anchor::link(policy, &strands, &identities.identities, &anchors, neighbourhood.far);
    for (identity, outcome) in identities.identities.iter().zip(&found) {
        for member in &identity.members {
            let strand = &strands[member.strand];
            for event in &strand.events {
                let mut link = failed(policy, event, outcome.status, outcome.reason);
                numbered(&mut link, strand);
                link.diagnostics = outcome.diagnostics.clone();
                if let Some(anchor) = outcome.anchor {
                    let matched = member.joined.or(outcome.matched).unwrap_or(Matched::Window);
                    linked(&mut link, event, &anchors[anchor], matched);
                }
                links.insert(event.seq, link);
            }
        }
    }
    for strand in strands.iter().filter(|strand| !strand.opens) {
        for event in &strand.events {
            // Neither a group nor a number to go by, or a hard key that nobody here has.
            let reason = if strand.is_lost() { Reason::NoRows } else { Reason::InvalidInput };
            let missing = || failed(policy, event, LinkStatus::Unlinked, reason);
            links.entry(event.seq).or_insert_with(missing);
        }
    }
    for strand in strands.iter().filter(|strand| strand.opens) {
        for event in &strand.events {
            let missing = || failed(policy, event, LinkStatus::Unlinked, Reason::InvalidInput);
            links.entry(event.seq).or_insert_with(missing);
        }
    }
    links
}

/// The links of the events that open a record, and of their copies under other names.
fn open(policy: &Policy, strands: &[Strand<'_>], anchor: &Anchor, links: &mut BTreeMap<Seq, Link>) {
    for (place, strand) in anchor.strands.iter().enumerate() {
        let (reason, matched) = match place {
            0 => (Reason::Resolved, Matched::Opens),
            _ => (Reason::DuplicatePayload, Matched::Payload),
        };
        let strand = &strands[*strand];
        let accepted = strand.accepted().last().map(|event| event.seq);
        for event in &strand.events {
            let is_accepted = place == 0 && accepted == Some(event.seq);
            let reason = if is_accepted { Reason::Accepted } else { reason };
            let mut link = failed(policy, event, LinkStatus::Linked, reason);
            linked(&mut link, event, anchor, matched);
            links.insert(event.seq, link);
        }
    }
}

/// A link that leads nowhere yet.
fn failed(policy: &Policy, event: &SourceEvent, status: LinkStatus, reason: Reason) -> Link {
    Link {
        status,
        state: State::LinkFailed,
        reason: reason.word().to_owned(),
        confidence: Confidence::Low,
        matched: None,
        record_id: None,
        fingerprints: Named::of(event).fingerprints(),
        number: event.number,
        number_from: event.number_from.clone(),
        is_applied: false,
        attempt: 1,
        diagnostics: Diagnostics {
            window_seconds: policy.window_seconds,
            ..Diagnostics::default()
        },
        unsent: None,
    }
}

/// What could not be read has no link to look for.
fn unread(policy: &Policy, event: &SourceEvent) -> Link {
    let link = failed(policy, event, LinkStatus::Unlinked, Reason::InvalidInput);
    let reason = event.parse.reason.clone().unwrap_or(link.reason);
    Link { state: State::ParseFailed, reason, ..link }
}

fn linked(link: &mut Link, event: &SourceEvent, anchor: &Anchor, matched: Matched) {
    link.status = LinkStatus::Linked;
    link.state = if event.enriches { State::Enriched } else { State::Linked };
    link.confidence = matched.confidence();
    link.matched = Some(matched);
    link.record_id = Some(anchor.record_id.clone());
    link.is_applied = true;
}

/// The number and the fingerprints of the strand, where its source was corrected.
fn numbered(link: &mut Link, strand: &Strand<'_>) {
    if link.number != strand.named.number {
        let named = Named { number: strand.named.number, ..strand.own() };
        link.fingerprints = named.fingerprints();
    }
    link.number = strand.named.number;
    link.number_from = strand.number_from.clone();
}

/// Leaves alone what this neighbourhood cannot decide about: what lies beyond the reach or belongs
/// to another group, and what belongs nowhere in particular and is linked elsewhere.
fn stand(
    policy: &Policy,
    neighbourhood: &Neighbourhood<'_>,
    known: &BTreeMap<Seq, &Link>,
    links: &mut BTreeMap<Seq, Link>,
) {
    let reach = policy.reach().unsigned_abs();
    let opening = links.values().filter(|link| link.matched == Some(Matched::Opens));
    let open: BTreeSet<String> = opening.filter_map(|link| link.record_id.clone()).collect();
    let own = own_records(policy, neighbourhood, known);
    for event in neighbourhood.events {
        let Some(known) = known.get(&event.seq) else { continue };
        let Some(link) = links.get_mut(&event.seq) else { continue };
        let is_beyond = event.event_time.is_some_and(|time| !neighbourhood.decides_at(time, reach));
        // What it hangs on was not read, and nothing nearer has come.
        let is_torn = neighbourhood.covered.is_some()
            && known.status == LinkStatus::Linked
            && link.status == LinkStatus::Unlinked
            && known.record_id.as_ref().is_some_and(|id| !open.contains(id));
        let is_foreign = !event.group.is_empty() && event.group != neighbourhood.group;
        let is_floating = event.group.is_empty() || event.event_time.is_none();
        let is_own = known.record_id.as_ref().is_some_and(|id| match event.event_time {
            Some(_) => own.contains_key(id),
            None => own.get(id) == Some(&true),
        });
        let is_linked_elsewhere = is_floating
            && !is_own
            && known.status == LinkStatus::Linked
            && link.status != LinkStatus::Linked;
        let is_led_elsewhere = event.group.is_empty() && !is_led(policy, neighbourhood, event);
        let is_elsewhere = is_linked_elsewhere || is_led_elsewhere;
        if is_beyond || is_foreign || is_torn || is_elsewhere {
            *link = (*known).clone();
        }
        if known.is_same(link) {
            link.attempt = known.attempt;
            link.is_applied = known.is_applied;
            // How many others there were is told as it was when it was tried: otherwise every new
            // record would change every event around it.
            if link.diagnostics.best_diff_seconds == known.diagnostics.best_diff_seconds {
                link.diagnostics = known.diagnostics.clone();
            }
            if link.state == State::Enriched && State::Enriched.leads_to(known.state) {
                link.state = known.state;
                link.unsent = known.unsent.clone();
            }
        } else {
            link.attempt = known.attempt.saturating_add(1);
        }
    }
}

/// The records that events of this group have opened here so far, and whether they lie where links
/// are decided. What hangs on one of them and no longer belongs to it leaves it; what hangs on
/// another is a matter of the group or of the time that other lies in.
fn own_records(
    policy: &Policy,
    neighbourhood: &Neighbourhood<'_>,
    known: &BTreeMap<Seq, &Link>,
) -> BTreeMap<String, bool> {
    let reach = policy.reach().unsigned_abs();
    let opened = |event: &SourceEvent| {
        let link = known.get(&event.seq)?;
        let is_own = link.matched == Some(Matched::Opens) && event.group == neighbourhood.group;
        let time = event.event_time;
        let is_decided = time.is_some_and(|time| neighbourhood.decides_at(time, reach));
        Some((link.record_id.clone().filter(|_| is_own)?, is_decided))
    };
    neighbourhood.events.iter().filter_map(opened).collect()
}

/// Whether an event of this group has the hard key of one that names no group.
fn is_led(policy: &Policy, neighbourhood: &Neighbourhood<'_>, event: &SourceEvent) -> bool {
    neighbourhood.events.iter().any(|other| {
        other.group == neighbourhood.group
            && !other.group.is_empty()
            && other.hard_key.is_some()
            && other.hard_key == event.hard_key
            && policy.family(&other.source) == policy.family(&event.source)
    })
}

/// The records with an event that is new to them, or that has left them.
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

/// Writes down what differs from what was known, and the steps that led there.
fn tell(
    neighbourhood: &Neighbourhood<'_>,
    known: &BTreeMap<Seq, &Link>,
    mut links: BTreeMap<Seq, Link>,
    resolution: &mut Resolution,
) {
    let mut events: Vec<&SourceEvent> = neighbourhood.events.iter().collect();
    events.sort_by_key(|event| event.seq);
    for event in events {
        let Some(link) = links.remove(&event.seq) else { continue };
        let before = known.get(&event.seq);
        if before.is_some_and(|before| **before == link) {
            continue;
        }
        let begin = match before {
            None => Some(State::Seen),
            Some(before) if !before.is_same(&link) => Some(State::Parsed),
            Some(_) => None,
        };
        if let Some(begin) = begin {
            let path = link.state.path_from(begin);
            resolution
                .transitions
                .extend(path.windows(2).map(|step| step_of(neighbourhood.now, event, &link, step)));
        }
        resolution.links.push((event.seq, link));
    }
}

fn step_of(now: Millis, event: &SourceEvent, link: &Link, step: &[State]) -> Transition {
    let is_last = step[1] == link.state;
    Transition {
        seq: event.seq,
        attempt: link.attempt,
        from: step[0],
        to: step[1],
        at: now,
        source: event.source.clone(),
        fingerprint: link.fingerprint().cloned(),
        link_status: if step[1] == State::Parsed { LinkStatus::Unlinked } else { link.status },
        confidence: link.confidence,
        reason: Some(link.reason.clone()).filter(|_| is_last || step[1] == State::Linked),
        record_id: link.record_id.clone().filter(|_| step[1] != State::Parsed),
    }
}

impl Link {
    /// Whether it says the same about where the event belongs, and whether it was accepted there.
    fn is_same(&self, other: &Self) -> bool {
        self.status == other.status
            && self.record_id == other.record_id
            && self.is_accepted() == other.is_accepted()
    }
}
