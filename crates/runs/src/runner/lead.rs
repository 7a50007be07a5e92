//! Leading a run: under a lease, renewed with everything that is kept, lost to whoever takes over.

use std::time::Duration;

use admit_core::hash::hex;
use admit_core::{Fault, FaultKind};
use admit_ledger::scenario_runs::{
    RunUpdate, RunUpdateError, RunPublication, ScenarioDocument, RunEvent, RunLease, ScenarioRun, TakeLeaseResult, StateChange,
};

use super::Runner;
use super::reason::{Refusal, Refused, RunnerError};
use super::settings::millis;

/// A lease that is held.
#[derive(Clone, Debug)]
pub(super) struct Lead {
    name: String,
    token: String,
    ttl: Duration,
}

/// What a leader wants kept; see [`RunUpdate`].
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    pub(super) documents: Vec<ScenarioDocument>,
    pub(super) events: Vec<RunEvent>,
    pub(super) turn: Option<StateChange>,
    pub(super) publication: Option<RunPublication>,
}

/// Whether somebody leads, and who.
pub(super) enum Led {
    /// We do.
    ByUs(Lead),
    /// Somebody else does.
    By(String),
}

impl Runner {
    /// Takes a lease, if nobody else has it.
    pub(super) async fn take(&self, name: String, ttl: Duration) -> Result<Led, RunnerError> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| {
            let message = "the system has no randomness to give, nothing was changed";
            Fault::caused_by(FaultKind::Internal, message, std::io::Error::other(error))
        })?;
        let lead = Lead { name, token: hex(&token), ttl };
        Ok(match self.ledger.take_lease(self.wish(&lead)).await? {
            TakeLeaseResult::Taken => Led::ByUs(lead),
            TakeLeaseResult::HeldBy { owner, .. } => Led::By(owner),
        })
    }

    /// Gives a lease back. Where that fails it expires.
    pub(super) async fn give_back(&self, lead: Lead) {
        let Lead { name, token, .. } = lead;
        if let Err(fault) = self.ledger.release_lease(name, token, self.clock.now()).await {
            tracing::warn!(%fault, "a lease could not be given back, it expires by itself");
        }
    }

    /// Keeps something about a run, if we still lead it.
    pub(super) async fn keep(
        &self,
        lead: &Lead,
        run_id: &str,
        kept: Kept,
    ) -> Result<ScenarioRun, RunnerError> {
        let Kept { documents, events, turn, publication } = kept;
        let keeping = RunUpdate {
            run_id: run_id.to_owned(),
            lease: lead.name.clone(),
            token: lead.token.clone(),
            at: self.clock.now(),
            ttl_ms: millis(lead.ttl),
            documents,
            events,
            turn,
            publication,
        };
        match self.ledger.update_run(keeping).await? {
            Ok(()) => self.known(run_id).await,
            Err(RunUpdateError::LeaseLost) => Err(lost()),
            Err(taken @ RunUpdateError::AttemptTaken) => {
                Err(Refused::new(Refusal::ReemitBusy, taken.to_string()).into())
            }
            Err(RunUpdateError::NoRun) => Err(Refused::new(Refusal::RunNotFound, run_id).into()),
            Err(RunUpdateError::Drift { kind }) => {
                let detail = format!("the {kind} of this run is kept and says something else");
                Err(Refused::new(Refusal::drift(&kind), detail).into())
            }
            Err(illegal @ RunUpdateError::Illegal(_)) => {
                let message = "the run has gone elsewhere meanwhile, nothing was changed";
                Err(Fault::caused_by(FaultKind::Internal, message, illegal).into())
            }
        }
    }

    /// Does something that takes its time, and keeps the lease meanwhile.
    pub(super) async fn leading<T>(
        &self,
        lead: &Lead,
        work: impl Future<Output = T>,
    ) -> Result<T, RunnerError> {
        tokio::pin!(work);
        let mut beat = tokio::time::interval(lead.ttl / 3);
        beat.tick().await;
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                _ = beat.tick() => {
                    let renewed = self.ledger.take_lease(self.wish(lead)).await?;
                    if let TakeLeaseResult::HeldBy { .. } = renewed {
                        return Err(lost());
                    }
                }
            }
        }
    }

    fn wish(&self, lead: &Lead) -> RunLease {
        RunLease {
            name: lead.name.clone(),
            owner: self.settings.owner.clone(),
            token: lead.token.clone(),
            at: self.clock.now(),
            ttl_ms: millis(lead.ttl),
        }
    }
}

fn lost() -> RunnerError {
    let detail = "another runner has taken over, nothing was changed; ask for the status";
    Refused::new(Refusal::LeaseLost, detail).into()
}
