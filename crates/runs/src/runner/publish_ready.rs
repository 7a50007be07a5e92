//! Publication of READY, governance lines of runs, and the status files of runs.

use admit_contracts::ingestion_gate::governance::{GovernanceFamily, GovernanceLine};
use admit_core::ScenarioState;
use admit_core::json::{Object, Value};
use admit_ledger::scenario_runs::{PublicationState, ScenarioRun};

use super::lease::{RunChange, RunnerLease};
use super::publish::{MessageKind, RunMessage};
use super::reason::{RefusalCode, RefusedRequest, RunnerError};
use super::{Runner, documents};

/// Component name in governance lines.
const COMPONENT: &str = "scenario_runner";

/// Attempts to write the status files of a run that changes meanwhile; then the next sweep writes them.
const WRITE_TRIES_MAX: usize = 8;

impl Runner {
    /// Publishes READY, unless an earlier attempt succeeded or has an unknown outcome.
    pub(super) async fn publish_ready(
        &self,
        lease: &RunnerLease,
        run: ScenarioRun,
    ) -> Result<ScenarioRun, RunnerError> {
        let refs = self.refs(&run);
        let built = documents::ready_signal(&run, &refs, &self.policy, &self.settings.provenance);
        let Some((message_id, signal)) = built else {
            let detail = "the run is ready, but its facts are not in the ledger";
            return Err(RefusedRequest::new(RefusalCode::FactsViewMissing, detail).into());
        };
        self.append_run_started(&run, &message_id).await?;
        let run = match documents::message_id(&run) {
            None => {
                let change = RunChange { documents: vec![signal.clone()], ..RunChange::default() };
                let run = self.update_run(lease, &run.run_id, change).await?;
                self.files.put(&[signal]).await?;
                run
            }
            Some(stored) if stored == message_id => run,
            Some(_) => {
                let detail = "the stored signal belongs to other facts";
                return Err(RefusedRequest::new(RefusalCode::ReadySignalDrift, detail).into());
            }
        };
        let payload = run.document(documents::SIGNAL).map(|signal| signal.text.clone());
        let message = RunMessage {
            kind: MessageKind::Ready,
            message_id,
            payload: payload.unwrap_or_default(),
            details: Object::new(),
        };
        let last =
            run.publications.iter().rfind(|attempt| attempt.kind == MessageKind::Ready.word());
        let last = last.cloned();
        match last {
            Some(mut lost) if lost.state == PublicationState::InFlight => {
                // This runner holds the lease, so the attempt was interrupted.
                lost.state = PublicationState::Unknown;
                lost.evidence = Some("the runner stopped while it was publishing".to_owned());
                self.record_outcome(lease, &run, (lost, None), message).await
            }
            Some(last) if last.state != PublicationState::NotWritten => Ok(run),
            _ => self.publish_message(lease, &run, message).await,
        }
    }

    /// Appends "run started" to the governance log of the platform run, once.
    async fn append_run_started(
        &self,
        run: &ScenarioRun,
        message_id: &str,
    ) -> Result<(), RunnerError> {
        let line = GovernanceLine {
            family: GovernanceFamily::RunStarted,
            run: &run.platform_run_id,
            scenario_run: Some(&run.run_id),
            component: COMPONENT,
            dedupe_key: &format!("sr_ready:{message_id}"),
            at: run.turned_at,
            actor: Object::from_iter([("actor_id", Value::from(COMPONENT))]),
            provenance: self.settings.provenance.to_object(&self.policy),
            details: Object::from_iter([
                ("run_id", Value::from(run.run_id.clone())),
                ("message_id", message_id.to_owned().into()),
            ]),
        };
        self.append_governance_line(run, &line).await
    }

    /// Appends "run cancelled" for a run that ended without becoming ready, once.
    pub(super) async fn append_run_cancelled(&self, run: &ScenarioRun) -> Result<(), RunnerError> {
        let line = GovernanceLine {
            family: GovernanceFamily::RunCancelled,
            run: &run.platform_run_id,
            scenario_run: Some(&run.run_id),
            component: COMPONENT,
            dedupe_key: &format!("sr_ended:{}:{}", run.run_id, run.state.word()),
            at: run.turned_at,
            actor: Object::from_iter([("actor_id", Value::from(COMPONENT))]),
            provenance: self.settings.provenance.to_object(&self.policy),
            details: Object::from_iter([
                ("run_id", Value::from(run.run_id.clone())),
                ("state", run.state.word().into()),
                ("reason_code", run.reason.clone().into()),
            ]),
        };
        self.append_governance_line(run, &line).await
    }

    async fn append_governance_line(
        &self,
        run: &ScenarioRun,
        line: &GovernanceLine<'_>,
    ) -> Result<(), RunnerError> {
        let marker = self.paths.governance_marker(&run.platform_run_id, &line.event_id());
        let log = self.paths.governance_log(&run.platform_run_id);
        self.files.append_line(&log, marker, documents::to_json(&line.to_object())).await
    }

    /// Brings the status files of a run up to date, and records the version in the ledger.
    pub(super) async fn update_status_files(&self, run_id: &str) -> Result<(), RunnerError> {
        match self.write_status_files(run_id).await? {
            Some(version) => Ok(self.ledger.note_shown(run_id.to_owned(), version).await?),
            None => Ok(()),
        }
    }

    /// Writes the status files of a run. Returns the version written, or `None` if the run changes too
    /// fast.
    ///
    /// If the run changes during the write, the files are written again, so that an old version never
    /// replaces a newer one.
    pub(super) async fn write_status_files(
        &self,
        run_id: &str,
    ) -> Result<Option<u64>, RunnerError> {
        for _ in 0..WRITE_TRIES_MAX {
            let run = self.load_run(run_id).await?;
            self.files.write_status(&run, &self.refs(&run)).await?;
            if self.load_run(run_id).await?.version == run.version {
                if run.state.is_final() {
                    self.files.sync().await?;
                }
                return Ok(Some(run.version));
            }
        }
        Ok(None)
    }
}

/// Whether READY was not attempted, was certainly not published, or was left in flight.
pub(super) fn must_publish(run: &ScenarioRun) -> bool {
    let last = run.publications.iter().rfind(|attempt| attempt.kind == MessageKind::Ready.word());
    run.state == ScenarioState::Ready
        && last.is_none_or(|last| {
            matches!(last.state, PublicationState::NotWritten | PublicationState::InFlight)
        })
}
