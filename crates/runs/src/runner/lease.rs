//! Leases of runs: one runner works on a run at a time.
//!
//! Every update of a run renews its lease, and is refused once another runner has taken it over.

use std::time::Duration;

use admit_core::hash::hex;
use admit_core::{Fault, FaultKind};
use admit_ledger::publications::BusEnd;
use admit_ledger::scenario_runs::{
    RunEvent, RunLease, RunPublication, RunUpdate, RunUpdateError, ScenarioDocument, ScenarioRun,
    StateChange, TakeLeaseResult,
};

use super::Runner;
use super::reason::{RefusalCode, RefusedRequest, RunnerError};
use super::settings::millis;

/// A lease held by this runner.
#[derive(Clone, Debug)]
pub(super) struct RunnerLease {
    name: String,
    token: String,
    ttl: Duration,
}

/// Changes to a run, committed together; see [`RunUpdate`].
#[derive(Clone, Debug, Default)]
pub(super) struct RunChange {
    pub(super) documents: Vec<ScenarioDocument>,
    pub(super) events: Vec<RunEvent>,
    pub(super) turn: Option<StateChange>,
    pub(super) publication: Option<RunPublication>,
    pub(super) acknowledged: Option<BusEnd>,
}

/// Result of acquiring a lease.
pub(super) enum Leadership {
    Acquired(RunnerLease),
    HeldBy(String),
}

impl Runner {
    /// Acquires a lease, unless another runner holds it.
    pub(super) async fn acquire_lease(
        &self,
        name: String,
        ttl: Duration,
    ) -> Result<Leadership, RunnerError> {
        let mut token = [0; 16];
        getrandom::fill(&mut token).map_err(|error| {
            let message = "the system's random number generator failed; nothing was changed";
            Fault::caused_by(FaultKind::Internal, message, std::io::Error::other(error))
        })?;
        let lease = RunnerLease { name, token: hex(&token), ttl };
        Ok(match self.ledger.take_lease(self.lease_request(&lease)).await? {
            TakeLeaseResult::Taken => Leadership::Acquired(lease),
            TakeLeaseResult::HeldBy { owner, .. } => Leadership::HeldBy(owner),
        })
    }

    /// Releases a lease. On failure it expires.
    pub(super) async fn release_lease(&self, lease: RunnerLease) {
        let RunnerLease { name, token, .. } = lease;
        if let Err(fault) = self.ledger.release_lease(name, token, self.clock.now()).await {
            tracing::warn!(%fault, "failed to release a run's lease; it will expire");
        }
    }

    /// Commits changes to a run and renews its lease, if it is still held. Returns the new state.
    pub(super) async fn update_run(
        &self,
        lease: &RunnerLease,
        run_id: &str,
        change: RunChange,
    ) -> Result<ScenarioRun, RunnerError> {
        let RunChange { documents, events, turn, publication, acknowledged } = change;
        let update = RunUpdate {
            run_id: run_id.to_owned(),
            lease: lease.name.clone(),
            token: lease.token.clone(),
            at: self.clock.now(),
            ttl_ms: millis(lease.ttl),
            documents,
            events,
            turn,
            publication,
            acknowledged,
        };
        match self.ledger.update_run(update).await? {
            Ok(()) => self.load_run(run_id).await,
            Err(RunUpdateError::LeaseLost) => Err(lease_lost()),
            Err(taken @ RunUpdateError::AttemptTaken) => {
                Err(RefusedRequest::new(RefusalCode::ReemitBusy, taken.to_string()).into())
            }
            Err(RunUpdateError::NoRun) => {
                Err(RefusedRequest::new(RefusalCode::RunNotFound, run_id).into())
            }
            Err(RunUpdateError::Drift { kind }) => {
                let detail = format!("the stored {kind} of this run differs");
                Err(RefusedRequest::new(RefusalCode::drift(&kind), detail).into())
            }
            Err(illegal @ RunUpdateError::Illegal(_)) => {
                let message = "illegal state transition: the run changed concurrently; nothing \
                               was changed";
                Err(Fault::caused_by(FaultKind::Internal, message, illegal).into())
            }
        }
    }

    /// Runs a long operation and renews the lease meanwhile.
    pub(super) async fn renew_lease_during<T>(
        &self,
        lease: &RunnerLease,
        work: impl Future<Output = T>,
    ) -> Result<T, RunnerError> {
        tokio::pin!(work);
        let mut renewal = tokio::time::interval(lease.ttl / 3);
        renewal.tick().await;
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                _ = renewal.tick() => {
                    let renewed = self.ledger.take_lease(self.lease_request(lease)).await?;
                    if let TakeLeaseResult::HeldBy { .. } = renewed {
                        return Err(lease_lost());
                    }
                }
            }
        }
    }

    fn lease_request(&self, lease: &RunnerLease) -> RunLease {
        RunLease {
            name: lease.name.clone(),
            owner: self.settings.owner.clone(),
            token: lease.token.clone(),
            at: self.clock.now(),
            ttl_ms: millis(lease.ttl),
        }
    }
}

fn lease_lost() -> RunnerError {
    let detail = "another runner has taken over the lease; nothing was changed; check the status";
    RefusedRequest::new(RefusalCode::LeaseLost, detail).into()
}
