//! Whether events may come in: what the probes found, in the words of this wire.

use admit_core::json::{Object, Value};

/// GREEN, AMBER or RED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All is well.
    Green,
    /// It is not known whether all is well.
    Amber,
    /// It is not: nothing is taken, and nothing is written.
    Red,
}

impl State {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Green => "GREEN",
            Self::Amber => "AMBER",
            Self::Red => "RED",
        }
    }
}

/// How the bus answers to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusProbe {
    /// It is there, with every topic that is wanted.
    Up,
    /// It cannot be asked.
    Unknown,
    /// It is not there.
    Down,
}

/// What the probes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Whether an artifact could be written.
    pub can_write_artifacts: bool,
    /// How often in a row an artifact could not be read.
    pub read_failures: u32,
    /// Whether the ledger takes writes.
    pub is_ledger_up: bool,
    /// The bus.
    pub bus: BusProbe,
    /// How often in a row a publish failed.
    pub publish_failures: u32,
}

/// What is made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// So many failed publishes in a row are a bus that is down.
    pub publish_failures_max: u32,
    /// So many failed reads in a row are a store that cannot be read.
    pub read_failures_max: u32,
    /// Whether nothing is taken while it is not known whether all is well.
    pub deny_on_amber: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { publish_failures_max: 3, read_failures_max: 3, deny_on_amber: false }
    }
}

/// The state, and why it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state.
    pub state: State,
    /// Every reason, in a fixed order.
    pub reasons: Vec<&'static str>,
    /// Whether events may come in.
    pub takes_events: bool,
}

impl Health {
    /// What the probes come down to.
    pub fn of(probes: &Probes, rules: &Rules) -> Self {
        let is_bus_down = probes.bus == BusProbe::Down
            || probes.publish_failures >= rules.publish_failures_max.max(1);
        let found = [
            (!probes.can_write_artifacts, State::Red, "OBJECT_STORE_UNHEALTHY"),
            (
                probes.read_failures >= rules.read_failures_max.max(1),
                State::Red,
                "STORE_READ_UNHEALTHY",
            ),
            (!probes.is_ledger_up, State::Red, "OPS_DB_UNHEALTHY"),
            (is_bus_down, State::Red, "BUS_UNHEALTHY"),
            (probes.bus == BusProbe::Unknown && !is_bus_down, State::Amber, "BUS_HEALTH_UNKNOWN"),
        ];
        let mut health = Self { state: State::Green, reasons: Vec::new(), takes_events: true };
        for (_, state, reason) in found.into_iter().filter(|(is_so, ..)| *is_so) {
            health.state = health.state.max(state);
            health.reasons.push(reason);
        }
        health.takes_events = match health.state {
            State::Green => true,
            State::Amber => !rules.deny_on_amber,
            State::Red => false,
        };
        health
    }

    /// `{state, reasons}`, as it is answered.
    pub fn to_object(&self) -> Object<'static> {
        Object::from_iter([
            ("state", Value::from(self.state.as_str())),
            ("reasons", self.reasons.clone().into()),
        ])
    }
}
