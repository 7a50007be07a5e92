//! Candidate set: the events loaded to resolve an arrival, and the resolution.

use std::fmt;
use std::sync::Arc;

use super::link::Link;
use super::merge::Entity;
use super::policy::Policy;
use super::resolve::{merge_again, resolve};
use super::source_event::SourceEvent;
use super::state::Transition;
use crate::receipt::Seq;
use crate::time::Millis;

/// Earlier link of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownLink {
    /// Ledger position of the event.
    pub seq: Seq,
    /// Earlier link.
    pub link: Link,
}

/// Nearest opening event of this number beyond the range. Only used to explain why an event is not
/// linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistantEvent {
    /// Number.
    pub number: i64,
    /// Event time.
    pub time: i64,
    /// Local date.
    pub date: Option<String>,
}

/// Events around an arrival, with their earlier links.
#[derive(Clone, Copy, Debug)]
pub struct CandidateSet<'a> {
    /// Group of the arrival; empty if the event names none.
    pub group: &'a str,
    /// Time of the arrival. Events further away than the policy's reach keep their links. `None`
    /// decides about all of them.
    pub around: Option<i64>,
    /// Time range that was loaded completely, if the range was too crowded to load all of it. Links
    /// beyond half of it are kept.
    pub covered: Option<(i64, i64)>,
    /// Time of resolution, for the history.
    pub now: Millis,
    /// Events in any order.
    pub events: &'a [SourceEvent],
    /// Earlier links; none for the arrival itself.
    pub known: &'a [KnownLink],
    /// Nearest opening events beyond the range, if the ledger queried them.
    pub far: &'a [DistantEvent],
}

/// Result of a resolution. Contains differences only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// New or changed links.
    pub links: Vec<(Seq, Link)>,
    /// Entities that may have changed, complete.
    pub entities: Vec<Entity>,
    /// Ids of retired entities: their opening event belongs to another one.
    pub retired: Vec<String>,
    /// Transitions to append to the history, in order.
    pub transitions: Vec<Transition>,
}

impl CandidateSet<'_> {
    /// Whether links of events at `time` may be decided in this set, for a policy with this reach.
    pub(super) fn decides_at(&self, time: i64, reach: u64) -> bool {
        let Some(around) = self.around else { return true };
        let reach = match self.covered {
            None => reach,
            Some((from, _)) if time < around => reach.min(around.abs_diff(from) / 2),
            Some((_, to)) => reach.min(around.abs_diff(to) / 2),
        };
        around.abs_diff(time) <= reach
    }
}

impl Resolution {
    /// Returns the link of an event, if it changed.
    pub fn link(&self, seq: Seq) -> Option<&Link> {
        self.links.iter().find(|(at, _)| *at == seq).map(|(_, link)| link)
    }
}

/// Range of events to load for an arrival.
///
/// Covers every event of the group with a time from `from` to `to`, every event of the group
/// without a time, and every event without a group but with a hard key and a time in the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateRange {
    /// Group. If it is empty and there is a hard key, the group of any event with that hard key.
    pub group: String,
    /// Hard key from which to infer the group, if the event names none.
    pub hard_key: Option<String>,
    /// Time of the arrival; `None` if it has none.
    pub around: Option<i64>,
    /// First second.
    pub from: i64,
    /// Last second.
    pub to: i64,
    /// Approximate maximum number of events, half of them before and half after `around`, nearest
    /// first.
    pub events_max: usize,
}

impl Policy {
    /// Returns the range to load when `event` arrives.
    pub fn range(&self, event: &SourceEvent) -> CandidateRange {
        let (from, to) = match event.event_time {
            Some(time) => {
                let reach = 2 * self.reach();
                (time.saturating_sub(reach), time.saturating_add(reach))
            }
            None => (0, -1),
        };
        let hard_key = event.hard_key.clone().filter(|_| event.group.is_empty());
        let (around, events_max) = (event.event_time, self.events_max);
        CandidateRange { group: event.group.clone(), hard_key, around, from, to, events_max }
    }
}

/// Resolution rule called by the ledger inside the record commit.
pub trait EntityRule: Send + Sync + fmt::Debug {
    /// Source event, before it has a ledger position.
    fn event(&self) -> &SourceEvent;

    /// Policy.
    fn policy(&self) -> &Policy;

    /// Range of events to load.
    fn range(&self) -> CandidateRange {
        self.policy().range(self.event())
    }

    /// Resolves a candidate set.
    fn resolve(&self, candidate_set: CandidateSet<'_>) -> Resolution {
        resolve(self.policy(), candidate_set)
    }

    /// Merges the entities of a resolution again after their fields were loaded.
    fn merge(&self, candidate_set: CandidateSet<'_>, resolution: &mut Resolution) {
        merge_again(self.policy(), &candidate_set, resolution);
    }
}

/// Source event with its policy.
#[derive(Clone, Debug)]
pub struct EntityInput {
    /// Policy.
    pub policy: Arc<Policy>,
    /// Ledger position of the event.
    pub event: SourceEvent,
}

impl EntityRule for EntityInput {
    fn event(&self) -> &SourceEvent {
        &self.event
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }
}
