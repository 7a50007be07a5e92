//! `[doors.rounds]`: whose clock the sources go by, and how near is near enough.

use admit_contracts::rounds::{Rounds, Settings};
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// A window as long as the pause between two evenings of play would link one to the other.
const WINDOW_MINUTES_MAX: u32 = 59;

/// `[doors.rounds]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RoundsConfig {
    /// Whether the door is there.
    pub(crate) enabled: bool,
    /// Where sources post: below this path, each under its own name.
    pub(crate) path: String,
    /// The header that may carry a key; `Authorization: Bearer` always works too.
    pub(crate) api_key_header: String,
    /// The zone of the game servers' clocks, in which file names and match ids are written.
    pub(crate) time_zone: String,
    /// How far two clocks may be apart for what they tell to be the same round, in minutes.
    pub(crate) match_window_minutes: u32,
}

impl Default for RoundsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/v1/rounds".to_owned(),
            api_key_header: "X-API-Key".to_owned(),
            time_zone: "Europe/Ljubljana".to_owned(),
            match_window_minutes: 45,
        }
    }
}

impl RoundsConfig {
    /// The contract that this describes.
    pub(crate) fn contract(&self, json_depth_max: usize) -> Result<Rounds, ConfigError> {
        let settings = Settings {
            time_zone: self.time_zone.clone(),
            match_window_minutes: self.match_window_minutes,
            json_depth_max,
        };
        Rounds::new(settings)
            .map_err(|error| ConfigError::Rule(format!("doors.rounds.time_zone: {error}")))
    }

    /// What no single value can break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=WINDOW_MINUTES_MAX).contains(&self.match_window_minutes) {
            return Err(ConfigError::Rule(format!(
                "doors.rounds.match_window_minutes: must be 1 to {WINDOW_MINUTES_MAX}: after an hour \
                 without a round another session begins"
            )));
        }
        self.contract(1).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_door_say_so() {
        for (text, expected) in [
            ("time_zone = \"Moon/Crater\"", "doors.rounds.time_zone"),
            ("match_window_minutes = 0", "must be 1 to 59"),
            ("match_window_minutes = 60", "must be 1 to 59"),
        ] {
            let config: RoundsConfig = toml::from_str(text).unwrap();
            let found = config.check().unwrap_err().to_string();
            assert!(found.contains(expected), "{text}: {found}");
        }
        RoundsConfig::default().check().unwrap();
    }
}
