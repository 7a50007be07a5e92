//! `intents`: users submit a packet, which is stored first, turned into a plan, and executed once.
//!
//! The key of an intent is its whole canonical body, so a repeated packet is a copy, regardless of
//! its sender. The plan is made before anything is recorded and is part of the record commit; the
//! gateway call is the effect of the admission. A copy always gets the first envelope.

mod describe;
mod due;
mod gateway_call;
mod ids;
mod iso;
mod normalise;
mod packet;
mod paths;
mod python_values;
pub mod read;
mod reply;
mod vet;

use admit_core::effect::{Effect, StoredReply};
use admit_core::json::Object;
use admit_core::{Code, Door, Entry, Evidence, RecordedEntry, Submission};
use jiff::tz::TimeZone;

use crate::{
    AdmissionContext, CallOutcome, Conclusion, Contract, Description, GatewayCall, GatewayCalls,
    Reply, is_json_type,
};

pub use describe::envelope;
pub use paths::ActionPaths;
pub use vet::recompute;

/// Default door name of this contract.
pub const DOOR: &str = "intents";

/// Returns the reply code of this door for a ledger code.
pub fn reply_code(code: Code) -> &'static str {
    reply::wire_code(code)
}

/// Settings of this door.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether plans are executed automatically. If off, they wait for an operator.
    pub execute: bool,
    /// Time zone of relative dates such as `tomorrow`.
    pub time_zone: String,
    /// Packets with a lower confidence are not executed.
    pub confidence_min: f64,
    /// Gateway path of each action, below the gateway's base URL.
    pub paths: ActionPaths,
    /// Maximum nesting depth of a body; deeper ones are `bad_json`.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            execute: false,
            time_zone: "Europe/London".to_owned(),
            confidence_min: 0.75,
            paths: ActionPaths::default(),
            json_depth_max: 128,
        }
    }
}

/// Unknown time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}; use a name such as Europe/London or UTC")]
pub struct UnknownTimeZone(String);

/// The `intents` contract. See the module.
#[derive(Clone, Debug)]
pub struct Intents {
    settings: Settings,
    zone: TimeZone,
}

impl Intents {
    /// Creates the contract.
    ///
    /// # Errors
    /// If the time zone is unknown.
    pub fn new(settings: Settings) -> Result<Self, UnknownTimeZone> {
        let zone = TimeZone::get(&settings.time_zone)
            .map_err(|_| UnknownTimeZone(settings.time_zone.clone()))?;
        Ok(Self { settings, zone })
    }
}

impl Contract for Intents {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        reply::reply(recorded, None)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn headers(&self) -> &[&str] {
        &["x-actor-id"]
    }

    /// A body that parses is a packet, regardless of its content type.
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    /// Without principals, other content types are refused: a web page could post them cross-origin
    /// without a preflight request.
    fn accepts_unkeyed(&self, content_type: Option<&str>) -> bool {
        content_type.is_some_and(is_json_type)
    }

    fn needs_nonce(&self) -> bool {
        true
    }

    fn gateway_calls(&self) -> Option<&dyn GatewayCalls> {
        Some(self)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}

impl GatewayCalls for Intents {
    fn call(&self, effect: &Effect, trace: &str) -> Option<GatewayCall> {
        gateway_call::call(&self.settings.paths, effect, trace)
    }

    fn conclude(&self, admission: AdmissionContext<'_>, outcome: &CallOutcome) -> Conclusion {
        gateway_call::conclude(admission, outcome)
    }

    fn evidence(&self, outcome: &CallOutcome) -> Evidence {
        Evidence::of(&gateway_call::evidence(outcome))
    }

    fn with_headers(&self, facts: &Object<'_>, trace: &str, reply: StoredReply) -> Reply {
        reply::with_headers(facts, trace, reply)
    }

    fn reply_from_state(&self, recorded: &RecordedEntry, effect: Option<&Effect>) -> Reply {
        reply::reply(recorded, effect)
    }

    fn is_executing(&self) -> bool {
        self.settings.execute
    }
}
