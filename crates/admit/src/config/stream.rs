//! `[stream]`: the streamer, `admit stream`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_runs::catalogue::Catalogue;
use admit_runs::id_format::is_platform_run;
use admit_runs::streamer::settings::{CHECKPOINT_EVERY_MAX, CONTROL_TOPIC, PRODUCER};
use admit_runs::streamer::{RetryPolicy, Settings};
use serde::{Deserialize, Deserializer, Serialize};

use super::{Config, ConfigError};

/// `[stream]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StreamConfig {
    /// URL of the gate. Empty: this machine, at `listen`.
    pub(crate) gate: String,
    /// File with the gate's API key. Empty: none, or the variable `ADMIT_KEY`.
    pub(crate) gate_key_file: String,
    /// Header for the key.
    pub(crate) gate_key_header: String,
    /// Health check URLs that must return success before a run is streamed.
    pub(crate) require_alive: Vec<String>,
    /// Root of relative pack locations. Empty: the working directory.
    pub(crate) packs: PathBuf,
    /// Catalogue of outputs and gates. Empty: the shipped one.
    pub(crate) catalogue: PathBuf,
    /// Profile; `dev` and `prod` require a manifest and a seal in packs.
    pub(crate) profile: String,
    /// Mode of the catalogue, which determines the outputs.
    pub(crate) mode: String,
    /// Outputs to stream. Empty: all of the mode.
    pub(crate) outputs: Vec<String>,
    /// Platform run to stream. Empty: all.
    pub(crate) platform_run_id: String,
    /// Producer in envelopes.
    pub(crate) producer: String,
    /// Allowed producers.
    pub(crate) producers_allowed: Vec<String>,
    /// Topic of READY messages.
    pub(crate) control_topic: String,
    /// Rows of an output between two checkpoints: the maximum that is resent after a crash.
    pub(crate) checkpoint_every: u64,
    /// Maximum envelopes in flight per output.
    pub(crate) in_flight: usize,
    /// Concurrent outputs; 0 is all.
    pub(crate) concurrency: usize,
    /// Maximum rows per output; 0 is all.
    pub(crate) max_events_per_output: u64,
    /// Maximum READY messages per poll; 0 is all.
    pub(crate) max_messages: u64,
    /// Speed-up of the rows' event time against real time; 0 or less for no pacing.
    pub(crate) speedup: Speedup,
    /// Maximum attempts per envelope; then the run fails.
    pub(crate) retry_max_attempts: u32,
    /// Initial backoff, in milliseconds; doubles with each attempt.
    pub(crate) retry_base_delay_ms: u64,
    /// Maximum backoff, in milliseconds.
    pub(crate) retry_max_delay_ms: u64,
    /// Request timeout of a push, in milliseconds.
    pub(crate) push_timeout_ms: u64,
    /// Poll interval of the control bus, in milliseconds.
    pub(crate) poll_ms: u64,
}

impl Default for StreamConfig {
    fn default() -> Self {
        let settings = Settings::default();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            gate: String::new(),
            gate_key_file: String::new(),
            gate_key_header: "X-IG-Api-Key".to_owned(),
            require_alive: Vec::new(),
            packs: PathBuf::new(),
            catalogue: PathBuf::new(),
            profile: settings.profile,
            mode: settings.mode,
            outputs: Vec::new(),
            platform_run_id: String::new(),
            producer: PRODUCER.to_owned(),
            producers_allowed: vec![PRODUCER.to_owned()],
            control_topic: CONTROL_TOPIC.to_owned(),
            checkpoint_every: settings.checkpoint_every,
            in_flight: settings.in_flight,
            concurrency: settings.concurrency,
            max_events_per_output: 0,
            max_messages: 0,
            speedup: Speedup(settings.speedup),
            retry_max_attempts: settings.retry.max_attempts,
            retry_base_delay_ms: millis(settings.retry.base_delay),
            retry_max_delay_ms: millis(settings.retry.max_delay),
            push_timeout_ms: 30_000,
            poll_ms: millis(settings.poll_every),
        }
    }
}

impl StreamConfig {
    /// Settings of the streamer. Relative paths start at `base`.
    pub(crate) fn settings(&self, base: &Path) -> Result<Settings, ConfigError> {
        self.check()?;
        let above_zero = |number: u64| (number > 0).then_some(number);
        Ok(Settings {
            catalogue: self.catalogue(base)?,
            mode: self.mode.clone(),
            outputs: self.outputs.clone(),
            profile: self.profile.clone(),
            platform_run_id: Some(self.platform_run_id.trim().to_owned())
                .filter(|run| !run.is_empty()),
            again: false,
            from_start: false,
            producer: self.producer.clone(),
            producers_allowed: self.producers_allowed.clone(),
            control_topic: self.control_topic.clone(),
            checkpoint_every: self.checkpoint_every,
            in_flight: self.in_flight,
            concurrency: self.concurrency,
            max_events_per_output: above_zero(self.max_events_per_output),
            max_messages: above_zero(self.max_messages),
            speedup: self.speedup.0,
            retry: RetryPolicy {
                max_attempts: self.retry_max_attempts,
                base_delay: Duration::from_millis(self.retry_base_delay_ms),
                max_delay: Duration::from_millis(self.retry_max_delay_ms),
                ..RetryPolicy::default()
            },
            poll_every: Duration::from_millis(self.poll_ms),
        })
    }

    /// Loads the catalogue; the shipped one by default.
    pub(crate) fn catalogue(&self, base: &Path) -> Result<Catalogue, ConfigError> {
        if self.catalogue.as_os_str().is_empty() {
            return Ok(Catalogue::shipped());
        }
        let path = base.join(&self.catalogue);
        let text = fs::read_to_string(&path).map_err(|error| {
            rule("catalogue", &format!("{} cannot be read: {error}", path.display()))
        })?;
        let parsed = Catalogue::parse(&text);
        parsed.map_err(|error| rule("catalogue", &format!("{}: {error}", path.display())))
    }

    /// Reads the key file, if configured.
    pub(crate) fn key(&self, base: &Path) -> Result<Option<String>, ConfigError> {
        if self.gate_key_file.is_empty() {
            return Ok(None);
        }
        let path = base.join(&self.gate_key_file);
        let text = fs::read_to_string(&path).map_err(|error| {
            rule("gate_key_file", &format!("{} cannot be read: {error}", path.display()))
        })?;
        match text.trim() {
            "" => Err(rule("gate_key_file", &format!("{} is empty", path.display()))),
            key => Ok(Some(key.to_owned())),
        }
    }

    /// Cross-field validation.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        for (key, value, max) in [
            ("checkpoint_every", self.checkpoint_every, CHECKPOINT_EVERY_MAX),
            ("in_flight", self.in_flight as u64, 1_024),
            ("retry_max_attempts", u64::from(self.retry_max_attempts), 1_000),
            ("push_timeout_ms", self.push_timeout_ms, 3_600_000),
            ("poll_ms", self.poll_ms, 3_600_000),
        ] {
            if value == 0 || value > max {
                return Err(rule(key, &format!("must be from 1 to {max}")));
            }
        }
        let run = self.platform_run_id.trim();
        if !run.is_empty() && !is_platform_run(run) {
            let message = "must be empty or a platform run such as platform_20260212T085637Z";
            return Err(rule("platform_run_id", message));
        }
        if self.retry_base_delay_ms > self.retry_max_delay_ms {
            return Err(rule("retry_base_delay_ms", "must not be more than retry_max_delay_ms"));
        }
        Ok(())
    }
}

impl Config {
    /// URL of the gate.
    pub(crate) fn gate_url(&self) -> String {
        if !self.stream.gate.is_empty() {
            return self.stream.gate.clone();
        }
        let has_tls = !self.tls.cert.as_os_str().is_empty();
        let scheme = if has_tls { "https" } else { "http" };
        format!("{scheme}://{}", crate::cli::connect_addr(self.listen))
    }
}

fn rule(key: &str, message: &str) -> ConfigError {
    ConfigError::Rule(format!("stream.{key}: {message}"))
}

/// A finite number; the environment may provide it as text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Speedup(pub(crate) f64);

// Never NaN: deserialization accepts finite numbers only.
impl Eq for Speedup {}

impl<'de> Deserialize<'de> for Speedup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match toml::Value::deserialize(deserializer)? {
            toml::Value::Float(number) => Some(number),
            toml::Value::Integer(number) => number.to_string().parse().ok(),
            toml::Value::String(text) => text.parse().ok(),
            toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_) => None,
        };
        let number = number.filter(|number: &f64| number.is_finite());
        number.map(Self).ok_or_else(|| serde::de::Error::custom("expected a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_is_reported_with_its_key() {
        for (text, expected) in [
            ("checkpoint_every = 0", "stream.checkpoint_every: must be from 1 to 10000"),
            ("checkpoint_every = 10001", "stream.checkpoint_every"),
            ("in_flight = 0", "stream.in_flight"),
            ("platform_run_id = 'tuesday'", "stream.platform_run_id: must be"),
            ("retry_max_attempts = 0", "stream.retry_max_attempts"),
            ("retry_base_delay_ms = 6000", "stream.retry_base_delay_ms"),
            ("catalogue = \"lost.json\"", "lost.json cannot be read"),
        ] {
            let config: StreamConfig = toml::from_str(text).unwrap();
            let error = config.settings(Path::new("")).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(toml::from_str::<StreamConfig>("speedup = \"fast\"").is_err());
        assert!(toml::from_str::<StreamConfig>("speedup = nan").is_err());
    }

    #[test]
    fn the_defaults_are_those_of_the_streamer() {
        let config = StreamConfig::default();
        let defaults = Settings::default();
        assert_eq!(config.settings(Path::new("")).unwrap(), defaults);
        let whole: StreamConfig = toml::from_str("speedup = 600").unwrap();
        assert_eq!(whole, config, "integers are accepted");
    }
}
