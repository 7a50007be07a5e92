//! `[doors.intents]`: what is acted on, through which gateway, and how sure it must be.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::intents::{Intents, ActionPaths, Settings};
use admit_gate::gateway::{Gateway, HttpGateway, HttpGatewayConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ConfigError;

/// `[doors.intents]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IntentsConfig {
    /// Whether the door is there.
    pub(crate) enabled: bool,
    /// Where intents are posted.
    pub(crate) path: String,
    /// The header that may carry a key; `Authorization: Bearer` always works too.
    pub(crate) api_key_header: String,
    /// Whether plans are executed. Off: they are kept as `planned` until somebody replays them.
    pub(crate) execute_actions: bool,
    /// Where actions are posted, `http://` or `https://`. Empty: there is no gateway.
    pub(crate) gateway_base_url: String,
    /// The gateway's token, sent as `Authorization: Bearer`. Better in a file.
    pub(crate) gateway_token: Secret,
    /// A file that holds the token. A relative path starts at the config file's folder.
    pub(crate) gateway_token_file: String,
    /// Longest a call may take, in milliseconds. Then its outcome is unknown and stays so.
    pub(crate) gateway_timeout_ms: u64,
    /// The zone in which `tomorrow` and the like are meant.
    pub(crate) time_zone: String,
    /// Packets with less `confidence` are not acted on.
    pub(crate) confidence_min: Confidence,
    /// How long a copy waits for the outcome of the first, in milliseconds.
    pub(crate) in_work_wait_ms: u64,
    /// Where each action is posted, below `gateway_base_url`.
    pub(crate) paths: ActionPaths,
}

impl Default for IntentsConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            enabled: true,
            path: "/v1/intents".to_owned(),
            api_key_header: "X-API-Key".to_owned(),
            execute_actions: settings.execute,
            gateway_base_url: String::new(),
            gateway_token: Secret::default(),
            gateway_token_file: String::new(),
            gateway_timeout_ms: 15_000,
            time_zone: settings.time_zone,
            confidence_min: Confidence(settings.confidence_min),
            in_work_wait_ms: 10_000,
            paths: settings.paths,
        }
    }
}

impl IntentsConfig {
    /// The contract that this describes.
    pub(crate) fn contract(&self, json_depth_max: usize) -> Result<Intents, ConfigError> {
        let settings = Settings {
            execute: self.execute_actions,
            time_zone: self.time_zone.clone(),
            confidence_min: self.confidence_min.0,
            paths: self.paths.clone(),
            json_depth_max,
        };
        Intents::new(settings).map_err(|error| rule("time_zone", &error))
    }

    /// The gateway that this describes, if it does.
    pub(crate) fn gateway(&self, base: &Path) -> Result<Option<Arc<dyn Gateway>>, ConfigError> {
        if self.gateway_base_url.is_empty() {
            return Ok(None);
        }
        let config = HttpGatewayConfig {
            base_url: self.gateway_base_url.clone(),
            token: self.token(base)?,
            call_max: Duration::from_millis(self.gateway_timeout_ms),
        };
        let gateway =
            HttpGateway::new(&config).map_err(|error| rule("gateway_base_url", &error))?;
        Ok(Some(Arc::new(gateway)))
    }

    fn token(&self, base: &Path) -> Result<Option<String>, ConfigError> {
        if self.gateway_token_file.is_empty() {
            let token = Some(self.gateway_token.0.clone());
            return Ok(token.filter(|token| !token.is_empty()));
        }
        let path = base.join(&self.gateway_token_file);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let message = format!("{} cannot be read: {error}", path.display());
            rule("gateway_token_file", &message)
        })?;
        match text.trim() {
            "" => Err(rule("gateway_token_file", &format!("{} is empty", path.display()))),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// What no single value can break.
    pub(super) fn check(&self, base: &Path) -> Result<(), ConfigError> {
        if self.execute_actions && self.gateway_base_url.is_empty() {
            return Err(rule(
                "execute_actions",
                &"actions can only be executed through a gateway: set gateway_base_url",
            ));
        }
        if !self.gateway_token.0.is_empty() && !self.gateway_token_file.is_empty() {
            return Err(rule("gateway_token", &"give the token or its file, not both"));
        }
        if self.gateway_timeout_ms == 0 {
            return Err(rule("gateway_timeout_ms", &"must be greater than 0"));
        }
        let is_path = |path: &str| {
            path.starts_with('/')
                && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        };
        if let Some((name, path)) = self.paths.iter().find(|(_, path)| !is_path(path)) {
            let message = format!("{path:?} must start with / and have no query or space");
            return Err(rule(&format!("paths.{name}"), &message));
        }
        self.contract(1)?;
        self.gateway(base).map(drop)
    }
}

fn rule(key: &str, message: &dyn fmt::Display) -> ConfigError {
    ConfigError::Rule(format!("doors.intents.{key}: {message}"))
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// The text itself, for whoever needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn shown(&self) -> &'static str {
        if self.0.is_empty() { "" } else { "(hidden)" }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// A number from 0 to 1, which the environment may write as text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Confidence(f64);

// Never NaN: only numbers from 0 to 1 are read.
impl Eq for Confidence {}

impl<'de> Deserialize<'de> for Confidence {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match toml::Value::deserialize(deserializer)? {
            toml::Value::Float(number) => Some(number),
            toml::Value::Integer(0) => Some(0.0),
            toml::Value::Integer(1) => Some(1.0),
            toml::Value::String(text) => text.parse().ok(),
            toml::Value::Integer(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => None,
        };
        number
            .filter(|number| (0.0..=1.0).contains(number))
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected a number from 0 to 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> String {
        let config: IntentsConfig = match toml::from_str(text) {
            Ok(config) => config,
            Err(error) => return error.message().to_owned(),
        };
        config.check(Path::new("")).unwrap_err().to_string()
    }

    #[test]
    fn settings_that_make_no_door_say_so() {
        for (text, expected) in [
            ("execute_actions = true", "set gateway_base_url"),
            ("gateway_base_url = \"gateway\"", "must be http://HOST or https://HOST"),
            ("gateway_token = \"a\"\ngateway_token_file = \"b\"", "not both"),
            (
                "gateway_base_url = \"http://g\"\ngateway_token_file = \"lost\"",
                "lost cannot be read",
            ),
            ("time_zone = \"Moon/Crater\"", "there is no time zone"),
            ("confidence_min = 2.0", "from 0 to 1"),
            ("paths = { tasks_create = \"x\" }", "paths.tasks_create"),
        ] {
            let found = complaint(text);
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn the_token_is_never_shown() {
        let config: IntentsConfig = toml::from_str("gateway_token = \"hush\"").unwrap();
        let shown = format!("{config:?}{}", toml::to_string(&config).unwrap());
        assert!(!shown.contains("hush") && shown.contains("(hidden)"), "{shown}");
    }
}
