//! Builds the scenario runner and drives its background tasks.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_contracts::Reply;
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_core::Fault;
use admit_gate::SystemClock;
use admit_gate::scenario_runner::{Actor, RunnerFuture, ScenarioRunner};
use admit_runs::runner::reason::RunnerError;
use admit_runs::runner::request::RunRequest;
use admit_runs::runner::{self, ReemitRequest, RunStatus, Runner, RunnerParts, identity};
use bytes::Bytes;

use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;
use crate::{artifacts, packs};

/// Runner behind the gate's routes.
pub(crate) struct RunnerService {
    runner: Runner,
    paths: ArtifactPaths,
}

/// Builds the runner of the config.
pub(crate) fn open(
    config: &Config,
    base: &Path,
    ledger: Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
) -> Result<Arc<RunnerService>, Failure> {
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let runner = Runner::new(RunnerParts {
        ledger,
        artifacts: artifacts::open(config)?,
        paths: paths.clone(),
        bus,
        packs: packs::opener_below(config, config.runner.packs.clone()),
        active: config.active_run(),
        clock: Arc::new(SystemClock),
        settings: config.runner_settings(base).map_err(Failure::usage)?,
    });
    Ok(Arc::new(RunnerService { runner, paths }))
}

impl RunnerService {
    /// Advances unfinished runs periodically, while the gate runs.
    pub(crate) async fn advance_unfinished(&self, every: Duration) -> Infallible {
        let mut ticker = ticker(every);
        loop {
            ticker.tick().await;
            if let Err(fault) = self.runner.sweep_unfinished().await {
                tracing::warn!(%fault, "failed to advance unfinished runs; will retry");
            }
        }
    }

    /// Restores lost files of final runs, at start and then periodically, while the gate runs.
    pub(crate) async fn restore_files(&self, every: Duration) -> Infallible {
        let mut ticker = ticker(every);
        loop {
            ticker.tick().await;
            if let Err(fault) = self.runner.restore_lost_files().await {
                tracing::warn!(%fault, "failed to check the files of final runs; will retry");
            }
        }
    }

    fn status_reply(&self, status: Result<RunStatus, RunnerError>) -> Result<Reply, Fault> {
        reply(status.map(|status| runner::status_reply(&status, &self.paths)))
    }
}

fn ticker(every: Duration) -> tokio::time::Interval {
    let mut ticker = tokio::time::interval(every);
    ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticker
}

/// The reply, with the runner's rendering of errors.
fn reply(result: Result<Reply, RunnerError>) -> Result<Reply, Fault> {
    result.or_else(|error| match (runner::error_reply(&error), error) {
        (Some(reply), _) => Ok(reply),
        (None, RunnerError::Fault(fault)) => Err(fault),
        (None, RunnerError::Refused(refused)) => Err(Fault::caused_by(
            admit_core::FaultKind::Internal,
            "refusal without a reply text",
            refused,
        )),
    })
}

impl ScenarioRunner for RunnerService {
    fn submit(self: Arc<Self>, request: Bytes) -> RunnerFuture {
        Box::pin(async move {
            let status = match RunRequest::read(&request) {
                Ok(request) => self.runner.submit(request).await,
                Err(refused) => Err(refused.into()),
            };
            self.status_reply(status)
        })
    }

    fn reemit(self: Arc<Self>, run_id: String, by: Actor, request: Bytes) -> RunnerFuture {
        Box::pin(async move {
            let request = ReemitRequest::read(&request, &by.name)
                .map(|request| ReemitRequest { principal: Some(by.principal), ..request });
            let reemitted = match request {
                Ok(request) => self.runner.reemit(&run_id, &request).await,
                Err(refused) => Err(refused.into()),
            };
            reply(reemitted.map(|result| runner::reemit_reply(&result)))
        })
    }

    fn status(self: Arc<Self>, run_id: String) -> RunnerFuture {
        Box::pin(async move { self.status_reply(self.runner.status(&run_id).await) })
    }

    fn run_of(&self, request: &[u8]) -> Option<String> {
        let request = RunRequest::read(request).ok()?;
        Some(identity::run_id(&request.run_equivalence_key))
    }
}
