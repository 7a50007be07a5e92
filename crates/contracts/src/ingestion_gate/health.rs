//! Health of the door, computed from probe results.

use admit_core::json::{Object, Value};

/// Health state on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthState {
    /// Healthy.
    Green,
    /// Health is unknown.
    Amber,
    /// Unhealthy: no events are accepted and nothing is written.
    Red,
}

impl HealthState {
    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Green => "GREEN",
            Self::Amber => "AMBER",
            Self::Red => "RED",
        }
    }
}

/// Result of a bus probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusProbe {
    /// Reachable, with every required topic.
    Up,
    /// The state cannot be determined.
    Unknown,
    /// Unreachable.
    Down,
}

/// Probe results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeResults {
    /// Whether an artifact could be written.
    pub can_write_artifacts: bool,
    /// Consecutive failed artifact reads.
    pub read_failures: u32,
    /// Whether the ledger accepts writes.
    pub is_ledger_up: bool,
    /// Bus.
    pub bus: BusProbe,
    /// Consecutive failed publishes.
    pub publish_failures: u32,
}

/// Thresholds for the probe results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthThresholds {
    /// Consecutive failed publishes after which the bus counts as down.
    pub publish_failures_max: u32,
    /// Consecutive failed reads after which the artifact store counts as unreadable.
    pub read_failures_max: u32,
    /// Whether events are refused in state AMBER.
    pub deny_on_amber: bool,
}

impl Default for HealthThresholds {
    fn default() -> Self {
        Self { publish_failures_max: 3, read_failures_max: 3, deny_on_amber: false }
    }
}

/// Health state with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorHealth {
    /// State.
    pub state: HealthState,
    /// All reasons, in a fixed order.
    pub reasons: Vec<&'static str>,
    /// Whether events are accepted.
    pub takes_events: bool,
}

impl DoorHealth {
    /// Evaluates the probe results.
    pub fn of(probes: &ProbeResults, rules: &HealthThresholds) -> Self {
        let is_bus_down = probes.bus == BusProbe::Down
            || probes.publish_failures >= rules.publish_failures_max.max(1);
        let found = [
            (!probes.can_write_artifacts, HealthState::Red, "OBJECT_STORE_UNHEALTHY"),
            (
                probes.read_failures >= rules.read_failures_max.max(1),
                HealthState::Red,
                "STORE_READ_UNHEALTHY",
            ),
            (!probes.is_ledger_up, HealthState::Red, "OPS_DB_UNHEALTHY"),
            (is_bus_down, HealthState::Red, "BUS_UNHEALTHY"),
            (
                probes.bus == BusProbe::Unknown && !is_bus_down,
                HealthState::Amber,
                "BUS_HEALTH_UNKNOWN",
            ),
        ];
        let mut health =
            Self { state: HealthState::Green, reasons: Vec::new(), takes_events: true };
        for (_, state, reason) in found.into_iter().filter(|(is_so, ..)| *is_so) {
            health.state = health.state.max(state);
            health.reasons.push(reason);
        }
        health.takes_events = match health.state {
            HealthState::Green => true,
            HealthState::Amber => !rules.deny_on_amber,
            HealthState::Red => false,
        };
        health
    }

    /// `{state, reasons}`, as on the wire.
    pub fn to_object(&self) -> Object<'static> {
        Object::from_iter([
            ("state", Value::from(self.state.as_str())),
            ("reasons", self.reasons.clone().into()),
        ])
    }
}
