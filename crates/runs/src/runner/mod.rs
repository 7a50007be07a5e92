//! The scenario runner: says what a run is, checks what must vouch for it, and says READY once.
//!
//! The ledger is the truth about a run, its files are copies. Everything is done by whoever leads the
//! run, in this order, and can stop anywhere: the next to lead goes on where the last one stopped.
//!
//! ```text
//! open ─▶ plan ─▶ evidence ─▶ facts ─▶ READY ─▶ governance ─▶ signal ─▶ in flight ─▶ bus ─▶ outcome
//! ```
//!
//! A run that is final never goes back: asking for it again returns it as it stands.

pub mod active;
mod again;
mod announce;
mod answer;
mod audit;
mod documents;
pub mod evidence;
mod files;
pub mod gate_map;
pub mod identity;
mod lead;
mod look;
mod publish;
pub mod reason;
mod reemit;
pub mod request;
mod settings;
mod stages;

use std::fmt;
use std::sync::Arc;

use admit_artifacts::Artifacts;
use admit_bus::Bus;
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_contracts::ingestion_gate::governance::PolicyRev;
use admit_core::json::Value;
use admit_core::{Clock, Fault, FaultKind, ScenarioState};
use admit_ledger::scenario_runs::{OpenRunResult, OpenRunRequest, PublicationState, ScenarioRun, ScenarioRuns};
use tokio::task::spawn_blocking;

use crate::streamer::OpenPack;
use active::ActiveRun;
use announce::must_say;
use documents::Refs;
use files::Files;
use lead::{Lead, Led};
use look::Look;
use publish::Kind;
use reason::{Refusal, Refused, RunnerError};
use request::RunRequest;

pub use answer::{failed, reemitted, standing};
pub use audit::contradictions;
pub use documents::Provenance;
pub use files::{FOLDERS, files_of};
pub use reemit::{Reemit, ReemitKind, Reemitted};
pub use settings::{CONTROL_TOPIC, Settings};

/// Runs that are looked after in one go.
const LOOK_ROWS_MAX: usize = 256;

/// How much of what the record says is told with a run; the rest is there.
const DETAIL_CHARS_MAX: usize = 500;

/// What a runner is made of.
pub struct Parts {
    /// Where runs are kept. It writes the tables of runs only.
    pub ledger: Arc<dyn ScenarioRuns>,
    /// Where their files are. The runner writes its own folders only.
    pub artifacts: Arc<dyn Artifacts>,
    /// Where files of a run lie.
    pub paths: ArtifactPaths,
    /// The control bus.
    pub bus: Arc<dyn Bus>,
    /// How packs are opened.
    pub packs: Arc<OpenPack>,
    /// Which platform run is active.
    pub active: ActiveRun,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// How it behaves.
    pub settings: Settings,
}

/// A runner.
pub struct Runner {
    ledger: Arc<dyn ScenarioRuns>,
    files: Files,
    paths: ArtifactPaths,
    bus: Arc<dyn Bus>,
    packs: Arc<OpenPack>,
    active: ActiveRun,
    clock: Arc<dyn Clock>,
    settings: Settings,
    policy: PolicyRev,
    look: Look,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// How a run stands, with a word about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The run.
    pub run: ScenarioRun,
    /// What there is to say, for people.
    pub message: String,
}

/// What came of bringing a run on.
enum Pursued {
    /// It stands so, as far as it goes now.
    Standing(Standing),
    /// Somebody else is at it.
    ByAnother(Standing),
}

impl Standing {
    /// A run, with what there is to say about it.
    pub fn of(run: ScenarioRun) -> Self {
        let message = said(&run);
        Self { run, message }
    }
}

impl Runner {
    /// Puts a runner together.
    pub fn new(parts: Parts) -> Self {
        let Parts { ledger, artifacts, paths, bus, packs, active, clock, settings } = parts;
        let policy = settings.policy();
        let files = Files::new(artifacts, &paths);
        let look = Look::default();
        Self { ledger, files, paths, bus, packs, active, clock, settings, policy, look }
    }

    /// Asks for a run: opens it, or finds it, and brings it as far as it goes now.
    ///
    /// # Errors
    /// When the key stands for another intent, when something that was written once would have to
    /// change, or when our side failed.
    pub async fn submit(&self, request: RunRequest) -> Result<Standing, RunnerError> {
        let now = self.clock.now();
        let active = self.active.clone();
        let platform_run_id =
            spawn_blocking(move || active.resolve(now)).await.map_err(|_| gone())??;
        let run_id = identity::run_id(&request.run_equivalence_key);
        let opening = OpenRunRequest {
            run_equivalence_key: request.run_equivalence_key.clone(),
            run_id: run_id.clone(),
            intent_fingerprint: request.intent_fingerprint(),
            platform_run_id: platform_run_id.clone(),
            request: request.text().to_owned(),
            at: now,
        };
        if let OpenRunResult::Collision { intent_fingerprint } = self.ledger.open_run(opening).await? {
            let detail = format!(
                "this run_equivalence_key stands for another intent ({intent_fingerprint}); use \
                 another key for another run"
            );
            return Err(Refused::new(Refusal::EquivKeyCollision, detail).into());
        }
        let passing = self.look.passing(&run_id);
        let mut standing = match self.pursue(&run_id, Some(&request)).await? {
            Pursued::Standing(standing) => standing,
            // It may have been our own look at unfinished runs that led.
            Pursued::ByAnother(_) if passing.passed(&run_id).await => {
                match self.pursue(&run_id, Some(&request)).await? {
                    Pursued::Standing(standing) | Pursued::ByAnother(standing) => standing,
                }
            }
            Pursued::ByAnother(standing) => standing,
        };
        if standing.run.platform_run_id != platform_run_id {
            standing.message.push_str(&format!(
                "; it belongs to {}, not to the active {platform_run_id}",
                standing.run.platform_run_id
            ));
        }
        Ok(standing)
    }

    /// How a run stands.
    ///
    /// # Errors
    /// When there is none, or our side failed.
    pub async fn status(&self, run_id: &str) -> Result<Standing, RunnerError> {
        Ok(Standing::of(self.known(run_id).await?))
    }

    /// Looks after every run that is not finished; what it cannot bring on is left and told in the
    /// log.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn look_after(&self) -> Result<usize, Fault> {
        let (mut after, mut looked) = (String::new(), 0);
        loop {
            let runs = self.ledger.unfinished_runs(after.clone(), LOOK_ROWS_MAX).await?;
            for run_id in &runs {
                looked += 1;
                let _at = self.look.at(run_id);
                if let Err(error) = self.pursue(run_id, None).await {
                    tracing::warn!(run_id, %error, "a run could not be brought on");
                }
            }
            match runs.last() {
                Some(last) if runs.len() == LOOK_ROWS_MAX => last.clone_into(&mut after),
                _ => return Ok(looked),
            }
        }
    }

    /// Brings a run as far as it goes now, if nobody else does.
    async fn pursue(
        &self,
        run_id: &str,
        asked: Option<&RunRequest>,
    ) -> Result<Pursued, RunnerError> {
        let run = self.known(run_id).await?;
        if let Some(asked) = asked.filter(|_| run.state.is_final()) {
            self.same_outputs(&run, asked)?;
            self.restore(&run).await?;
        }
        if run.state.is_final() && !must_say(&run) && run.shown == run.version {
            return Ok(Pursued::Standing(Standing::of(run)));
        }
        let lead = match self.take(run_id.to_owned(), self.settings.lease_ttl).await? {
            Led::ByUs(lead) => lead,
            Led::By(owner) => {
                let run = self.known(run_id).await?;
                let message = format!("Lease held by another runner ({owner}): {}", said(&run));
                return Ok(Pursued::ByAnother(Standing { run, message }));
            }
        };
        let led = self.lead_on(&lead, run_id, asked).await;
        self.give_back(lead).await;
        Ok(Pursued::Standing(Standing::of(led?)))
    }

    /// The whole of a run. One line, one step.
    async fn lead_on(
        &self,
        lead: &Lead,
        run_id: &str,
        asked: Option<&RunRequest>,
    ) -> Result<ScenarioRun, RunnerError> {
        let mut run = self.known(run_id).await?;
        // What the last to lead kept and may not have written.
        self.files.put(&run.documents).await?;
        if !run.state.is_final() {
            run = self.plan(lead, run, asked).await?;
        }
        if !run.state.is_final() {
            run = self.vouch(lead, run).await?;
        }
        if run.state == ScenarioState::Ready {
            self.copy(run_id).await?;
            self.announce(lead, run).await?;
        } else if run.state.is_final() {
            self.cancelled(&run).await?;
        }
        self.show(run_id).await?;
        self.known(run_id).await
    }

    async fn known(&self, run_id: &str) -> Result<ScenarioRun, RunnerError> {
        let run = self.ledger.scenario_run(run_id.to_owned()).await?;
        let none = || Refused::new(Refusal::RunNotFound, "there is no run of this id");
        Ok(run.ok_or_else(none)?)
    }

    fn refs<'r>(&'r self, run: &'r ScenarioRun) -> Refs<'r> {
        Refs { paths: &self.paths, run: &run.platform_run_id, run_id: &run.run_id }
    }
}

/// How a run stands, for people.
fn said(run: &ScenarioRun) -> String {
    let last = run.publications.iter().rfind(|said| said.kind == Kind::Ready.word());
    match (run.state, last.map(|last| last.state)) {
        (ScenarioState::Ready, Some(PublicationState::Published)) => {
            "ready, and READY is on the control bus".to_owned()
        }
        (ScenarioState::Ready, Some(PublicationState::Unknown | PublicationState::InFlight)) => {
            "ready, but nobody knows whether READY is on the control bus; emit it again".to_owned()
        }
        (ScenarioState::Ready, _) => "ready, but READY is not on the control bus".to_owned(),
        (ScenarioState::WaitingEvidence, _) => {
            let said = "some evidence is not there yet; it is looked for again until the deadline";
            with_detail(said.to_owned(), run)
        }
        (state, _) => match &run.reason {
            Some(reason) => with_detail(format!("{state}: {reason}"), run),
            None => state.word().to_owned(),
        },
    }
}

/// Adds what the record last said was missing or wrong, so that nobody has to read it for that.
fn with_detail(said: String, run: &ScenarioRun) -> String {
    let last = run.events.iter().rev().find_map(|event| {
        let line = documents::read(&event.line)?;
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
            format!("{said} ({detail})")
        }
        None => said,
    }
}

fn gone() -> Fault {
    Fault::new(FaultKind::Internal, "the work on this run was lost, submit it again")
}
