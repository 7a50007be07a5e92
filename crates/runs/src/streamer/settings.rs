//! Every knob of the streamer, with the defaults of its contract.

use std::time::Duration;

use admit_core::json::{Object, Value};

use crate::catalogue::Catalogue;

/// Who the streamer says it is.
pub const PRODUCER: &str = "svc:world_stream_producer";

/// The topic READY comes on.
pub const CONTROL_TOPIC: &str = "fp.bus.control.v1";

/// The largest replay window that can be configured: rows of one output that may be sent again after
/// a crash, and also those held in memory.
pub const CHECKPOINT_EVERY_MAX: u64 = 10_000;

/// How the streamer behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Outputs and gates.
    pub catalogue: Catalogue,
    /// Which outputs are streamed.
    pub mode: String,
    /// Only these of them; empty is all.
    pub outputs: Vec<String>,
    /// `dev` and `prod` stream only packs with a manifest and a seal.
    pub profile: String,
    /// Only READY of this platform run is streamed; `None` is any.
    pub platform_run_id: Option<String>,
    /// Whether runs that were streamed are streamed again, for a replay.
    pub again: bool,
    /// Whether every row is sent again, also those that checkpoints say are answered for.
    pub from_start: bool,
    /// The producer that envelopes name.
    pub producer: String,
    /// Producers that may be named.
    pub producers_allowed: Vec<String>,
    /// The topic of READY.
    pub control_topic: String,
    /// Rows of an output between two checkpoints: what a crash sends again at most.
    pub checkpoint_every: u64,
    /// Envelopes of one output on the way at once, at most `checkpoint_every`.
    pub in_flight: usize,
    /// Outputs at once; 0 is all.
    pub concurrency: usize,
    /// Rows of each output that are streamed, from its first; `None` is all.
    pub max_events_per_output: Option<u64>,
    /// READY messages that are taken on in one cycle; `None` is all.
    pub max_messages: Option<u64>,
    /// So many seconds of the rows' own time pass in one second; 0 or less does not wait.
    pub speedup: f64,
    /// When an envelope is sent again.
    pub retry: Retry,
    /// How long to wait before the bus is looked at again.
    pub poll_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            catalogue: Catalogue::shipped(),
            mode: "fraud".to_owned(),
            outputs: Vec::new(),
            profile: "local".to_owned(),
            platform_run_id: None,
            again: false,
            from_start: false,
            producer: PRODUCER.to_owned(),
            producers_allowed: vec![PRODUCER.to_owned()],
            control_topic: CONTROL_TOPIC.to_owned(),
            checkpoint_every: 10,
            in_flight: 16,
            concurrency: 0,
            max_events_per_output: None,
            max_messages: None,
            speedup: 600.0,
            retry: Retry::default(),
            poll_every: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// Whether a pack must have a manifest and a seal.
    pub fn must_be_sealed(&self) -> bool {
        matches!(self.profile.as_str(), "dev" | "prod")
    }

    /// What names this streamer in governance lines.
    pub fn provenance(&self) -> Object<'static> {
        Object::from_iter([
            ("producer", Value::from(self.producer.clone())),
            ("profile", self.profile.clone().into()),
        ])
    }

    /// The knobs in force, under the names that reports use.
    pub fn knobs(&self) -> Object<'static> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Object::from_iter([
            ("max_events_per_output", Value::from(self.max_events_per_output)),
            ("ready_max_messages", self.max_messages.into()),
            ("ig_retry_max_attempts", self.retry.max_attempts.into()),
            ("ig_retry_base_delay_ms", millis(self.retry.base_delay).into()),
            ("ig_retry_max_delay_ms", millis(self.retry.max_delay).into()),
            ("checkpoint_every", self.checkpoint_every.into()),
            ("in_flight", (self.in_flight as u64).into()),
            ("output_concurrency", (self.concurrency as u64).into()),
            ("stream_speedup", self.speedup.into()),
            ("poll_ms", millis(self.poll_every).into()),
        ])
    }

    /// The replay window, within its bounds.
    pub fn window(&self) -> u64 {
        self.checkpoint_every.clamp(1, CHECKPOINT_EVERY_MAX)
    }
}

/// When and how often an envelope is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all; at least one is made.
    pub max_attempts: u32,
    /// The first delay. Each further one is twice as long.
    pub base_delay: Duration,
    /// The longest delay, before chance adds up to as much again.
    pub max_delay: Duration,
    /// The longest delay that a gate can ask for.
    pub max_hint: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_millis(5_000),
            max_hint: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// How long to wait after the attempt `attempt`, counted from 1: twice as long each time up to
    /// the longest, `chance` (0 to 1) as much again, and never less than the gate asked for.
    pub fn delay(&self, attempt: u32, chance: f64, hint: Option<Duration>) -> Duration {
        let doubled = self.base_delay.saturating_mul(1 << attempt.saturating_sub(1).min(30));
        let delay = doubled.min(self.max_delay);
        let spread = delay.mul_f64(1.0 + chance.clamp(0.0, 1.0));
        spread.max(hint.unwrap_or_default().min(self.max_hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_chance_adds_as_much_again() {
        let retry = Retry::default();
        let millis = |attempt, chance| retry.delay(attempt, chance, None).as_millis();
        assert_eq!([1, 2, 3, 4, 5, 6].map(|n| millis(n, 0.0)), [250, 500, 1000, 2000, 4000, 5000]);
        assert_eq!((millis(1, 1.0), millis(6, 0.5), millis(40, 1.0)), (500, 7500, 10_000));
    }

    #[test]
    fn a_gate_may_ask_for_more_patience_but_not_for_ever() {
        let retry = Retry::default();
        let asked = |seconds| retry.delay(1, 0.0, Some(Duration::from_secs(seconds)));
        assert_eq!(asked(7), Duration::from_secs(7));
        assert_eq!(asked(0), Duration::from_millis(250));
        assert_eq!(asked(86_400), Duration::from_secs(60));
    }
}
