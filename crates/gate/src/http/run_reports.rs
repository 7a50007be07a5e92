//! Routes about runs of the ingestion gate: list, report, close.

use std::sync::Arc;

use admit_core::Code;
use admit_core::closure::{Manifest, Objection};
use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use admit_ledger::Run;
use axum::extract::State;
use http::{HeaderMap, header};

use super::ingest::IngestOperator;
use super::read::query::{BodyBytes, DocumentsQuery, PathParams, QueryParams, invalid, rows};
use super::read::{ReadAccess, RouteReply};
use super::response;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::ingest::Ingest;
use crate::run_reports::{RunCloseError, RunReports};

/// Longest reason of an operator, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// Most outputs in a manifest.
const OUTPUTS_MAX: usize = 10_000;

fn run_reports(gate: &Gate) -> Result<&Arc<dyn RunReports>, RouteReply> {
    let none = || RouteReply::not_found(gate, "the ingestion gate is not configured");
    gate.run_reports.as_ref().ok_or_else(none)
}

/// `GET /v1/runs`: runs in order of their ids, with their counters.
pub(super) async fn list(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<DocumentsQuery>,
) -> RouteReply {
    let ingest = gate.ingests().next().filter(|_| reader.may_see(&Ingest::door()));
    let Some(ingest) = ingest else {
        return RouteReply::not_found(&gate, "the ingestion gate is not configured");
    };
    let limit = match rows(query.limit) {
        Ok(limit) => limit,
        Err(message) => return invalid(&gate, &message),
    };
    match ingest.ledger.runs(query.after.unwrap_or_default(), limit).await {
        Ok(runs) => {
            let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.id.clone());
            let listed: Vec<Object<'_>> = runs.iter().map(run_item).collect();
            let object = Object::from_iter([("runs", Value::from(listed)), ("next", next.into())]);
            RouteReply::object(200, &object)
        }
        Err(fault) => RouteReply::fault(&gate, &fault),
    }
}

fn run_item(run: &Run) -> Object<'_> {
    let counts = &run.counts;
    Object::from_iter([
        ("platform_run_id", Value::from(run.id.as_str())),
        ("state", run.state.as_str().into()),
        ("opened_at", run.opened_at.to_rfc3339_millis().into()),
        ("changed_at", run.changed_at.to_rfc3339_millis().into()),
        ("deliveries", counts.deliveries.into()),
        ("admit", counts.admit.into()),
        ("duplicate", counts.duplicate.into()),
        ("quarantine", counts.quarantine.into()),
        ("in_flight", counts.in_flight.into()),
        ("publish_ambiguous", counts.ambiguous.into()),
    ])
}

/// `GET /v1/runs/{platform_run_id}/report`: report of a run.
pub(super) async fn report(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(run): PathParams<String>,
) -> RouteReply {
    let reports = match run_reports(&gate) {
        Ok(reports) if reader.may_see(&Ingest::door()) => Arc::clone(reports),
        Ok(_) => return RouteReply::not_found(&gate, "the ingestion gate is not configured"),
        Err(routed) => return routed,
    };
    match reports.report(run).await {
        Ok(Some(report)) => RouteReply::object(200, &report),
        Ok(None) => RouteReply::not_found(&gate, "unknown run: no event names it"),
        Err(fault) => RouteReply::fault(&gate, &fault),
    }
}

/// `POST /v1/runs/{platform_run_id}/close`: closes a run, or lists all objections.
pub(super) async fn close(
    State(gate): State<Arc<Gate>>,
    operator: IngestOperator,
    PathParams(run): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    let reports = match run_reports(&gate) {
        Ok(reports) => Arc::clone(reports),
        Err(routed) => return routed,
    };
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !body.is_empty() && !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let request = match CloseRequest::parse(&body) {
        Ok(request) => request,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: request.reason };
    let work = reports.close(run.clone(), request.manifest, by);
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Ok(closure) => RouteReply::object(200, &closure),
        Err(RunCloseError::Unknown) => {
            RouteReply::not_found(&gate, "unknown run: no event names it")
        }
        Err(RunCloseError::InWork) => {
            refused(Code::InWork, "another request is closing this run; retry when it has ended")
        }
        Err(RunCloseError::Refused { state, objections }) => {
            refuse_close(&gate, &run, state, &objections)
        }
        Err(RunCloseError::Fault(fault)) => RouteReply::fault(&gate, &fault),
    }
}

/// Returns a refusal with all objections, each with its code and message.
fn refuse_close(
    gate: &Gate,
    run: &str,
    state: &'static str,
    objections: &[Objection],
) -> RouteReply {
    const CODE: Code = Code::ClosureRefused;
    let message = match state {
        "closed" => "the run is already closed, with other counts than the manifest expects",
        _ => "the run cannot be closed, see reasons; it is open again and unchanged",
    };
    let reply = response::refuse(gate, CODE, message);
    let error = Object::from_iter([
        ("code", Value::from(CODE.as_str())),
        ("message", message.into()),
        ("retryable", CODE.is_retryable().into()),
        ("retry_after_seconds", 0.into()),
    ]);
    let reasons: Vec<Object<'_>> = objections.iter().map(objection_item).collect();
    let object = Object::from_iter([
        ("error", Value::from(error)),
        ("platform_run_id", run.into()),
        ("state", state.into()),
        ("reasons", reasons.into()),
    ]);
    RouteReply::object(reply.status, &object)
}

fn objection_item(objection: &Objection) -> Object<'_> {
    let sample: Vec<&str> = objection.sample.iter().map(String::as_str).collect();
    Object::from_iter([
        ("code", Value::from(objection.ground.as_str())),
        ("message", objection.message.as_str().into()),
        ("count", objection.count.into()),
        ("sample", sample.into()),
    ])
}

/// Body of a close request.
#[derive(Debug, Default, PartialEq, Eq)]
struct CloseRequest {
    reason: Option<String>,
    manifest: Option<Manifest>,
}

impl CloseRequest {
    /// Parses `{"manifest": {"output": count, …}, "reason": "…"}`; both members and the body are optional.
    fn parse(body: &[u8]) -> Result<Self, &'static str> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let parsed = json::parse(body, &json::Limits::default());
        let Ok(Value::Object(members)) = parsed else {
            return Err("the body must be a JSON object");
        };
        if members.iter().any(|(name, _)| name != "manifest" && name != "reason") {
            return Err("unknown member; expected manifest and reason");
        }
        let manifest = match members.get("manifest") {
            None | Some(Value::Null) => None,
            Some(Value::Object(outputs)) => Some(parse_manifest(outputs)?),
            Some(_) => return Err(MANIFEST_SHAPE),
        };
        let reason = match members.get("reason") {
            None | Some(Value::Null) => None,
            Some(Value::String(why)) if why.chars().count() <= REASON_CHARS_MAX => {
                Some(why.trim().to_owned()).filter(|why| !why.is_empty())
            }
            Some(_) => return Err("reason must be a string of at most 1000 characters"),
        };
        Ok(Self { reason, manifest })
    }
}

const MANIFEST_SHAPE: &str = "manifest must be an object with at most 10000 outputs, each with its number of \
                        admitted events";

fn parse_manifest(outputs: &Object<'_>) -> Result<Manifest, &'static str> {
    let mut manifest = Manifest::new();
    for (output, count) in outputs.iter() {
        let count = count.as_u64().ok_or(MANIFEST_SHAPE)?;
        if output.is_empty() || manifest.insert(output.to_owned(), count).is_some() {
            return Err(MANIFEST_SHAPE);
        }
    }
    if manifest.len() > OUTPUTS_MAX { Err(MANIFEST_SHAPE) } else { Ok(manifest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_and_reason_of_a_close_request_are_optional() {
        assert_eq!(CloseRequest::parse(b""), Ok(CloseRequest::default()));
        assert_eq!(CloseRequest::parse(b"{}"), Ok(CloseRequest::default()));
        assert_eq!(
            CloseRequest::parse(br#"{"manifest":null,"reason":" "}"#),
            Ok(CloseRequest::default())
        );
        let request =
            CloseRequest::parse(br#"{"manifest":{"a":3,"b":0},"reason":"done"}"#).unwrap();
        let manifest = Manifest::from([("a".to_owned(), 3), ("b".to_owned(), 0)]);
        assert_eq!(
            request,
            CloseRequest { reason: Some("done".to_owned()), manifest: Some(manifest) }
        );
    }

    #[test]
    fn an_invalid_close_request_is_refused() {
        for wrong in [
            "[]",
            "{",
            r#"{"expected":{}}"#,
            r#"{"manifest":[]}"#,
            r#"{"manifest":{"a":-1}}"#,
            r#"{"manifest":{"a":1.5}}"#,
            r#"{"manifest":{"a":"3"}}"#,
            r#"{"manifest":{"":3}}"#,
            r#"{"reason":5}"#,
        ] {
            assert!(CloseRequest::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
