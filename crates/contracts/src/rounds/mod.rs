//! `rounds`: several sources tell of the same round of a game; each is kept, one record is made.
//!
//! A source posts its artifact as it is, or a normalised `round_event`. Parsers make drafts of it,
//! `told` makes a source event of a draft, and `admit_core::record` does the rest by the table in
//! [`policy`]: this contract knows files and messages, the core knows none of them.

mod clock;
mod describe;
mod draft;
mod gametime;
mod lua;
mod name;
mod named;
mod normalised;
pub mod policy;
mod proximity;
mod reply;
mod stats;
pub mod tables;
mod told;
mod value;
mod vet;

use std::sync::Arc;

use admit_core::record::Policy;
use admit_core::{Code, Door, Entry, Recorded, Submission};
use jiff::tz::TimeZone;

use crate::{BELOW, Contract, Description, QUERY, Reply};

pub use vet::{recompute, retell};

/// The name of the door this contract is made for.
pub const DOOR: &str = "rounds";

/// The settings of this door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The zone of the game servers' clocks, in which file names and match ids are written.
    pub time_zone: String,
    /// How far two clocks may be apart for what they tell to be the same round, in minutes.
    pub match_window_minutes: u32,
    /// Deepest nesting of a body; deeper ones cannot be read.
    pub json_depth_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            time_zone: "Europe/Ljubljana".to_owned(),
            match_window_minutes: 45,
            json_depth_max: 128,
        }
    }
}

/// A time zone that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}; use a name such as Europe/Ljubljana or UTC")]
pub struct NoSuchZone(String);

/// The contract. See the module.
#[derive(Clone, Debug)]
pub struct Rounds {
    settings: Settings,
    zone: TimeZone,
    policy: Arc<Policy>,
}

impl Rounds {
    /// The contract with these settings, or why they make none.
    pub fn new(settings: Settings) -> Result<Self, NoSuchZone> {
        let zone = TimeZone::get(&settings.time_zone)
            .map_err(|_| NoSuchZone(settings.time_zone.clone()))?;
        let policy = Arc::new(policy::policy(settings.match_window_minutes));
        Ok(Self { settings, zone, policy })
    }

    /// The table that events of this door are resolved by.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }
}

impl Contract for Rounds {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &Recorded) -> Reply {
        reply::reply(recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn headers(&self) -> &[&str] {
        &[BELOW, QUERY]
    }

    fn below(&self) -> &[&str] {
        &policy::SOURCES
    }

    fn record_policy(&self) -> Option<&Arc<Policy>> {
        Some(&self.policy)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}
