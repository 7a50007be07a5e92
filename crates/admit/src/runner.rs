//! Puts the scenario runner together, and has it look after what is unfinished.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_contracts::Reply;
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_core::Fault;
use admit_gate::SystemClock;
use admit_gate::runs::{Actor, ScenarioRunner, Work};
use admit_runs::runner::reason::RunnerError;
use admit_runs::runner::request::RunRequest;
use admit_runs::runner::{self, Parts, Reemit, Runner, Standing, identity};
use bytes::Bytes;

use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;
use crate::{artifacts, packs};

/// The runner behind the routes of the gate.
pub(crate) struct Runs {
    runner: Runner,
    paths: ArtifactPaths,
}

/// The runner that the config describes.
pub(crate) fn open(
    config: &Config,
    base: &Path,
    ledger: Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
) -> Result<Arc<Runs>, Failure> {
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let runner = Runner::new(Parts {
        ledger,
        artifacts: artifacts::open(config)?,
        paths: paths.clone(),
        bus,
        packs: packs::below(config, config.runner.packs.clone()),
        active: config.active_run(),
        clock: Arc::new(SystemClock),
        settings: config.runner_settings(base).map_err(Failure::usage)?,
    });
    Ok(Arc::new(Runs { runner, paths }))
}

impl Runs {
    /// Advances unfinished runs, as long as the gate runs.
    pub(crate) async fn look_after(&self, every: Duration) -> Infallible {
        let mut beat = beat(every);
        loop {
            beat.tick().await;
            if let Err(fault) = self.runner.look_after().await {
                tracing::warn!(%fault, "unfinished runs could not be looked after");
            }
        }
    }

    /// Writes lost files of final runs again, at once and then periodically, as long as the gate runs.
    pub(crate) async fn restore_files(&self, every: Duration) -> Infallible {
        let mut beat = beat(every);
        loop {
            beat.tick().await;
            if let Err(fault) = self.runner.restore_lost().await {
                tracing::warn!(%fault, "the files of runs could not be checked");
            }
        }
    }

    fn stood(&self, stood: Result<Standing, RunnerError>) -> Result<Reply, Fault> {
        replied(stood.map(|standing| runner::standing(&standing, &self.paths)))
    }
}

fn beat(every: Duration) -> tokio::time::Interval {
    let mut beat = tokio::time::interval(every);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat
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
