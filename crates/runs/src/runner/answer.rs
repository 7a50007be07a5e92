//! Answers on the wire: how a run stands, what was emitted, why a request was refused.

use admit_contracts::Reply;
use admit_contracts::ingestion_gate::{ArtifactPaths, utc};
use admit_core::ScenarioState;
use admit_core::json::{self, Object, Value};
use admit_ledger::scenario_runs::RunPublication;

use super::Standing;
use super::documents::{self, Refs};
use super::reason::RunnerError;
use super::reemit::Reemitted;

/// How a run stands: 202 while it may still become ready, else 200.
pub fn standing(standing: &Standing, paths: &ArtifactPaths) -> Reply {
    let run = &standing.run;
    let refs = Refs { paths, run: &run.platform_run_id, run_id: &run.run_id };
    let mut answer = Object::from_iter([
        ("run_id", Value::from(&run.run_id)),
        ("scenario_run_id", (&run.run_id).into()),
        ("platform_run_id", (&run.platform_run_id).into()),
        ("run_equivalence_key", (&run.run_equivalence_key).into()),
        ("intent_fingerprint", (&run.intent_fingerprint).into()),
        ("state", run.state.word().into()),
        ("reason_code", run.reason.as_ref().into()),
        ("updated_at_utc", utc(run.turned_at).into()),
        ("message", (&standing.message).into()),
        ("status_ref", refs.status().into()),
        ("record_ref", refs.record().into()),
    ]);
    for (name, kind) in [
        ("plan_ref", documents::PLAN),
        ("facts_view_ref", documents::FACTS),
        ("ready_signal_ref", documents::SIGNAL),
        ("quarantine_ref", documents::QUARANTINE),
    ] {
        if let Some(document) = run.document(kind) {
            answer.push(name, &document.path);
        }
    }
    if let Some(message_id) = documents::message_id(run) {
        answer.push("message_id", message_id);
    }
    let published: Value<'_> = run.publications.iter().map(published).collect();
    answer.push("publications", published);
    let may_come = !matches!(
        run.state,
        ScenarioState::Ready | ScenarioState::Failed | ScenarioState::Quarantined
    );
    reply(if may_come { 202 } else { 200 }, &answer)
}

fn published(said: &RunPublication) -> Object<'_> {
    Object::from_iter([
        ("attempt", Value::from(said.attempt)),
        ("kind", (&said.kind).into()),
        ("message_id", (&said.message_id).into()),
        ("state", said.state.word().into()),
        ("evidence", said.evidence.as_ref().into()),
        ("at_utc", utc(said.at).into()),
    ])
}

/// What was emitted again.
pub fn reemitted(reemitted: &Reemitted) -> Reply {
    let Reemitted { run, kind, message_id, is_dry_run } = reemitted;
    let state = if *is_dry_run { "dry_run" } else { "published" };
    let answer = Object::from_iter([
        ("run_id", Value::from(&run.run_id)),
        ("platform_run_id", (&run.platform_run_id).into()),
        ("state", run.state.word().into()),
        ("kind", (*kind).into()),
        ("message_id", message_id.into()),
        ("publication", state.into()),
        ("dry_run", (*is_dry_run).into()),
    ]);
    reply(200, &answer)
}

/// Why there is nothing to show: `{"error", "detail"}`, or `None` for a fault of ours, which every
/// gate says in its own way.
pub fn failed(error: &RunnerError) -> Option<Reply> {
    let RunnerError::Refused(refused) = error else { return None };
    let answer = Object::from_iter([
        ("error", Value::from(refused.refusal.word())),
        ("detail", (&refused.detail).into()),
    ]);
    Some(reply(refused.refusal.status(), &answer))
}

fn reply(status: u16, answer: &Object<'_>) -> Reply {
    let mut body = Vec::new();
    json::write_object(answer, &mut body);
    Reply { status, content_type: "application/json", headers: Vec::new(), body }
}
