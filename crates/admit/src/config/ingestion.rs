//! `[doors.ingestion-gate]`: authentication, policy, publishing and health of the ingestion gate.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_contracts::ingestion_gate::health::HealthThresholds;
use admit_contracts::ingestion_gate::policy::{
    IngestionPolicy, PolicyFile, PolicyFiles, schema_paths, shipped_files,
};
use admit_contracts::ingestion_gate::service_token::ServiceTokens;
use admit_contracts::ingestion_gate::{ArtifactPaths, AuthMode, IngestionGate, Settings};
use admit_gate::ingest::IngestSettings;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::principal::KeyList;

/// Variable with the comma-separated secrets of service tokens, if the config has none.
const TOKEN_SECRETS: &str = "IG_SERVICE_TOKEN_SECRETS";

/// Variables with the release id on receipts, if the config has none; the first that is set.
const RELEASES: [&str; 3] =
    ["INGESTION_GATE_SERVICE_RELEASE_ID", "INGESTION_GATE_RELEASE_ID", "SERVICE_RELEASE_ID"];

/// `[doors.ingestion-gate]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IngestionConfig {
    /// Whether the door is open.
    pub(crate) enabled: bool,
    /// Path of the door.
    pub(crate) path: String,
    /// Header for the API key or token; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Authentication of producers: `api_key` or `service_token`. Always `disabled` without principals.
    pub(crate) auth_mode: String,
    /// Secrets of service tokens: literal, or `file:PATH`.
    pub(crate) service_token_secrets: KeyList,
    /// Policy file, JSON or YAML. Empty: the shipped one.
    pub(crate) class_map: PathBuf,
    /// See `class_map`.
    pub(crate) schema_policy: PathBuf,
    /// See `class_map`.
    pub(crate) partitioning: PathBuf,
    /// Policy revision on receipts.
    pub(crate) policy_revision: String,
    /// Environment on receipts.
    pub(crate) environment: String,
    /// Release id on receipts. Empty: from the environment, else `dev-local`.
    pub(crate) service_release_id: String,
    /// Longest wait of a duplicate for the outcome of an event in flight, in milliseconds.
    pub(crate) in_flight_wait_ms: u64,
    /// Publish timeout, in milliseconds; then the publish is ambiguous.
    pub(crate) publish_wait_ms: u64,
    /// Maximum messages per publish call.
    pub(crate) publish_batch_max: usize,
    /// Validity of a health probe's result, in seconds.
    pub(crate) health_probe_interval_seconds: u64,
    /// Consecutive publish failures that close the door, until a probe succeeds.
    pub(crate) bus_publish_failure_threshold: u32,
    /// Whether events are refused while the health of the bus is unknown (amber).
    pub(crate) health_deny_on_amber: bool,
    /// Delay of each event while the health is amber, in milliseconds.
    pub(crate) health_amber_sleep_ms: u64,
    /// Rate limit: maximum pushes in any 60 seconds, over all producers; 0 is no limit.
    pub(crate) push_rate_limit_per_minute: usize,
    /// Interval of syncing receipts to disk, in milliseconds.
    pub(crate) artifacts_sync_ms: u64,
    /// Longest wait for events in flight when a run is closed, in milliseconds.
    pub(crate) closing_wait_ms: u64,
}

impl Default for IngestionConfig {
    fn default() -> Self {
        let (settings, ingest) = (Settings::default(), IngestSettings::default());
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            enabled: true,
            path: "/v1/ingest/push".to_owned(),
            api_key_header: "X-IG-Api-Key".to_owned(),
            auth_mode: settings.auth_mode.as_str().to_owned(),
            service_token_secrets: KeyList::default(),
            class_map: PathBuf::new(),
            schema_policy: PathBuf::new(),
            partitioning: PathBuf::new(),
            policy_revision: settings.policy_revision,
            environment: settings.environment,
            service_release_id: String::new(),
            in_flight_wait_ms: millis(ingest.in_flight_wait),
            publish_wait_ms: millis(ingest.publish_wait),
            publish_batch_max: ingest.publish_batch_max,
            health_probe_interval_seconds: ingest.probe_every.as_secs(),
            bus_publish_failure_threshold: ingest.rules.publish_failures_max,
            health_deny_on_amber: ingest.rules.deny_on_amber,
            health_amber_sleep_ms: millis(ingest.amber_pause),
            push_rate_limit_per_minute: ingest.pushes_per_minute_max,
            artifacts_sync_ms: millis(ingest.sync_every),
            closing_wait_ms: 10_000,
        }
    }
}

/// Folder of a `file:` URL. The error shows only the scheme of other URLs, which may contain a password.
pub(super) fn folder(key: &str, url: &str, data: &Path) -> Result<PathBuf, ConfigError> {
    match url.strip_prefix("file:") {
        Some("") => Ok(data.join(key)),
        Some(path) => Ok(PathBuf::from(path.strip_prefix("//").unwrap_or(path))),
        None => {
            let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
            let message = format!(
                "{key}.url \"{scheme}:…\" is not supported by this build; use \"file:\" or \"file:PATH\""
            );
            Err(ConfigError::Rule(message))
        }
    }
}

impl IngestionConfig {
    /// Builds the contract. `is_open` for a gate without principals.
    pub(crate) fn contract(
        &self,
        base: &Path,
        paths: ArtifactPaths,
        is_open: bool,
        json_depth_max: usize,
    ) -> Result<IngestionGate, ConfigError> {
        // An invalid value is an error even if it is not used.
        AuthMode::parse(&self.auth_mode).map_err(|error| rule("auth_mode", &error))?;
        let auth_mode = if is_open { AuthMode::Disabled } else { self.mode()? };
        let policy = self.policy(base)?;
        let settings = Settings {
            policy_revision: self.revision(&policy),
            service_release_id: self.release(),
            environment: self.environment.clone(),
            auth_mode,
            paths,
            json_depth_max,
        };
        IngestionGate::new(settings, policy).map_err(|error| rule("policy", &error))
    }

    /// Policy revision on receipts. Custom files never get the name of the shipped policy.
    fn revision(&self, policy: &IngestionPolicy) -> String {
        let shipped = Settings::default().policy_revision;
        let own = [&self.class_map, &self.schema_policy, &self.partitioning];
        if self.policy_revision == shipped && own.iter().any(|path| !path.as_os_str().is_empty()) {
            return format!("custom-{}", &policy.digest()[..12]);
        }
        self.policy_revision.clone()
    }

    /// All topics that this door publishes to.
    pub(crate) fn topics(&self, base: &Path) -> Result<Vec<String>, ConfigError> {
        Ok(self.contract(base, ArtifactPaths::top(), true, 1)?.topics())
    }

    pub(crate) fn release(&self) -> String {
        if !self.service_release_id.is_empty() {
            return self.service_release_id.clone();
        }
        let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
        RELEASES.iter().find_map(set).unwrap_or_else(|| "dev-local".to_owned())
    }

    fn mode(&self) -> Result<AuthMode, ConfigError> {
        match AuthMode::parse(&self.auth_mode) {
            Ok(AuthMode::Disabled) => Err(rule(
                "auth_mode",
                &"disabled is allowed only without principals; use api_key or service_token",
            )),
            Ok(mode) => Ok(mode),
            Err(error) => Err(rule("auth_mode", &error)),
        }
    }

    /// Whether producers authenticate with service tokens.
    pub(crate) fn takes_tokens(&self) -> bool {
        matches!(AuthMode::parse(&self.auth_mode), Ok(AuthMode::ServiceToken))
    }

    /// Loads the policy: the shipped files, or those of the config in their place.
    pub(crate) fn policy(&self, base: &Path) -> Result<IngestionPolicy, ConfigError> {
        let files = self.policy_files(base)?;
        IngestionPolicy::load(&files).map_err(|errors| ConfigError::Rule(errors.to_string()))
    }

    fn policy_files(&self, base: &Path) -> Result<PolicyFiles, ConfigError> {
        let mut files = shipped_files();
        let read = |path: &Path| {
            let shown = path.to_string_lossy().into_owned();
            let bytes = fs::read(base.join(path)).map_err(|error| {
                ConfigError::Rule(format!("{shown}: the policy file cannot be read: {error}"))
            })?;
            Ok::<_, ConfigError>(PolicyFile::new(shown, bytes))
        };
        let is_set = |path: &Path| !path.as_os_str().is_empty();
        if is_set(&self.class_map) {
            files.class_map = read(&self.class_map)?;
        }
        if is_set(&self.partitioning) {
            files.partitioning = read(&self.partitioning)?;
        }
        if is_set(&self.schema_policy) {
            files.schema_policy = read(&self.schema_policy)?;
            let folder = self.schema_policy.parent().unwrap_or(Path::new(""));
            let named = schema_paths(&files.schema_policy)
                .map_err(|errors| ConfigError::Rule(errors.to_string()))?;
            files.schemas = named
                .into_iter()
                .map(|named| Ok(PolicyFile { path: named.clone(), ..read(&folder.join(named))? }))
                .collect::<Result<_, ConfigError>>()?;
        }
        Ok(files)
    }

    /// Settings of the ingestion pipeline.
    pub(crate) fn settings(
        &self,
        base: &Path,
        is_open: bool,
    ) -> Result<IngestSettings, ConfigError> {
        let tokens = match is_open {
            false if self.mode()? == AuthMode::ServiceToken => Some(self.tokens(base)?),
            _ => None,
        };
        Ok(IngestSettings {
            in_flight_wait: Duration::from_millis(self.in_flight_wait_ms),
            publish_wait: Duration::from_millis(self.publish_wait_ms),
            probe_every: Duration::from_secs(self.health_probe_interval_seconds),
            rules: HealthThresholds {
                publish_failures_max: self.bus_publish_failure_threshold,
                deny_on_amber: self.health_deny_on_amber,
                ..HealthThresholds::default()
            },
            amber_pause: Duration::from_millis(self.health_amber_sleep_ms),
            publish_batch_max: self.publish_batch_max,
            pushes_per_minute_max: self.push_rate_limit_per_minute,
            sync_every: Duration::from_millis(self.artifacts_sync_ms),
            write_behind: None,
            tokens,
        })
    }

    fn tokens(&self, base: &Path) -> Result<ServiceTokens, ConfigError> {
        let mut secrets = Vec::new();
        for spec in self.service_token_secrets.iter() {
            let secret = match spec.strip_prefix("file:") {
                None => spec.to_owned(),
                Some(path) => {
                    let path = base.join(path);
                    let text = fs::read_to_string(&path).map_err(|error| {
                        let message = format!("{} cannot be read: {error}", path.display());
                        rule("service_token_secrets", &message)
                    })?;
                    text.trim().to_owned()
                }
            };
            secrets.push(secret);
        }
        if secrets.is_empty() {
            let named = std::env::var(TOKEN_SECRETS).unwrap_or_default();
            secrets.extend(named.split(',').map(|secret| secret.trim().to_owned()));
        }
        secrets.retain(|secret| !secret.is_empty());
        if secrets.is_empty() {
            return Err(rule(
                "service_token_secrets",
                &"AUTH_SERVICE_TOKEN_SECRET_MISSING: auth_mode service_token requires at least one secret",
            ));
        }
        Ok(ServiceTokens::new(secrets, Vec::<String>::new()))
    }

    /// Cross-field validation.
    pub(super) fn check(&self, base: &Path, is_open: bool) -> Result<(), ConfigError> {
        for (key, value) in [
            ("publish_wait_ms", self.publish_wait_ms),
            ("publish_batch_max", self.publish_batch_max as u64),
            ("health_probe_interval_seconds", self.health_probe_interval_seconds),
            ("artifacts_sync_ms", self.artifacts_sync_ms),
        ] {
            if value == 0 {
                return Err(rule(key, &"must be greater than 0"));
            }
        }
        self.contract(base, ArtifactPaths::top(), is_open, 1)?;
        self.settings(base, is_open).map(drop)
    }
}

fn rule(key: &str, message: &dyn fmt::Display) -> ConfigError {
    ConfigError::Rule(format!("doors.ingestion-gate.{key}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> IngestionConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn an_invalid_setting_is_reported_with_its_key() {
        for (text, expected) in [
            ("auth_mode = \"jwt\"", "AUTH_MODE_UNSUPPORTED"),
            ("auth_mode = \"magic\"", "AUTH_MODE_UNKNOWN"),
            ("auth_mode = \"disabled\"", "without principals"),
            ("auth_mode = \"service_token\"", "AUTH_SERVICE_TOKEN_SECRET_MISSING"),
            ("publish_wait_ms = 0", "publish_wait_ms"),
            ("environment = \"\"", "environment"),
            ("class_map = \"lost.yaml\"", "lost.yaml: the policy file cannot be read"),
        ] {
            let error = read(text).check(Path::new(""), false).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_invalid_auth_mode_is_refused_even_without_principals() {
        for (text, expected) in [
            ("auth_mode = \"magic\"", "AUTH_MODE_UNKNOWN"),
            ("auth_mode = \"jwt\"", "AUTH_MODE_UNSUPPORTED"),
        ] {
            let error = read(text).check(Path::new(""), true).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        for text in ["auth_mode = \"disabled\"", "auth_mode = \"service_token\"", ""] {
            read(text).check(Path::new(""), true).unwrap();
        }
    }

    #[test]
    fn custom_policy_files_do_not_get_the_name_of_the_shipped_policy() {
        let folder = tempfile::tempdir().unwrap();
        let shipped = shipped_files();
        fs::write(folder.path().join("map.yaml"), &shipped.class_map.bytes).unwrap();
        let revision = |text: &str| {
            let gate = read(text).contract(folder.path(), ArtifactPaths::top(), true, 64).unwrap();
            gate.policy_rev().revision
        };
        assert_eq!(revision(""), "builtin-v0");
        let own = revision("class_map = \"map.yaml\"");
        assert!(own.starts_with("custom-") && own.len() == 19, "{own}");
        let named = "class_map = \"map.yaml\"\npolicy_revision = \"v7\"";
        assert_eq!(revision(named), "v7");
    }

    #[test]
    fn an_invalid_policy_is_reported_with_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("map.yaml"), "version: v0\nclasses: [\n").unwrap();
        let error = read("class_map = \"map.yaml\"").policy(folder.path()).unwrap_err().to_string();
        assert!(error.contains("map.yaml:"), "{error}");
    }

    #[test]
    fn an_invalid_file_url_is_reported_without_secrets() {
        let mut config = crate::config::Config::default();
        assert_eq!(config.bus_root().unwrap(), Path::new("./admit-data/bus"));
        config.bus.url = "nats://me:hush@bus".to_owned();
        let error = config.bus_root().unwrap_err().to_string();
        assert!(error.contains("nats:…") && !error.contains("hush"), "{error}");
    }
}
