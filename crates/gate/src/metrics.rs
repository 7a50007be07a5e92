//! Counters of the gate: plain atomics, cheap enough for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use admit_core::effect::Outcome;
use admit_core::{Code, Door, Verdict};

use crate::gate::Gate;

/// Counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Current value.
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
        // `ALL` is in declaration order, so the discriminant of a code is its index.
        &self.0[code as usize]
    }
}

/// Names of the verdicts, in the order of their counters.
pub const VERDICTS: [&str; 5] = ["fresh", "duplicate", "revision", "conflict", "refused"];

/// Counters of one door.
#[derive(Debug)]
pub struct DoorCounters {
    /// Name of the door.
    pub door: Door,
    verdicts: [Counter; VERDICTS.len()],
    /// Requests refused before they reached the ledger, by code.
    pub refusals: ByCode,
    /// Events without a verdict because of a fault of the gate, by code.
    pub faults: ByCode,
    /// Refused submissions that were not stored, because the quota of their producer was used up.
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
        let index = match verdict {
            Verdict::Fresh { .. } => 0,
            Verdict::Duplicate { .. } => 1,
            Verdict::Revision { .. } => 2,
            Verdict::Conflict { .. } => 3,
            Verdict::Refused { .. } => 4,
        };
        if let Verdict::Refused { seq: None } = verdict {
            self.refusals_not_kept.add_one();
        }
        self.verdicts[index].add_one();
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

    /// What has been counted so far, by the name of the outcome.
    pub fn by_outcome(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["done", "refused", "ambiguous"].into_iter().zip(self.0.iter().map(Counter::get))
    }
}

/// Number of currently open items of one kind.
#[derive(Debug, Default)]
pub struct OpenGauge {
    opened: Counter,
    ended: Counter,
}

impl OpenGauge {
    /// Currently open.
    pub fn now(&self) -> u64 {
        let ended = self.ended.get();
        self.opened.get().saturating_sub(ended)
    }
}

/// Counts one item as open until it is dropped.
pub(crate) struct OpenGuard {
    gate: Arc<Gate>,
    of: fn(&Metrics) -> &OpenGauge,
}

impl OpenGuard {
    pub(crate) fn new(gate: &Arc<Gate>, of: fn(&Metrics) -> &OpenGauge) -> Self {
        of(gate.metrics()).opened.add_one();
        Self { gate: Arc::clone(gate), of }
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        (self.of)(self.gate.metrics()).ended.add_one();
    }
}

/// Everything the gate counts.
#[derive(Debug)]
pub struct Metrics {
    doors: Vec<DoorCounters>,
    /// Requests refused outside of a door: unknown routes, read routes, unreadable heads.
    pub refusals: ByCode,
    /// Requests that ended in a panic.
    pub panics: Counter,
    /// Accepted connections.
    pub connections: Counter,
    /// Ended connections.
    pub connections_ended: Counter,
    /// Connections over the limit that were refused with a reply.
    pub connections_turned_away: Counter,
    /// Unauthenticated connections closed without a reply, over the limit of their address or of all.
    pub connections_closed_at_once: Counter,
    /// WebSockets that carry events.
    pub websockets: OpenGauge,
    /// gRPC streams that carry events.
    pub grpc_streams: OpenGauge,
    /// Connections whose TLS handshake failed.
    pub tls_handshake_failures: Counter,
    /// Requests that timed out while the ledger completed their write.
    pub answers_late: Counter,
    /// Effects settled, or marked ambiguous by recovery.
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
            websockets: OpenGauge::default(),
            grpc_streams: OpenGauge::default(),
            tls_handshake_failures: Counter::default(),
            answers_late: Counter::default(),
            effects: EffectCounters::default(),
        }
    }

    /// Counters of all doors.
    pub fn doors(&self) -> &[DoorCounters] {
        &self.doors
    }

    /// The counters of one door.
    pub fn door(&self, door: &Door) -> Option<&DoorCounters> {
        self.doors.iter().find(|counters| counters.door == *door)
    }

    /// Number of open connections.
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
    fn verdicts_are_counted_under_their_name() {
        let counters = DoorCounters::new(Door::new("d"));
        let verdict = Verdict::Refused { seq: Some(Seq(1)) };
        counters.count(&verdict);
        let counted: Vec<_> = counters.admissions().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(verdict.word(), 1)]);
    }
}
