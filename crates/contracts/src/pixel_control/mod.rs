//! `pixel-control`: game-server plugins posting events with a weak retry.
//!
//! The producer keeps its queue in memory, tries three times and reads only the body of a reply, so
//! every answer of this door is one of three typed objects: an accepted ack, a rejected ack or an
//! error that says whether to try again. An event is named by who sent it and its idempotency key;
//! what it did to the server it came from is kept as one document per server.

mod describe;
mod php;
pub mod read;
mod reply;
mod rules;
pub mod server;
mod shape;
mod told;
mod vet;
mod violations;
mod words;

use admit_core::{Code, Door, Entry, Horizon, Recorded, Submission};
use serde::{Deserialize, Serialize};

use crate::{Contract, Description, Reply};

/// The name of the door this contract is made for.
pub const DOOR: &str = "pixel-control";

/// How much of the published schema an event must keep to be admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemaMode {
    /// The body, its transport part and the ten envelope fields. What an event breaks of the rules
    /// of its category is noted on its receipt; the real producer breaks some of them every day.
    #[default]
    Envelope,
    /// All of it. Loses every event of the real producer that carries an object, for good.
    Strict,
}

/// The settings of this door.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `"envelope"` (default) or `"strict"`.
    pub schema: SchemaMode,
    /// Deepest nesting of a body; deeper ones are rejected with `invalid_json`. At most 512,
    /// whatever is written here.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { schema: SchemaMode::default(), json_depth_max: 128 }
    }
}

/// The contract. See the module.
#[derive(Clone, Debug)]
pub struct PixelControl {
    settings: Settings,
    horizon: Horizon,
}

impl PixelControl {
    /// The contract with these settings. The first one compiles the schemas.
    pub fn new(settings: Settings) -> Self {
        rules::Rules::get();
        Self { settings, horizon: Horizon::default() }
    }

    /// Before a ledger that forgets: what is outside `horizon` is rejected.
    #[must_use]
    pub fn within(self, horizon: Horizon) -> Self {
        Self { horizon, ..self }
    }
}

impl Contract for PixelControl {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(&self.settings, &self.horizon, door, submission)
    }

    fn reply(&self, recorded: &Recorded) -> Reply {
        reply::reply(recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}
