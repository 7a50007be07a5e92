//! What is looked at when an event arrives, and what that comes to.

use std::fmt;
use std::sync::Arc;

use super::event::SourceEvent;
use super::link::Link;
use super::merge::Record;
use super::policy::Policy;
use super::resolve::{merge_again, resolve};
use super::state::Transition;
use crate::receipt::Seq;
use crate::time::Millis;

/// What was decided about an event before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The event.
    pub seq: Seq,
    /// Where it belongs.
    pub link: Link,
}

/// The nearest event beyond the range that opens a record of this number; it can only explain why
/// something is not linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Far {
    /// The number.
    pub number: i64,
    /// When.
    pub time: i64,
    /// Its day, by its own clock.
    pub date: Option<String>,
}

/// The events around an arrival, with what is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Neighbourhood<'a> {
    /// The group all of this is about; may be empty, for events that do not say.
    pub group: &'a str,
    /// The time around which links may have changed; those further away than the policy's reach
    /// stand as they are known. `None` decides about all of them.
    pub around: Option<i64>,
    /// The times between which every event of the group is here, where it is so crowded that the
    /// ledger did not read all of the range; links stand as they are known beyond half of that.
    pub covered: Option<(i64, i64)>,
    /// When this is done, for the steps.
    pub now: Millis,
    /// The events, in any order.
    pub events: &'a [SourceEvent],
    /// What was decided about them; nothing for the one that has just come.
    pub known: &'a [Known],
    /// What lies beyond, where the ledger looked.
    pub far: &'a [Far],
}

/// What a neighbourhood comes to. Only what differs from what was known is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolution {
    /// Links that are new or other than known.
    pub links: Vec<(Seq, Link)>,
    /// Records that may have changed, whole.
    pub records: Vec<Record>,
    /// Records that are no more: what opened them belongs to another one.
    pub retired: Vec<String>,
    /// The steps to be added to the history, in order.
    pub transitions: Vec<Transition>,
}

impl Neighbourhood<'_> {
    /// Whether links of events at `time` may be decided here, by a policy that reaches so far.
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
    /// The link of an event, if it is among those that are told.
    pub fn link(&self, seq: Seq) -> Option<&Link> {
        self.links.iter().find(|(at, _)| *at == seq).map(|(_, link)| link)
    }
}

/// Which events have to be looked at for one of them.
///
/// That is: every event of the group with a time from `from` to `to`, every event of the group
/// without a time, and every event without a group but with a hard key and a time in the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The group. Where it is empty and there is a hard key, it is the group of any event with
    /// that hard key that has one.
    pub group: String,
    /// The hard key that leads to the group, where the event does not name it.
    pub hard_key: Option<String>,
    /// The time in the middle; `None` for an event that has none.
    pub around: Option<i64>,
    /// The first second.
    pub from: i64,
    /// The last.
    pub to: i64,
    /// At most about so many, half of them before and half of them after the time in the middle, the
    /// nearest first.
    pub events_max: usize,
}

impl Policy {
    /// Which events have to be looked at when `event` arrives.
    pub fn range(&self, event: &SourceEvent) -> Range {
        let (from, to) = match event.event_time {
            Some(time) => {
                let reach = 2 * self.reach();
                (time.saturating_sub(reach), time.saturating_add(reach))
            }
            None => (0, -1),
        };
        let hard_key = event.hard_key.clone().filter(|_| event.group.is_empty());
        let (around, events_max) = (event.event_time, self.events_max);
        Range { group: event.group.clone(), hard_key, around, from, to, events_max }
    }
}

/// What the ledger calls inside the record commit of an event that tells of a record.
pub trait RecordRule: Send + Sync + fmt::Debug {
    /// The event, before it has a place.
    fn event(&self) -> &SourceEvent;

    /// The policy it is resolved by.
    fn policy(&self) -> &Policy;

    /// Which events have to be looked at.
    fn range(&self) -> Range {
        self.policy().range(self.event())
    }

    /// What they come to.
    fn resolve(&self, neighbourhood: Neighbourhood<'_>) -> Resolution {
        resolve(self.policy(), neighbourhood)
    }

    /// The records of a resolution again, when what their events tell has been read since.
    fn merge(&self, neighbourhood: Neighbourhood<'_>, resolution: &mut Resolution) {
        merge_again(self.policy(), &neighbourhood, resolution);
    }
}

/// An event with the policy it is resolved by.
#[derive(Clone, Debug)]
pub struct Told {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The event.
    pub event: SourceEvent,
}

impl RecordRule for Told {
    fn event(&self) -> &SourceEvent {
        &self.event
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }
}
