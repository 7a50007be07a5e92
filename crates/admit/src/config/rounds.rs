//! `[doors.rounds]`: time zone, match window and publishing of rounds.

use std::time::Duration;

use admit_bus::name::check_topic;
use admit_contracts::rounds::{Rounds, Settings};
use admit_gate::publisher::PublisherSettings;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// A longer window could match rounds of different sessions.
const WINDOW_MINUTES_MAX: u32 = 59;

/// Longest settle time.
const SETTLE_MS_MAX: u64 = 24 * 3_600_000;

/// Longest publish timeout.
const PUBLISH_WAIT_MS_MAX: u64 = 600_000;

/// `[doors.rounds]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RoundsConfig {
    /// Whether the door is open.
    pub(crate) enabled: bool,
    /// Base path; each source posts to its own name below it.
    pub(crate) path: String,
    /// Header for the API key; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Time zone of the game servers, used in file names and match ids.
    pub(crate) time_zone: String,
    /// Maximum difference of two sources' times for the same round, in minutes.
    pub(crate) match_window_minutes: u32,
    /// Bus topic of published rounds. Empty: rounds are not published.
    pub(crate) topic: String,
    /// Settle time: a round is published after it has not changed for so long, in milliseconds.
    pub(crate) publish_settle_ms: u64,
    /// Publish timeout, in milliseconds.
    pub(crate) publish_wait_ms: u64,
}

impl Default for RoundsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/v1/rounds".to_owned(),
            api_key_header: "X-API-Key".to_owned(),
            time_zone: "Europe/Ljubljana".to_owned(),
            match_window_minutes: 45,
            topic: String::new(),
            publish_settle_ms: 5_000,
            publish_wait_ms: 10_000,
        }
    }
}

impl RoundsConfig {
    /// Builds the contract.
    pub(crate) fn contract(&self, json_depth_max: usize) -> Result<Rounds, ConfigError> {
        let settings = Settings {
            time_zone: self.time_zone.clone(),
            match_window_minutes: self.match_window_minutes,
            json_depth_max,
        };
        Rounds::new(settings)
            .map_err(|error| ConfigError::Rule(format!("doors.rounds.time_zone: {error}")))
    }

    /// Whether rounds are published.
    pub(crate) fn publishes(&self) -> bool {
        self.enabled && !self.topic.is_empty()
    }

    /// Settings of the publisher.
    pub(crate) fn publishing(&self) -> PublisherSettings {
        PublisherSettings {
            topic: self.topic.as_str().into(),
            settle: Duration::from_millis(self.publish_settle_ms),
            publish_wait: Duration::from_millis(self.publish_wait_ms),
        }
    }

    /// Cross-field validation.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=WINDOW_MINUTES_MAX).contains(&self.match_window_minutes) {
            return Err(ConfigError::Rule(format!(
                "doors.rounds.match_window_minutes: must be from 1 to {WINDOW_MINUTES_MAX}, because a \
                 session ends after an hour without a round"
            )));
        }
        if !self.topic.is_empty()
            && let Err(reason) = check_topic(&self.topic)
        {
            let message =
                format!("doors.rounds.topic: {:?} is not a valid topic: {reason}", self.topic);
            return Err(ConfigError::Rule(message));
        }
        if self.publish_settle_ms > SETTLE_MS_MAX {
            let message =
                format!("doors.rounds.publish_settle_ms: must be from 0 to {SETTLE_MS_MAX}");
            return Err(ConfigError::Rule(message));
        }
        if !(1..=PUBLISH_WAIT_MS_MAX).contains(&self.publish_wait_ms) {
            let message =
                format!("doors.rounds.publish_wait_ms: must be from 1 to {PUBLISH_WAIT_MS_MAX}");
            return Err(ConfigError::Rule(message));
        }
        self.contract(1).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_refused() {
        for (text, expected) in [
            ("time_zone = \"Moon/Crater\"", "doors.rounds.time_zone"),
            ("match_window_minutes = 0", "must be from 1 to 59"),
            ("match_window_minutes = 60", "must be from 1 to 59"),
            ("topic = \"not a topic\"", "doors.rounds.topic"),
            ("publish_settle_ms = 86400001", "doors.rounds.publish_settle_ms"),
            ("publish_wait_ms = 0", "doors.rounds.publish_wait_ms"),
        ] {
            let config: RoundsConfig = toml::from_str(text).unwrap();
            let found = config.check().unwrap_err().to_string();
            assert!(found.contains(expected), "{text}: {found}");
        }
        RoundsConfig::default().check().unwrap();
    }
}
