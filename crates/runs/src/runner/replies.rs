//! HTTP replies of the runner: state of a run, result of a re-emit, refusals.

use admit_contracts::Reply;
use admit_contracts::ingestion_gate::{ArtifactPaths, utc};
use admit_core::ScenarioState;
use admit_core::json::{self, Object, Value};
use admit_ledger::scenario_runs::RunPublication;

use super::RunStatus;
use super::documents::{self, RunRefs};
use super::reason::RunnerError;
use super::reemit::ReemitResult;

/// Reply with the state of a run: 202 while it may still become ready, else 200.
pub fn status_reply(status: &RunStatus, paths: &ArtifactPaths) -> Reply {
    let run = &status.run;
    let refs = RunRefs { paths, run: &run.platform_run_id, run_id: &run.run_id };
    let mut body = Object::from_iter([
        ("run_id", Value::from(&run.run_id)),
        ("scenario_run_id", (&run.run_id).into()),
        ("platform_run_id", (&run.platform_run_id).into()),
        ("run_equivalence_key", (&run.run_equivalence_key).into()),
        ("intent_fingerprint", (&run.intent_fingerprint).into()),
        ("state", run.state.word().into()),
        ("reason_code", run.reason.as_ref().into()),
        ("updated_at_utc", utc(run.turned_at).into()),
        ("message", (&status.message).into()),
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
            body.push(name, &document.path);
        }
    }
    if let Some(message_id) = documents::message_id(run) {
        body.push("message_id", message_id);
    }
    let publications: Value<'_> = run.publications.iter().map(publication).collect();
    body.push("publications", publications);
    let is_pending = !matches!(
        run.state,
        ScenarioState::Ready | ScenarioState::Failed | ScenarioState::Quarantined
    );
    reply(if is_pending { 202 } else { 200 }, &body)
}

fn publication(attempt: &RunPublication) -> Object<'_> {
    Object::from_iter([
        ("attempt", Value::from(attempt.attempt)),
        ("kind", (&attempt.kind).into()),
        ("message_id", (&attempt.message_id).into()),
        ("state", attempt.state.word().into()),
        ("evidence", attempt.evidence.as_ref().into()),
        ("at_utc", utc(attempt.at).into()),
    ])
}

/// Reply with the result of a re-emit.
pub fn reemit_reply(result: &ReemitResult) -> Reply {
    let ReemitResult { run, kind, message_id, is_dry_run } = result;
    let state = if *is_dry_run { "dry_run" } else { "published" };
    let body = Object::from_iter([
        ("run_id", Value::from(&run.run_id)),
        ("platform_run_id", (&run.platform_run_id).into()),
        ("state", run.state.word().into()),
        ("kind", (*kind).into()),
        ("message_id", message_id.into()),
        ("publication", state.into()),
        ("dry_run", (*is_dry_run).into()),
    ]);
    reply(200, &body)
}

/// Reply with a refusal: `{"error", "detail", "retryable"}`, with a retry hint if a retry helps.
/// `None` for an internal fault, which the gate renders itself.
pub fn error_reply(error: &RunnerError) -> Option<Reply> {
    let RunnerError::Refused(refused) = error else { return None };
    let wait = refused.retry_after_seconds;
    let mut body = Object::from_iter([
        ("error", Value::from(refused.code.word())),
        ("detail", (&refused.detail).into()),
        ("retryable", wait.is_some().into()),
    ]);
    if let Some(seconds) = wait {
        body.push("retry_after_seconds", seconds);
    }
    let mut reply = reply(refused.code.status(), &body);
    reply.headers.extend(wait.map(|seconds| ("retry-after", seconds.to_string())));
    Some(reply)
}

fn reply(status: u16, object: &Object<'_>) -> Reply {
    let mut body = Vec::new();
    json::write_object(object, &mut body);
    Reply { status, content_type: "application/json", headers: Vec::new(), body }
}
