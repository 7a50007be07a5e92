//! What the gate counts: plain atomics in one struct, cheap enough for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use admit_core::effect::Outcome;
use admit_core::{Code, Door, Verdict};

use crate::gate::Gate;

/// A number that only goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// What has been counted so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One counter for each code.
#[derive(Debug, Default)]
pub struct ByCode([Counter; Code::ALL.len()]);

impl ByCode {
    /// The counter of `code`.
    pub fn of(&self, code: Code) -> &Counter {
        // `ALL` is in the order of the declaration, so a code's number is its place.
        &self.0[code as usize]
    }
}

/// The words of the verdicts, in the order in which they are counted.
pub const VERDICTS: [&str; 5] = ["fresh", "duplicate", "revision", "conflict", "refused"];

/// What happened at one door.
#[derive(Debug)]
pub struct DoorCounters {
    /// Which door.
    pub door: Door,
    verdicts: [Counter; VERDICTS.len()],
    /// Requests turned away before the ledger was asked, by code.
    pub refusals: ByCode,
    /// Events that got no verdict because of our side, by code.
    pub faults: ByCode,
    /// Refused submissions that were not kept, because the quota of their producer was used up.
    pub refusals_not_kept: Counter,
}

impl DoorCounters {
    fn new(door: Door) -> Self {
        Self {
            door,
            verdicts: Default::default(),
            refusals: ByCode::default(),
            faults: ByCode::default(),
            refusals_not_kept: Counter::default(),
        }
    }

    pub(crate) fn count(&self, verdict: &Verdict) {
        let place = match verdict {
            Verdict::Fresh { .. } => 0,
            Verdict::Duplicate { .. } => 1,
            Verdict::Revision { .. } => 2,
            Verdict::Conflict { .. } => 3,
            Verdict::Refused { .. } => 4,
        };
        if let Verdict::Refused { seq: None } = verdict {
            self.refusals_not_kept.add_one();
        }
        self.verdicts[place].add_one();
    }

    /// Admissions by verdict, in the order of [`VERDICTS`].
    pub fn admissions(&self) -> impl Iterator<Item = (&'static str, u64)> {
        VERDICTS.into_iter().zip(self.verdicts.iter().map(Counter::get))
    }
}

/// Settled effects, by outcome.
#[derive(Debug, Default)]
pub struct EffectCounters([Counter; 3]);

impl EffectCounters {
    /// The counter of `outcome`.
    pub fn of(&self, outcome: Outcome) -> &Counter {
        &self.0[match outcome {
            Outcome::Done => 0,
            Outcome::Refused => 1,
            Outcome::Ambiguous => 2,
        }]
    }

    /// What has been counted so far, by the word of the outcome.
    pub fn by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["done", "refused", "ambiguous"].into_iter().zip(self.0.iter().map(Counter::get))
    }
}

/// How many of something are open now.
#[derive(Debug, Default)]
pub struct Open {
    opened: Counter,
    ended: Counter,
}

impl Open {
    /// Open now.
    pub fn now(&self) -> u64 {
        let ended = self.ended.get();
        self.opened.get().saturating_sub(ended)
    }
}

/// One that is open; it has ended when this is dropped.
pub(crate) struct OneOpen {
    gate: Arc<Gate>,
    of: fn(&Metrics) -> &Open,
}

impl OneOpen {
    pub(crate) fn new(gate: &Arc<Gate>, of: fn(&Metrics) -> &Open) -> Self {
        of(gate.metrics()).opened.add_one();
        Self { gate: Arc::clone(gate), of }
    }
}

impl Drop for OneOpen {
    fn drop(&mut self) {
        (self.of)(self.gate.metrics()).ended.add_one();
    }
}

/// Everything the gate counts.
#[derive(Debug)]
pub struct Metrics {
    doors: Vec<DoorCounters>,
    /// Requests refused at no door: unknown routes, read routes, heads that cannot be read.
    pub refusals: ByCode,
    /// Requests that ended in a panic of ours.
    pub panics: Counter,
    /// Connections accepted so far.
    pub connections: Counter,
    /// Connections that ended so far.
    pub connections_ended: Counter,
    /// Connections accepted over the limit, only to be told so.
    pub connections_turned_away: Counter,
    /// Unauthenticated connections closed without an answer: too many of their address, or of all.
    pub connections_closed_at_once: Counter,
    /// WebSockets that carry events.
    pub websockets: Open,
    /// gRPC streams that carry events.
    pub grpc_streams: Open,
    /// Connections that ended before TLS was agreed on.
    pub tls_handshake_failures: Counter,
    /// Answers that came too late for the producer, while the ledger finished.
    pub answers_late: Counter,
    /// Effects that were settled, or found ambiguous at the start.
    pub effects: EffectCounters,
}

impl Metrics {
    pub(crate) fn new<'a>(doors: impl Iterator<Item = &'a Door>) -> Self {
        Self {
            doors: doors.cloned().map(DoorCounters::new).collect(),
            refusals: ByCode::default(),
            panics: Counter::default(),
            connections: Counter::default(),
            connections_ended: Counter::default(),
            connections_turned_away: Counter::default(),
            connections_closed_at_once: Counter::default(),
            websockets: Open::default(),
            grpc_streams: Open::default(),
            tls_handshake_failures: Counter::default(),
            answers_late: Counter::default(),
            effects: EffectCounters::default(),
        }
    }

    /// The counters of every door.
    pub fn doors(&self) -> &[DoorCounters] {
        &self.doors
    }

    /// The counters of one door.
    pub fn door(&self, door: &Door) -> Option<&DoorCounters> {
        self.doors.iter().find(|counters| counters.door == *door)
    }

    /// Connections open now.
    pub fn connections_open(&self) -> u64 {
        self.connections.get().saturating_sub(self.connections_ended.get())
    }
}

#[cfg(test)]
mod tests {
    use admit_core::Seq;

    use super::*;

    #[test]
    fn every_code_has_a_counter_of_its_own() {
        let counters = ByCode::default();
        for code in Code::ALL {
            counters.of(*code).add_one();
        }
        assert!(Code::ALL.iter().all(|code| counters.of(*code).get() == 1));
    }

    #[test]
    fn verdicts_are_counted_under_their_own_word() {
        let counters = DoorCounters::new(Door::new("d"));
        let verdict = Verdict::Refused { seq: Some(Seq(1)) };
        counters.count(&verdict);
        let counted: Vec<_> = counters.admissions().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(verdict.word(), 1)]);
    }
}
