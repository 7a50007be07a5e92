//! Rules of scenario runs: one key one run, one leader, documents written once, states never back.

use admit_core::{Millis, ScenarioState};

use crate::db::Db;
use crate::port::LEASE_LIFE_MAX;
use crate::scenario_runs::{
    OpenRunRequest, OpenRunResult, PublicationState, RunLease, RunUpdate, RunUpdateError,
    TakeLeaseResult,
};
use crate::tables::scenario_run::{self as rows, StoredLease};

/// Opens the run of a key, or finds the one it stands for.
pub(crate) fn open_run<D: Db>(db: &D, opening: &OpenRunRequest) -> Result<OpenRunResult, D::Error> {
    let key = &opening.run_equivalence_key;
    match rows::intent(db, key)? {
        Some(intent) if intent != opening.intent_fingerprint => {
            Ok(OpenRunResult::Collision { intent_fingerprint: intent })
        }
        Some(_) => {
            rows::note_request(db, key, opening.at)?;
            Ok(OpenRunResult::Known)
        }
        None => {
            rows::insert_run(db, opening)?;
            Ok(OpenRunResult::New)
        }
    }
}

/// Takes a lease that is free or expired, or that a wrong clock wrote further into the future than any
/// lease may reach.
pub(crate) fn take_lease<D: Db>(db: &D, lease: &RunLease) -> Result<TakeLeaseResult, D::Error> {
    if let Some(StoredLease { owner, token, until }) = rows::lease(db, &lease.name)?
        && token != lease.token
        && until > lease.at
        && until <= LEASE_LIFE_MAX.after(lease.at)
    {
        return Ok(TakeLeaseResult::HeldBy { owner, until });
    }
    rows::put_lease(db, lease, later(lease.at, lease.ttl_ms))?;
    Ok(TakeLeaseResult::Taken)
}

/// Applies an update of the leader, all of it or nothing.
pub(crate) fn update_run<D: Db>(
    db: &D,
    update: &RunUpdate,
) -> Result<Result<(), RunUpdateError>, D::Error> {
    // Everything that may be refused is checked first: a refusal writes nothing.
    let state = match check(db, update)? {
        Ok(state) => state,
        Err(refused) => return Ok(Err(refused)),
    };
    let RunUpdate { run_id, lease, token, at, ttl_ms, documents, events, turn, .. } = update;
    rows::renew_lease(db, lease, token, later(*at, *ttl_ms), *at)?;
    let mut changed = 0;
    for document in documents {
        changed += rows::insert_document(db, run_id, document, *at)?;
    }
    for event in events {
        changed += rows::insert_event(db, run_id, event)?;
    }
    if let Some(turn) = turn
        && state != turn.to
    {
        changed += rows::set_state(db, run_id, turn, *at)?;
    }
    if let Some(publication) = &update.publication {
        changed += rows::put_publication(db, run_id, publication)?;
    }
    if let Some(end) = &update.acknowledged {
        rows::raise_bus_end(db, end)?;
    }
    if changed > 0 {
        rows::raise_version(db, run_id)?;
    }
    Ok(Ok(()))
}

/// Returns the state of the run, or why the update is refused.
fn check<D: Db>(
    db: &D,
    update: &RunUpdate,
) -> Result<Result<ScenarioState, RunUpdateError>, D::Error> {
    let RunUpdate { run_id, lease, token, documents, turn, publication, .. } = update;
    if rows::lease(db, lease)?.is_none_or(|held| held.token != *token) {
        return Ok(Err(RunUpdateError::LeaseLost));
    }
    let Some(state) = rows::state(db, run_id)? else { return Ok(Err(RunUpdateError::NoRun)) };
    if let Some(turn) = turn
        && let Err(illegal) = state.transition(turn.to)
    {
        return Ok(Err(illegal.into()));
    }
    if let Some(publication) = publication
        && publication.state == PublicationState::InFlight
        && rows::has_attempt(db, run_id, publication.attempt)?
    {
        return Ok(Err(RunUpdateError::AttemptTaken));
    }
    for document in documents {
        if rows::document(db, run_id, &document.kind)?.is_some_and(|kept| kept != *document) {
            return Ok(Err(RunUpdateError::Drift { kind: document.kind.clone() }));
        }
    }
    Ok(Ok(state))
}

fn later(at: Millis, ms: i64) -> Millis {
    Millis(at.0.saturating_add(ms))
}
