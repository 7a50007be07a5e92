//! What is said of a run that is ready: to whoever watches, on the control bus, and in its files.

use admit_contracts::ingestion_gate::governance::{GovernanceFamily, GovernanceLine};
use admit_core::ScenarioState;
use admit_core::json::{Object, Value};
use admit_ledger::scenario_runs::{PublicationState, ScenarioRun};

use super::lead::{Kept, Lead};
use super::publish::{Kind, Saying};
use super::reason::{Refusal, Refused, RunnerError};
use super::{Runner, documents};

/// Who says it, in governance lines.
const COMPONENT: &str = "scenario_runner";

/// How often a copy that somebody overtook is made again before it is left to the next to look.
const SHOW_TRIES_MAX: usize = 8;

impl Runner {
    /// Says READY, if nobody knows that it was said and nobody has to doubt it.
    pub(super) async fn announce(
        &self,
        lead: &Lead,
        run: ScenarioRun,
    ) -> Result<ScenarioRun, RunnerError> {
        let refs = self.refs(&run);
        let made = documents::signal(&run, &refs, &self.policy, &self.settings.provenance);
        let Some((message_id, signal)) = made else {
            let detail = "the run is ready and its facts are not in the ledger";
            return Err(Refused::new(Refusal::FactsViewMissing, detail).into());
        };
        self.govern(&run, &message_id).await?;
        let run = match documents::message_id(&run) {
            None => {
                let kept = Kept { documents: vec![signal.clone()], ..Kept::default() };
                let run = self.keep(lead, &run.run_id, kept).await?;
                self.files.put(&[signal]).await?;
                run
            }
            Some(kept) if kept == message_id => run,
            Some(_) => {
                let detail = "the signal that is kept is of other facts";
                return Err(Refused::new(Refusal::ReadySignalDrift, detail).into());
            }
        };
        let payload = run.document(documents::SIGNAL).map(|signal| signal.text.clone());
        let saying = Saying {
            kind: Kind::Ready,
            message_id,
            payload: payload.unwrap_or_default(),
            details: Object::new(),
        };
        let last = run.publications.iter().rfind(|said| said.kind == Kind::Ready.word()).cloned();
        match last {
            Some(mut lost) if lost.state == PublicationState::InFlight => {
                // We lead, so whoever was publishing it does not any more.
                lost.state = PublicationState::Unknown;
                lost.evidence = Some("the runner stopped while it was publishing".to_owned());
                self.settle(lead, &run, lost, saying).await
            }
            Some(last) if last.state != PublicationState::NotWritten => Ok(run),
            _ => self.say(lead, &run, saying).await,
        }
    }

    /// Tells whoever watches over the platform run, once.
    async fn govern(&self, run: &ScenarioRun, message_id: &str) -> Result<(), RunnerError> {
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
        let marker = self.paths.governance_marker(&run.platform_run_id, &line.event_id());
        let log = self.paths.governance_log(&run.platform_run_id);
        self.files.tell(&log, marker, documents::written(&line.to_object())).await
    }

    /// Appends to the governance log of the platform run that a run ended without becoming ready, once.
    pub(super) async fn cancelled(&self, run: &ScenarioRun) -> Result<(), RunnerError> {
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
        let marker = self.paths.governance_marker(&run.platform_run_id, &line.event_id());
        let log = self.paths.governance_log(&run.platform_run_id);
        self.files.tell(&log, marker, documents::written(&line.to_object())).await
    }

    /// Brings the files of a run to how it stands, and notes that nothing is left to do about it.
    pub(super) async fn show(&self, run_id: &str) -> Result<(), RunnerError> {
        match self.copy(run_id).await? {
            Some(version) => Ok(self.ledger.note_shown(run_id.to_owned(), version).await?),
            None => Ok(()),
        }
    }

    /// Brings the files of a run to how it stands, and says at which version; `None` when it changes
    /// too fast. Whoever was overtaken meanwhile makes the newer copy too, so that an old one never
    /// stays over a new one.
    pub(super) async fn copy(&self, run_id: &str) -> Result<Option<u64>, RunnerError> {
        for _ in 0..SHOW_TRIES_MAX {
            let run = self.known(run_id).await?;
            self.files.show(&run, &self.refs(&run)).await?;
            if self.known(run_id).await?.version == run.version {
                if run.state.is_final() {
                    self.files.sync().await?;
                }
                return Ok(Some(run.version));
            }
        }
        Ok(None)
    }
}

/// Whether READY was not tried, or is known not to have been said, or was left in flight.
pub(super) fn must_say(run: &ScenarioRun) -> bool {
    let last = run.publications.iter().rfind(|said| said.kind == Kind::Ready.word());
    run.state == ScenarioState::Ready
        && last.is_none_or(|last| {
            matches!(last.state, PublicationState::NotWritten | PublicationState::InFlight)
        })
}
