//! Scenario runs inside a transaction: one key one run, one leader, written once, never back.

use admit_core::{Millis, ScenarioState};

use crate::port::LEASE_LIFE_MAX;
use crate::scenario_runs::{
    Keeping, NotKept, Opened, Opening, Publication, PublicationState, RunDocument, RunEvent,
    RunLease, Taking, Turn,
};

/// Who has a lease.
pub(crate) struct Held {
    pub(crate) owner: String,
    pub(crate) token: String,
    pub(crate) until: Millis,
}

/// What a transaction reads and writes of scenario runs. What writes says how many rows it changed.
pub(crate) trait ScenarioRows {
    /// What the database says when it fails.
    type Error;

    /// The intent that a key stands for.
    fn intent(&self, key: &str) -> Result<Option<String>, Self::Error>;

    /// A later request under a known key.
    fn seen(&self, key: &str, at: Millis) -> Result<(), Self::Error>;

    /// A new run.
    fn open(&self, opening: &Opening) -> Result<(), Self::Error>;

    fn held(&self, lease: &str) -> Result<Option<Held>, Self::Error>;

    fn take(&self, lease: &RunLease, until: Millis) -> Result<(), Self::Error>;

    /// Moves the end of a lease, if `token` still has it.
    fn renew(&self, lease: &str, token: &str, until: Millis, at: Millis)
    -> Result<(), Self::Error>;

    fn state(&self, run: &str) -> Result<Option<ScenarioState>, Self::Error>;

    /// Whether an attempt at publishing is taken.
    fn has_attempt(&self, run: &str, attempt: u32) -> Result<bool, Self::Error>;

    fn document(&self, run: &str, kind: &str) -> Result<Option<RunDocument>, Self::Error>;

    fn put_document(
        &self,
        run: &str,
        document: &RunDocument,
        at: Millis,
    ) -> Result<u64, Self::Error>;

    fn put_event(&self, run: &str, event: &RunEvent) -> Result<u64, Self::Error>;

    fn turn(&self, run: &str, turn: &Turn, at: Millis) -> Result<u64, Self::Error>;

    fn publish(&self, run: &str, said: &Publication) -> Result<u64, Self::Error>;

    /// Copies made before are out of date.
    fn touch(&self, run: &str) -> Result<(), Self::Error>;
}

/// Says which run a key stands for.
pub(crate) fn open_run<R: ScenarioRows>(rows: &R, opening: &Opening) -> Result<Opened, R::Error> {
    let key = &opening.run_equivalence_key;
    match rows.intent(key)? {
        Some(intent) if intent != opening.intent_fingerprint => {
            Ok(Opened::Collision { intent_fingerprint: intent })
        }
        Some(_) => {
            rows.seen(key, opening.at)?;
            Ok(Opened::Known)
        }
        None => {
            rows.open(opening)?;
            Ok(Opened::New)
        }
    }
}

/// Takes a lease that is free or expired, or that a wrong clock wrote further into the future than any
/// lease may reach.
pub(crate) fn take_lease<R: ScenarioRows>(rows: &R, lease: &RunLease) -> Result<Taking, R::Error> {
    if let Some(Held { owner, token, until }) = rows.held(&lease.name)?
        && token != lease.token
        && until > lease.at
        && until <= LEASE_LIFE_MAX.after(lease.at)
    {
        return Ok(Taking::HeldBy { owner, until });
    }
    rows.take(lease, later(lease.at, lease.ttl_ms))?;
    Ok(Taking::Taken)
}

/// Keeps what the leader says, all of it or nothing.
pub(crate) fn keep<R: ScenarioRows>(
    rows: &R,
    keeping: &Keeping,
) -> Result<Result<(), NotKept>, R::Error> {
    // Everything that may be refused is looked at first: a refusal writes nothing.
    let state = match check(rows, keeping)? {
        Ok(state) => state,
        Err(refused) => return Ok(Err(refused)),
    };
    let Keeping { run_id, lease, token, at, ttl_ms, documents, events, turn, publication } =
        keeping;
    rows.renew(lease, token, later(*at, *ttl_ms), *at)?;
    let mut changed = 0;
    for document in documents {
        changed += rows.put_document(run_id, document, *at)?;
    }
    for event in events {
        changed += rows.put_event(run_id, event)?;
    }
    if let Some(turn) = turn
        && state != turn.to
    {
        changed += rows.turn(run_id, turn, *at)?;
    }
    if let Some(said) = publication {
        changed += rows.publish(run_id, said)?;
    }
    if changed > 0 {
        rows.touch(run_id)?;
    }
    Ok(Ok(()))
}

/// How the run stands, or why nothing is kept of it.
fn check<R: ScenarioRows>(
    rows: &R,
    keeping: &Keeping,
) -> Result<Result<ScenarioState, NotKept>, R::Error> {
    let Keeping { run_id, lease, token, documents, turn, publication, .. } = keeping;
    if rows.held(lease)?.is_none_or(|held| held.token != *token) {
        return Ok(Err(NotKept::LeaseLost));
    }
    let Some(state) = rows.state(run_id)? else { return Ok(Err(NotKept::NoRun)) };
    if let Some(turn) = turn
        && let Err(illegal) = state.turn(turn.to)
    {
        return Ok(Err(illegal.into()));
    }
    if let Some(said) = publication
        && said.state == PublicationState::InFlight
        && rows.has_attempt(run_id, said.attempt)?
    {
        return Ok(Err(NotKept::AttemptTaken));
    }
    for document in documents {
        if rows.document(run_id, &document.kind)?.is_some_and(|kept| kept != *document) {
            return Ok(Err(NotKept::Drift { kind: document.kind.clone() }));
        }
    }
    Ok(Ok(state))
}

fn later(at: Millis, ms: i64) -> Millis {
    Millis(at.0.saturating_add(ms))
}
