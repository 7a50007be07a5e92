//! The scenario runner: plans a run, checks its evidence, commits its facts and publishes READY once.
//!
//! The ledger is the truth about a run; its files are copies. The holder of the run's lease performs
//! these stages in order. It may stop at any point: the next holder resumes.
//!
//! ```text
//! open ─▶ plan ─▶ evidence ─▶ facts ─▶ READY ─▶ governance ─▶ signal ─▶ in flight ─▶ bus ─▶ outcome
//! ```
//!
//! A final run never changes its state: submitting it again returns its state.

pub mod active;
mod audit;
mod documents;
pub mod evidence;
mod files;
pub mod gate_map;
pub mod identity;
mod lease;
mod publish;
mod publish_ready;
pub mod reason;
mod reemit;
mod replies;
pub mod request;
mod restore;
mod settings;
mod stages;
mod sweep_guard;

use std::fmt;
use std::sync::Arc;

use admit_artifacts::Artifacts;
use admit_bus::Bus;
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_contracts::ingestion_gate::governance::PolicyRev;
use admit_core::json::Value;
use admit_core::{Clock, Fault, FaultKind, ScenarioState};
use admit_ledger::scenario_runs::{
    OpenRunRequest, OpenRunResult, PublicationState, ScenarioRun, ScenarioRuns,
};
use tokio::task::spawn_blocking;

use crate::streamer::OpenPack;
use active::ActiveRun;
use documents::RunRefs;
use files::RunFiles;
use lease::{Leadership, RunnerLease};
use publish::MessageKind;
use publish_ready::must_publish;
use reason::{RefusalCode, RefusedRequest, RunnerError};
use request::RunRequest;
use sweep_guard::SweepTracker;

pub use audit::find_contradictions;
pub use documents::Provenance;
pub use files::{FOLDERS, files_of};
pub use reemit::{ReemitKind, ReemitRequest, ReemitResult};
pub use replies::{error_reply, reemit_reply, status_reply};
pub use settings::{CONTROL_TOPIC, Settings};

/// Runs per page of a sweep.
const SWEEP_PAGE: usize = 256;

/// Maximum characters of the record's detail in a status message.
const DETAIL_CHARS_MAX: usize = 500;

/// Dependencies of a runner.
pub struct RunnerParts {
    /// Ledger of runs. The runner writes only the tables of runs.
    pub ledger: Arc<dyn ScenarioRuns>,
    /// Artifact store. The runner writes only its own folders.
    pub artifacts: Arc<dyn Artifacts>,
    /// Artifact layout.
    pub paths: ArtifactPaths,
    /// The control bus.
    pub bus: Arc<dyn Bus>,
    /// Opens packs.
    pub packs: Arc<OpenPack>,
    /// Source of the active platform run.
    pub active: ActiveRun,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Settings.
    pub settings: Settings,
}

/// The scenario runner.
pub struct Runner {
    ledger: Arc<dyn ScenarioRuns>,
    files: RunFiles,
    paths: ArtifactPaths,
    bus: Arc<dyn Bus>,
    packs: Arc<OpenPack>,
    active: ActiveRun,
    clock: Arc<dyn Clock>,
    settings: Settings,
    policy: PolicyRev,
    sweep: SweepTracker,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// State of a run, with a message for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunStatus {
    /// The run.
    pub run: ScenarioRun,
    /// Message for operators.
    pub message: String,
}

/// Result of advancing a run.
enum AdvanceResult {
    /// Advanced as far as possible now.
    Advanced(RunStatus),
    /// Another runner holds the lease.
    LeaseHeld(RunStatus),
}

impl RunStatus {
    /// The state of a run, with its message.
    pub fn new(run: ScenarioRun) -> Self {
        let message = describe(&run);
        Self { run, message }
    }
}

impl Runner {
    /// Creates a runner.
    pub fn new(parts: RunnerParts) -> Self {
        let RunnerParts { ledger, artifacts, paths, bus, packs, active, clock, settings } = parts;
        let policy = settings.policy();
        let files = RunFiles::new(artifacts, &paths);
        let sweep = SweepTracker::default();
        Self { ledger, files, paths, bus, packs, active, clock, settings, policy, sweep }
    }

    /// Opens a run, unless it exists, and advances it as far as possible now.
    ///
    /// # Errors
    /// When the key belongs to another intent, when an immutable document would change, or on a fault.
    pub async fn submit(&self, request: RunRequest) -> Result<RunStatus, RunnerError> {
        let now = self.clock.now();
        let active = self.active.clone();
        let platform_run_id =
            spawn_blocking(move || active.resolve(now)).await.map_err(|_| panicked())??;
        let run_id = identity::run_id(&request.run_equivalence_key);
        let opening = OpenRunRequest {
            run_equivalence_key: request.run_equivalence_key.clone(),
            run_id: run_id.clone(),
            intent_fingerprint: request.intent_fingerprint(),
            platform_run_id: platform_run_id.clone(),
            request: request.text().to_owned(),
            at: now,
        };
        if let OpenRunResult::Collision { intent_fingerprint } =
            self.ledger.open_run(opening).await?
        {
            let detail = format!(
                "this run_equivalence_key belongs to another intent ({intent_fingerprint}); use \
                 another key for another run"
            );
            return Err(RefusedRequest::new(RefusalCode::EquivKeyCollision, detail).into());
        }
        let sweep = self.sweep.watch(&run_id);
        let mut status = match self.advance(&run_id, Some(&request)).await? {
            AdvanceResult::Advanced(status) => status,
            // The lease may be held by this runner's own sweep.
            AdvanceResult::LeaseHeld(_) if sweep.wait_until_left(&run_id).await => {
                match self.advance(&run_id, Some(&request)).await? {
                    AdvanceResult::Advanced(status) | AdvanceResult::LeaseHeld(status) => status,
                }
            }
            AdvanceResult::LeaseHeld(status) => status,
        };
        if status.run.platform_run_id != platform_run_id {
            status.message.push_str(&format!(
                "; the run belongs to platform run {}, the active one is {platform_run_id}",
                status.run.platform_run_id
            ));
        }
        Ok(status)
    }

    /// Returns the state of a run.
    ///
    /// # Errors
    /// When it does not exist, or on a fault.
    pub async fn status(&self, run_id: &str) -> Result<RunStatus, RunnerError> {
        Ok(RunStatus::new(self.load_run(run_id).await?))
    }

    /// Advances every unfinished run. Failures of single runs are logged. Returns the number of runs.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn sweep_unfinished(&self) -> Result<usize, Fault> {
        let (mut after, mut swept) = (String::new(), 0);
        loop {
            let runs = self.ledger.unfinished_runs(after.clone(), SWEEP_PAGE).await?;
            for run_id in &runs {
                swept += 1;
                let _guard = self.sweep.enter(run_id);
                if let Err(error) = self.advance(run_id, None).await {
                    tracing::warn!(run_id, %error, "failed to advance a run; will retry");
                }
            }
            match runs.last() {
                Some(last) if runs.len() == SWEEP_PAGE => last.clone_into(&mut after),
                _ => return Ok(swept),
            }
        }
    }

    /// Advances a run as far as possible now, unless another runner holds its lease.
    async fn advance(
        &self,
        run_id: &str,
        request: Option<&RunRequest>,
    ) -> Result<AdvanceResult, RunnerError> {
        let run = self.load_run(run_id).await?;
        if let Some(request) = request.filter(|_| run.state.is_final()) {
            self.check_same_outputs(&run, request)?;
            self.restore_files(&run).await?;
        }
        if run.state.is_final() && !must_publish(&run) && run.shown == run.version {
            return Ok(AdvanceResult::Advanced(RunStatus::new(run)));
        }
        let lease = match self.acquire_lease(run_id.to_owned(), self.settings.lease_ttl).await? {
            Leadership::Acquired(lease) => lease,
            Leadership::HeldBy(owner) => {
                let run = self.load_run(run_id).await?;
                let message = format!("Lease held by another runner ({owner}): {}", describe(&run));
                return Ok(AdvanceResult::LeaseHeld(RunStatus { run, message }));
            }
        };
        let advanced = self.advance_under_lease(&lease, run_id, request).await;
        self.release_lease(lease).await;
        Ok(AdvanceResult::Advanced(RunStatus::new(advanced?)))
    }

    /// All stages of a run, one per line.
    async fn advance_under_lease(
        &self,
        lease: &RunnerLease,
        run_id: &str,
        request: Option<&RunRequest>,
    ) -> Result<ScenarioRun, RunnerError> {
        let mut run = self.load_run(run_id).await?;
        // The previous lease holder may have stopped before writing these files.
        self.files.put(&run.documents).await?;
        if !run.state.is_final() {
            run = self.plan(lease, run, request).await?;
        }
        if !run.state.is_final() {
            run = self.check_evidence(lease, run).await?;
        }
        if run.state == ScenarioState::Ready {
            self.write_status_files(run_id).await?;
            self.publish_ready(lease, run).await?;
        } else if run.state.is_final() {
            self.append_run_cancelled(&run).await?;
        }
        self.update_status_files(run_id).await?;
        self.load_run(run_id).await
    }

    async fn load_run(&self, run_id: &str) -> Result<ScenarioRun, RunnerError> {
        let run = self.ledger.scenario_run(run_id.to_owned()).await?;
        let none = || RefusedRequest::new(RefusalCode::RunNotFound, "there is no run with this id");
        Ok(run.ok_or_else(none)?)
    }

    fn refs<'r>(&'r self, run: &'r ScenarioRun) -> RunRefs<'r> {
        RunRefs { paths: &self.paths, run: &run.platform_run_id, run_id: &run.run_id }
    }
}

/// Describes the state of a run for operators.
fn describe(run: &ScenarioRun) -> String {
    let last = run.publications.iter().rfind(|attempt| attempt.kind == MessageKind::Ready.word());
    match (run.state, last.map(|last| last.state)) {
        (ScenarioState::Ready, Some(PublicationState::Published)) => {
            "ready, and READY is on the control bus".to_owned()
        }
        (ScenarioState::Ready, Some(PublicationState::Unknown | PublicationState::InFlight)) => {
            "ready, but the outcome of publishing READY is unknown; re-emit it".to_owned()
        }
        (ScenarioState::Ready, _) => {
            "ready, but READY was not published; submit again to retry".to_owned()
        }
        (ScenarioState::WaitingEvidence, _) => {
            let text = "waiting for evidence; checked again until the deadline";
            with_detail(text.to_owned(), run)
        }
        (state, _) => match &run.reason {
            Some(reason) => with_detail(format!("{state}: {reason}"), run),
            None => state.word().to_owned(),
        },
    }
}

/// Appends the last detail or list of missing evidence in the record.
fn with_detail(text: String, run: &ScenarioRun) -> String {
    let last = run.events.iter().rev().find_map(|event| {
        let line = documents::parse(&event.line)?;
        let details = line.get("details")?;
        if let Some(detail) = details.get("detail").and_then(Value::as_str) {
            return Some(detail.to_owned());
        }
        let missing = details.get("missing").and_then(Value::as_array)?;
        Some(missing.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; "))
    });
    match last {
        Some(detail) => {
            let detail: String = detail.chars().take(DETAIL_CHARS_MAX).collect();
            format!("{text} ({detail})")
        }
        None => text,
    }
}

fn panicked() -> Fault {
    Fault::new(FaultKind::Internal, "a worker thread of this run panicked; submit the run again")
}
