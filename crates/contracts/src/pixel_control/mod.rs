//! `pixel-control`: game-server plugins that post events with a weak retry.
//!
//! The producer keeps its queue in memory, tries three times and reads only the body of a reply, so
//! every reply of this door is one of three typed objects: an accepted ack, a rejected ack or an
//! error with a retry flag. The key of an event consists of its sender and its idempotency key; one
//! document per game server holds the state derived from its events.

mod describe;
mod enums;
mod envelope;
mod extract;
mod php;
pub mod read;
mod reply;
mod rules;
pub mod server_state;
mod vet;
mod violations;

use admit_core::{Code, Door, Entry, Horizon, RecordedEntry, Submission};
use serde::{Deserialize, Serialize};

use crate::{Contract, Description, Reply};

/// Default door name of this contract.
pub const DOOR: &str = "pixel-control";

/// How much of the published schema an event must satisfy to be admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaMode {
    /// The body, its transport part and the ten envelope fields. Violations of the rules of the
    /// event's category are recorded on its receipt; the real producer violates some of them every
    /// day.
    #[default]
    Envelope,
    /// The whole schema. Permanently loses every event of the real producer that carries an object.
    Strict,
}

/// Settings of this door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `"envelope"` (default) or `"strict"`.
    pub schema: SchemaMode,
    /// Maximum nesting depth of a body; deeper ones are rejected with `invalid_json`. Capped at
    /// 512.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { schema: SchemaMode::default(), json_depth_max: 128 }
    }
}

/// The `pixel-control` contract. See the module.
#[derive(Clone, Debug)]
pub struct PixelControl {
    settings: Settings,
    horizon: Horizon,
}

impl PixelControl {
    /// Creates the contract. The first call compiles the schemas.
    pub fn new(settings: Settings) -> Self {
        rules::CategoryRules::get();
        Self { settings, horizon: Horizon::default() }
    }

    /// For a ledger with retention: events outside `horizon` are rejected.
    #[must_use]
    pub fn within(self, horizon: Horizon) -> Self {
        Self { horizon, ..self }
    }
}

impl Contract for PixelControl {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(&self.settings, &self.horizon, door, submission)
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        reply::reply(recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}
