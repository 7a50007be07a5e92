//! `[runner]`: the scenario runner.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use admit_runs::catalogue::SHIPPED;
use admit_runs::runner::active::{ActiveRun, FILE, VARIABLE};
use admit_runs::runner::gate_map::GateMap;
use admit_runs::runner::{Provenance, Settings};
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError};

/// `[runner]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RunnerConfig {
    /// Whether `/runs` is served. Requires the ingestion gate, whose bus it uses.
    pub(crate) enabled: bool,
    /// Root of packs, where relative locations start. Empty: any location.
    pub(crate) packs: PathBuf,
    /// Default pack of requests. Empty: every request must name one.
    pub(crate) engine_run_root: String,
    /// File with the active platform run. Empty: `ACTIVE_RUN_ID` in the data folder.
    pub(crate) active_run_file: PathBuf,
    /// Policy revision in plans and facts.
    pub(crate) policy_revision: String,
    /// Lease of a run, in seconds.
    pub(crate) lease_seconds: u64,
    /// Lease of a re-emission, in seconds.
    pub(crate) reemit_lease_seconds: u64,
    /// Evidence timeout, in seconds.
    pub(crate) evidence_wait_seconds: u64,
    /// Interval of advancing unfinished runs, in seconds.
    pub(crate) look_every_seconds: u64,
    /// Interval of checking and restoring the files of final runs, in seconds.
    pub(crate) restore_every_seconds: u64,
    /// Maximum attempts to create the pack of a run.
    pub(crate) attempt_limit: u32,
    /// Maximum re-emissions of a run within `reemit_window_seconds`.
    pub(crate) reemits_max: usize,
    /// See `reemits_max`.
    pub(crate) reemit_window_seconds: u64,
    /// Whether re-emitting for another platform run than the active one needs an override.
    pub(crate) reemit_same_platform_run_only: bool,
    /// Allowed reasons of such an override.
    pub(crate) override_reasons: Vec<String>,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        let settings =
            Settings::new(GateMap::parse(SHIPPED).expect("the shipped catalogue is valid"));
        Self {
            enabled: true,
            packs: PathBuf::new(),
            engine_run_root: String::new(),
            active_run_file: PathBuf::new(),
            policy_revision: settings.policy_revision,
            lease_seconds: settings.lease_ttl.as_secs(),
            reemit_lease_seconds: settings.reemit_lease_ttl.as_secs(),
            evidence_wait_seconds: settings.evidence_wait.as_secs(),
            look_every_seconds: 5,
            restore_every_seconds: 300,
            attempt_limit: settings.attempt_limit,
            reemits_max: settings.reemits_max,
            reemit_window_seconds: settings.reemit_window.as_secs(),
            reemit_same_platform_run_only: settings.reemit_same_platform_run_only,
            override_reasons: settings.override_reasons,
        }
    }
}

impl RunnerConfig {
    /// Cross-field validation.
    fn check(&self) -> Result<(), ConfigError> {
        const DAY: u64 = 86_400;
        for (key, value, max) in [
            ("lease_seconds", self.lease_seconds, DAY),
            ("reemit_lease_seconds", self.reemit_lease_seconds, DAY),
            ("evidence_wait_seconds", self.evidence_wait_seconds, 30 * DAY),
            ("look_every_seconds", self.look_every_seconds, DAY),
            ("restore_every_seconds", self.restore_every_seconds, DAY),
            ("reemit_window_seconds", self.reemit_window_seconds, 30 * DAY),
            ("attempt_limit", u64::from(self.attempt_limit), 1_000),
        ] {
            if value == 0 || value > max {
                return Err(rule(key, &format!("must be from 1 to {max}")));
            }
        }
        Ok(())
    }
}

impl Config {
    /// Settings of the scenario runner. Outputs, gates and topic are those of `[stream]`. Relative paths
    /// start at `base`.
    pub(crate) fn runner_settings(&self, base: &Path) -> Result<Settings, ConfigError> {
        let runner = &self.runner;
        runner.check()?;
        let seconds = Duration::from_secs;
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(Settings {
            mode: self.stream.mode.clone(),
            policy_revision: runner.policy_revision.clone(),
            provenance: Provenance {
                service_release_id: self.doors.ingestion_gate.release(),
                environment: self.doors.ingestion_gate.environment.clone(),
            },
            control_topic: self.stream.control_topic.clone(),
            engine_run_root: text(&runner.engine_run_root),
            packs: runner.packs.to_str().unwrap_or_default().to_owned(),
            lease_ttl: seconds(runner.lease_seconds),
            reemit_lease_ttl: seconds(runner.reemit_lease_seconds),
            evidence_wait: seconds(runner.evidence_wait_seconds),
            attempt_limit: runner.attempt_limit,
            reemits_max: runner.reemits_max,
            reemit_window: seconds(runner.reemit_window_seconds),
            reemit_same_platform_run_only: runner.reemit_same_platform_run_only,
            override_reasons: runner.override_reasons.clone(),
            owner: format!("gate {} (process {})", self.listen, std::process::id()),
            ..Settings::new(self.gate_map(base)?)
        })
    }

    fn gate_map(&self, base: &Path) -> Result<GateMap, ConfigError> {
        let file = &self.stream.catalogue;
        let text = if file.as_os_str().is_empty() {
            SHIPPED.to_owned()
        } else {
            let path = base.join(file);
            let cannot = |error| {
                ConfigError::Rule(format!(
                    "stream.catalogue: {} cannot be read: {error}",
                    path.display()
                ))
            };
            fs::read_to_string(&path).map_err(cannot)?
        };
        let wrong = |error| ConfigError::Rule(format!("stream.catalogue: {error}"));
        GateMap::parse(&text).map_err(wrong)
    }

    /// Source of the active platform run.
    pub(crate) fn active_run(&self) -> ActiveRun {
        let file = match self.runner.active_run_file.as_os_str().is_empty() {
            true => self.data.join(FILE),
            false => self.runner.active_run_file.clone(),
        };
        ActiveRun::new(std::env::var(VARIABLE).ok(), file)
    }
}

fn rule(key: &str, message: &str) -> ConfigError {
    ConfigError::Rule(format!("runner.{key}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_zero_is_refused() {
        let mut config = Config::default();
        config.runner_settings(Path::new(".")).expect("the defaults");
        config.runner.look_every_seconds = 0;
        let error = config.runner_settings(Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("runner.look_every_seconds"), "{error}");
    }

    #[test]
    fn a_catalogue_with_an_unknown_check_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("c.json"), SHIPPED.replace("sha256_member", "md5_member"))
            .unwrap();
        let mut config = Config::default();
        config.stream.catalogue = PathBuf::from("c.json");
        let error = config.runner_settings(folder.path()).unwrap_err().to_string();
        assert!(error.contains("md5_member"), "{error}");
    }
}
