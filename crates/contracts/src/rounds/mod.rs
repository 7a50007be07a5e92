//! `rounds`: several sources report the same game round; each report is stored, and all are merged
//! into one record.
//!
//! A source posts its artifact unmodified, or a normalised `round_event`. Parsers turn it into a
//! `ParsedEvent`, `source_event` turns that into a source event, and `admit_core::entity` merges it
//! by the table in [`policy`]: this contract knows files and messages, the core knows none of them.

mod coerce;
mod describe;
mod filenames;
mod game_names;
mod gametime;
mod lua;
mod normalised;
mod parsed_event;
pub mod policy;
mod proximity;
mod reply;
mod source_event;
pub mod sql_tables;
mod stats;
mod timezone;
mod vet;

use std::sync::Arc;

use admit_core::entity::Policy;
use admit_core::{Code, Door, Entry, RecordedEntry, Submission};
use jiff::tz::TimeZone;

use crate::{Contract, Description, QUERY, Reply, SUBPATH};

pub use vet::{rebuild, recompute};

/// Default door name of this contract.
pub const DOOR: &str = "rounds";

/// Settings of this door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time zone of the game servers' clocks, used in file names and match ids.
    pub time_zone: String,
    /// Maximum clock difference between two reports of the same round, in minutes.
    pub match_window_minutes: u32,
    /// Maximum nesting depth of a body; deeper ones cannot be parsed.
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

/// Unknown time zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no time zone {0:?}; use a name such as Europe/Ljubljana or UTC")]
pub struct UnknownServerTimeZone(String);

/// The `rounds` contract. See the module.
#[derive(Clone, Debug)]
pub struct Rounds {
    settings: Settings,
    zone: TimeZone,
    policy: Arc<Policy>,
}

impl Rounds {
    /// Creates the contract.
    ///
    /// # Errors
    /// If the time zone is unknown.
    pub fn new(settings: Settings) -> Result<Self, UnknownServerTimeZone> {
        let zone = TimeZone::get(&settings.time_zone)
            .map_err(|_| UnknownServerTimeZone(settings.time_zone.clone()))?;
        let policy = Arc::new(policy::policy(settings.match_window_minutes));
        Ok(Self { settings, zone, policy })
    }

    /// Merge policy for events of this door.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }
}

impl Contract for Rounds {
    fn vet(&self, door: &Door, submission: Submission) -> Entry {
        vet::vet(self, door, submission)
    }

    fn reply(&self, recorded: &RecordedEntry) -> Reply {
        reply::reply(recorded)
    }

    fn refuse(&self, code: Code, message: &str, retry_after_seconds: u32) -> Reply {
        reply::refuse(code, message, retry_after_seconds)
    }

    fn headers(&self) -> &[&str] {
        &[SUBPATH, QUERY]
    }

    fn subpaths(&self) -> &[&str] {
        &policy::SOURCES
    }

    fn record_policy(&self) -> Option<&Arc<Policy>> {
        Some(&self.policy)
    }

    fn describe(&self) -> Description {
        describe::description()
    }
}
