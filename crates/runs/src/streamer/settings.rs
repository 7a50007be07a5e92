//! Settings of the streamer, with the defaults of its contract.

use std::time::Duration;

use admit_core::json::{Object, Value};

use crate::catalogue::Catalogue;

/// Default producer.
pub const PRODUCER: &str = "svc:world_stream_producer";

/// Default topic of READY messages.
pub const CONTROL_TOPIC: &str = "fp.bus.control.v1";

/// Maximum of `checkpoint_every`: rows of one output that may be sent again after a crash, and that
/// are held in memory.
pub const CHECKPOINT_EVERY_MAX: u64 = 10_000;

/// Settings of the streamer.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Outputs and gates.
    pub catalogue: Catalogue,
    /// Mode that selects the outputs.
    pub mode: String,
    /// Restricts the outputs; empty is all.
    pub outputs: Vec<String>,
    /// `dev` and `prod` require packs with a manifest and a seal.
    pub profile: String,
    /// Streams only this platform run; `None` is any.
    pub platform_run_id: Option<String>,
    /// Whether runs are streamed again although they were streamed before, for a replay.
    pub again: bool,
    /// Whether every row is sent again, ignoring checkpoints.
    pub from_start: bool,
    /// Producer in envelopes.
    pub producer: String,
    /// Allowed producers.
    pub producers_allowed: Vec<String>,
    /// Topic of READY messages.
    pub control_topic: String,
    /// Rows of an output between two checkpoints: the maximum sent again after a crash.
    pub checkpoint_every: u64,
    /// Concurrent envelopes per output, at most `checkpoint_every`.
    pub in_flight: usize,
    /// Concurrent outputs; 0 is all.
    pub concurrency: usize,
    /// Row limit per output; `None` is unlimited.
    pub max_events_per_output: Option<u64>,
    /// Limit of READY messages per cycle; `None` is unlimited.
    pub max_messages: Option<u64>,
    /// Seconds of row time that pass per second; 0 or less disables pacing.
    pub speedup: f64,
    /// Retries of envelopes.
    pub retry: RetryPolicy,
    /// Poll interval of the control bus.
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
            retry: RetryPolicy::default(),
            poll_every: Duration::from_secs(2),
        }
    }
}

impl Settings {
    /// Whether a pack needs a manifest and a seal.
    pub fn must_be_sealed(&self) -> bool {
        matches!(self.profile.as_str(), "dev" | "prod")
    }

    /// Provenance in governance lines.
    pub fn provenance(&self) -> Object<'static> {
        Object::from_iter([
            ("producer", Value::from(self.producer.clone())),
            ("profile", self.profile.clone().into()),
        ])
    }

    /// The effective settings, under the names used in reports.
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

    /// `checkpoint_every`, clamped to its limits.
    pub fn window(&self) -> u64 {
        self.checkpoint_every.clamp(1, CHECKPOINT_EVERY_MAX)
    }
}

/// Retry policy of envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum attempts, at least one.
    pub max_attempts: u32,
    /// First delay; doubled after each attempt.
    pub base_delay: Duration,
    /// Maximum delay, before jitter of up to 100 %.
    pub max_delay: Duration,
    /// Maximum delay that a gate can request.
    pub max_hint: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_millis(5_000),
            max_hint: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Delay after attempt `attempt` (from 1): exponential up to the maximum, plus `chance` (0 to
    /// 1) times the same as jitter, and at least the gate's hint.
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
    fn delays_double_up_to_the_maximum_with_jitter() {
        let retry = RetryPolicy::default();
        let millis = |attempt, chance| retry.delay(attempt, chance, None).as_millis();
        assert_eq!([1, 2, 3, 4, 5, 6].map(|n| millis(n, 0.0)), [250, 500, 1000, 2000, 4000, 5000]);
        assert_eq!((millis(1, 1.0), millis(6, 0.5), millis(40, 1.0)), (500, 7500, 10_000));
    }

    #[test]
    fn retry_hints_of_the_gate_are_capped() {
        let retry = RetryPolicy::default();
        let delay_for = |seconds| retry.delay(1, 0.0, Some(Duration::from_secs(seconds)));
        assert_eq!(delay_for(7), Duration::from_secs(7));
        assert_eq!(delay_for(0), Duration::from_millis(250));
        assert_eq!(delay_for(86_400), Duration::from_secs(60));
    }
}
