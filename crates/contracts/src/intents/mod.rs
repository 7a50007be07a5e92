//! `intents`: people paste a packet, it is kept first, turned into a plan, and acted on once.
//!
//! An intent is named by its whole canonical body, so a second paste is a copy, whoever sends it.
//! The plan is made before anything is recorded and is part of the record commit; the call to the
//! gateway is the effect of the admission. Whoever pastes again gets the first envelope, for ever.

mod act;
mod describe;
mod due;
mod ids;
mod iso;
mod loose;
mod normalise;
mod paths;
pub mod read;
mod reply;
mod shape;
mod vet;

use admit_core::effect::{Effect, StoredReply};
use admit_core::json::Object;
use admit_core::{Code, Door, Entry, Evidence, Recorded, Submission};
use jiff::tz::TimeZone;

use crate::{
    Admission, Call, CallOutcome, Calling, Conclusion, Contract, Description, Reply, is_json_type,
};

pub use describe::envelope;
pub use paths::Paths;
pub use vet::recompute;

/// The name of the door this contract is made for.
pub const DOOR: &str = "intents";

/// Code in the replies of this door for a code of the ledger.
pub fn reply_code(code: Code) -> &'static str {
    reply::word(code)
}

/// The settings of this door.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether plans are executed by themselves. Off: they wait for a person.
    pub execute: bool,
    /// The zone in which `tomorrow` and the like are meant.
    pub time_zone: String,
    /// Packets that say they are less sure of themselves are not acted on.
    pub confidence_min: f64,
    /// Where each action is posted, below the gateway's base URL.
    pub paths: Paths,
    /// Deepest nesting of a body; deeper ones are `bad_json`.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            execute: false,
            time_zone: "Europe/London".to_owned(),
            confidence_min: 0.75,
            paths: Paths::default(),
            json_depth_max: 128,
        }
    }
}

/// A time zone that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}; use a name such as Europe/London or UTC")]
pub struct NoSuchZone(String);

/// The contract. See the module.
#[derive(Clone, Debug)]
pub struct Intents {
    settings: Settings,
    zone: TimeZone,
}

impl Intents {
    /// The contract with these settings, or why they make none.
    pub fn new(settings: Settings) -> Result<Self, NoSuchZone> {
        let zone = TimeZone::get(&settings.time_zone)
            .map_err(|_| NoSuchZone(settings.time_zone.clone()))?;
        Ok(Self { settings, zone })
    }
}

impl Contract for Intents {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &Recorded) -> Reply {
        reply::reply(recorded, None)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn headers(&self) -> &[&str] {
        &["x-actor-id"]
    }

    /// A packet that parses is one, whatever its content type says.
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    /// Without principals a page in a browser could post any other content type.
    fn accepts_unkeyed(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(is_json_type)
    }

    fn wants_nonce(&self) -> bool {
        true
    }

    fn calling(&self) -> Option<&dyn Calling> {
        Some(self)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}

impl Calling for Intents {
    fn call(&self, effect: &Effect, trace: &str) -> Option<Call> {
        act::call(&self.settings.paths, effect, trace)
    }

    fn conclude(&self, admission: Admission<'_>, outcome: &CallOutcome) -> Conclusion {
        act::conclude(admission, outcome)
    }

    fn evidence(&self, outcome: &CallOutcome) -> Evidence {
        Evidence::of(&act::evidence(outcome))
    }

    fn dress(&self, facts: &Object<'_>, trace: &str, reply: StoredReply) -> Reply {
        reply::dress(facts, trace, reply)
    }

    fn reply_again(&self, recorded: &Recorded, effect: Option<&Effect>) -> Reply {
        reply::reply(recorded, effect)
    }

    fn is_executing(&self) -> bool {
        self.settings.execute
    }
}
