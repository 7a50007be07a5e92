//! `[doors.intents]`: execution of intents through a gateway.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::intents::{ActionPaths, Intents, Settings};
use admit_gate::gateway::{Gateway, HttpGateway, HttpGatewayConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ConfigError;

/// `[doors.intents]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IntentsConfig {
    /// Whether the door is open.
    pub(crate) enabled: bool,
    /// Path of the door.
    pub(crate) path: String,
    /// Header for the API key; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Whether plans are executed. Otherwise they are stored as `planned`, for a replay.
    pub(crate) execute_actions: bool,
    /// Base URL of the gateway, `http://` or `https://`. Empty: no gateway.
    pub(crate) gateway_base_url: String,
    /// Token of the gateway, sent as `Authorization: Bearer`. Prefer a file.
    pub(crate) gateway_token: HiddenText,
    /// File with the token. A relative path starts at the config file's folder.
    pub(crate) gateway_token_file: String,
    /// Timeout of a gateway call, in milliseconds; then its outcome is unknown.
    pub(crate) gateway_timeout_ms: u64,
    /// Time zone of relative dates such as `tomorrow`.
    pub(crate) time_zone: String,
    /// Minimum `confidence` of packets that are executed.
    pub(crate) confidence_min: ConfidenceMin,
    /// Longest wait of a duplicate for the outcome of the first event, in milliseconds.
    pub(crate) in_work_wait_ms: u64,
    /// Path of each action, below `gateway_base_url`.
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
            gateway_token: HiddenText::default(),
            gateway_token_file: String::new(),
            gateway_timeout_ms: 15_000,
            time_zone: settings.time_zone,
            confidence_min: ConfidenceMin(settings.confidence_min),
            in_work_wait_ms: 10_000,
            paths: settings.paths,
        }
    }
}

impl IntentsConfig {
    /// Builds the contract.
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

    /// Builds the gateway, if one is configured.
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

    /// Cross-field validation.
    pub(super) fn check(&self, base: &Path) -> Result<(), ConfigError> {
        if self.execute_actions && self.gateway_base_url.is_empty() {
            return Err(rule(
                "execute_actions",
                &"a gateway is required to execute actions: set gateway_base_url",
            ));
        }
        if !self.gateway_token.0.is_empty() && !self.gateway_token_file.is_empty() {
            return Err(rule(
                "gateway_token",
                &"set gateway_token or gateway_token_file, not both",
            ));
        }
        if self.gateway_timeout_ms == 0 {
            return Err(rule("gateway_timeout_ms", &"must be greater than 0"));
        }
        let is_path = |path: &str| {
            path.starts_with('/')
                && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        };
        if let Some((name, path)) = self.paths.iter().find(|(_, path)| !is_path(path)) {
            let message = format!("{path:?} must start with / and contain no query or space");
            return Err(rule(&format!("paths.{name}"), &message));
        }
        self.contract(1)?;
        self.gateway(base).map(drop)
    }
}

fn rule(key: &str, message: &dyn fmt::Display) -> ConfigError {
    ConfigError::Rule(format!("doors.intents.{key}: {message}"))
}

/// A string that is hidden in its debug and serialised form.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct HiddenText(String);

impl HiddenText {
    /// Returns the string.
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

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for HiddenText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// A number from 0 to 1; the environment may provide it as text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct ConfidenceMin(f64);

// Never NaN: deserialization accepts numbers from 0 to 1 only.
impl Eq for ConfidenceMin {}

impl<'de> Deserialize<'de> for ConfidenceMin {
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

    fn error_of(text: &str) -> String {
        let config: IntentsConfig = match toml::from_str(text) {
            Ok(config) => config,
            Err(error) => return error.message().to_owned(),
        };
        config.check(Path::new("")).unwrap_err().to_string()
    }

    #[test]
    fn invalid_settings_are_refused() {
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
            let found = error_of(text);
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
