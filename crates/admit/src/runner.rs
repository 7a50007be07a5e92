//! Puts the scenario runner together, and has it look after what is unfinished.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_bus::Bus;
use admit_contracts::Reply;
use admit_contracts::ingestion_gate::Paths;
use admit_core::Fault;
use admit_gate::SystemClock;
use admit_gate::runs::{Actor, ScenarioRunner, Work};
use admit_runs::runner::reason::RunnerError;
use admit_runs::runner::request::RunRequest;
use admit_runs::runner::{self, Parts, Reemit, Runner, Standing, identity};
use admit_runs::streamer::OpenPack;
use bytes::Bytes;

use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::{Failure, with_cause};
use crate::packs;

/// The runner behind the routes of the gate.
pub(crate) struct Runs {
    runner: Runner,
    paths: Paths,
}

/// The runner that the config describes.
pub(crate) fn open(
    config: &Config,
    base: &Path,
    ledger: Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
) -> Result<Arc<Runs>, Failure> {
    let root = config.artifacts_root().map_err(Failure::usage)?;
    let artifacts = LocalArtifacts::open(local::Options::new(&root));
    let artifacts = artifacts.map_err(|error| with_cause(&error))?;
    let paths = Paths::local(&root.to_string_lossy());
    let runner = Runner::new(Parts {
        ledger,
        artifacts: Arc::new(artifacts),
        paths: paths.clone(),
        bus,
        packs: below(config.runner.packs.clone()),
        active: config.active_run(),
        clock: Arc::new(SystemClock),
        settings: config.runner_settings(base).map_err(Failure::usage)?,
    });
    Ok(Arc::new(Runs { runner, paths }))
}

/// Opens packs below `root` only, whatever links lead elsewhere; anywhere if it is empty.
fn below(root: PathBuf) -> Arc<OpenPack> {
    // The runner has already put the root before relative places.
    let open = packs::opener(PathBuf::new());
    if root.as_os_str().is_empty() {
        return open;
    }
    Arc::new(move |place: &str| {
        let cannot = |path: &Path| {
            let path = path.display().to_string();
            move |error: std::io::Error| format!("{path}: {error}")
        };
        let root = root.canonicalize().map_err(cannot(&root))?;
        let named = Path::new(place.strip_prefix("file://").unwrap_or(place));
        let whole = named.canonicalize().map_err(cannot(named))?;
        if whole.starts_with(&root) {
            return open(place);
        }
        Err(format!("{place} is not below {}, see runner.packs", root.display()))
    })
}

impl Runs {
    /// Looks after unfinished runs, as long as the gate runs.
    pub(crate) async fn look_after(&self, every: Duration) -> Infallible {
        let mut beat = tokio::time::interval(every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            if let Err(fault) = self.runner.look_after().await {
                tracing::warn!(%fault, "unfinished runs could not be looked after");
            }
        }
    }

    fn stood(&self, stood: Result<Standing, RunnerError>) -> Result<Reply, Fault> {
        replied(stood.map(|standing| runner::standing(&standing, &self.paths)))
    }
}

/// The answer, in the runner's words where it has any.
fn replied(answer: Result<Reply, RunnerError>) -> Result<Reply, Fault> {
    answer.or_else(|error| match (runner::failed(&error), error) {
        (Some(reply), _) => Ok(reply),
        (None, RunnerError::Fault(fault)) => Err(fault),
        (None, RunnerError::Refused(refused)) => Err(Fault::caused_by(
            admit_core::FaultKind::Internal,
            "a refusal without words",
            refused,
        )),
    })
}

impl ScenarioRunner for Runs {
    fn submit(self: Arc<Self>, request: Bytes) -> Work {
        Box::pin(async move {
            let stood = match RunRequest::read(&request) {
                Ok(request) => self.runner.submit(request).await,
                Err(refused) => Err(refused.into()),
            };
            self.stood(stood)
        })
    }

    fn reemit(self: Arc<Self>, run_id: String, by: Actor, request: Bytes) -> Work {
        Box::pin(async move {
            let asked = Reemit::read(&request, &by.name)
                .map(|asked| Reemit { principal: Some(by.principal), ..asked });
            let reemitted = match asked {
                Ok(asked) => self.runner.reemit(&run_id, &asked).await,
                Err(refused) => Err(refused.into()),
            };
            replied(reemitted.map(|reemitted| runner::reemitted(&reemitted)))
        })
    }

    fn status(self: Arc<Self>, run_id: String) -> Work {
        Box::pin(async move { self.stood(self.runner.status(&run_id).await) })
    }

    fn run_of(&self, request: &[u8]) -> Option<String> {
        let request = RunRequest::read(request).ok()?;
        Some(identity::run_id(&request.run_equivalence_key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_elsewhere_is_not_opened_whatever_leads_there() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("packs/mine")).unwrap();
        std::fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("packs/link")).unwrap();
        let open = below(at("packs"));
        assert!(open(at("packs/mine").to_str().unwrap()).is_ok());
        for elsewhere in ["other", "packs/link", "packs/../other", "packs/nothing"] {
            assert!(open(at(elsewhere).to_str().unwrap()).is_err(), "{elsewhere}");
        }
        assert!(below(PathBuf::new())(at("other").to_str().unwrap()).is_ok());
    }
}
