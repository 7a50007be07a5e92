//! Routes about runs as a whole: the report, and closing.

use std::sync::Arc;

use admit_core::Code;
use admit_core::closure::{Manifest, Objection};
use admit_core::effect::Attribution;
use admit_core::json::{self, Object, Value};
use admit_ledger::Run;
use axum::extract::State;
use http::{HeaderMap, header};

use super::answer;
use super::ingest::Operator;
use super::read::query::{Asked, DocumentsQuery, Named, Sent, invalid, rows};
use super::read::{Reader, Routed};
use crate::accounts::{Accounts, NotClosed};
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::ingest::Ingest;

/// Longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// Most outputs in a manifest.
const OUTPUTS_MAX: usize = 10_000;

fn accounts(gate: &Gate) -> Result<&Arc<dyn Accounts>, Routed> {
    let none = || Routed::not_found(gate, "the ingestion gate is not open here");
    gate.accounts.as_ref().ok_or_else(none)
}

/// `GET /v1/runs`: every run that an envelope has named, by name, with its counters.
pub(super) async fn list(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<DocumentsQuery>,
) -> Routed {
    let ingest = gate.ingests().next().filter(|_| reader.may_see(&Ingest::door()));
    let Some(ingest) = ingest else {
        return Routed::not_found(&gate, "the ingestion gate is not open here");
    };
    let limit = match rows(query.limit) {
        Ok(limit) => limit,
        Err(message) => return invalid(&gate, &message),
    };
    match ingest.ledger.runs(query.after.unwrap_or_default(), limit).await {
        Ok(runs) => {
            let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.id.clone());
            let listed: Vec<Object<'_>> = runs.iter().map(listed).collect();
            let object = Object::from_iter([("runs", Value::from(listed)), ("next", next.into())]);
            Routed::object(200, &object)
        }
        Err(fault) => Routed::fault(&gate, &fault),
    }
}

fn listed(run: &Run) -> Object<'_> {
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

/// `GET /v1/runs/{platform_run_id}/report`: what became of a run, in numbers.
pub(super) async fn report(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(run): Named<String>,
) -> Routed {
    let accounts = match accounts(&gate) {
        Ok(accounts) if reader.may_see(&Ingest::door()) => Arc::clone(accounts),
        Ok(_) => return Routed::not_found(&gate, "the ingestion gate is not open here"),
        Err(routed) => return routed,
    };
    match accounts.report(run).await {
        Ok(Some(report)) => Routed::object(200, &report),
        Ok(None) => Routed::not_found(&gate, "no event has named this run"),
        Err(fault) => Routed::fault(&gate, &fault),
    }
}

/// `POST /v1/runs/{platform_run_id}/close`: closes a run, or says everything that speaks against it.
pub(super) async fn close(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(run): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    let accounts = match accounts(&gate) {
        Ok(accounts) => Arc::clone(accounts),
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
    let wish = match Wish::read(&body) {
        Ok(wish) => wish,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let by = Attribution { who: operator.name, why: wish.reason };
    let work = accounts.close(run.clone(), wish.manifest, by);
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok(closure) => Routed::object(200, &closure),
        Err(NotClosed::Unknown) => Routed::not_found(&gate, "no event has named this run"),
        Err(NotClosed::InWork) => {
            refused(Code::InWork, "somebody is closing this run, ask again when they have ended")
        }
        Err(NotClosed::Refused { state, objections }) => against(&gate, &run, state, &objections),
        Err(NotClosed::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

/// Every reason at once, each with its word and its sentence.
fn against(gate: &Gate, run: &str, state: &'static str, objections: &[Objection]) -> Routed {
    const CODE: Code = Code::ClosureRefused;
    let message = match state {
        "closed" => "the run is closed already, with other counts than the manifest expects",
        _ => "the run cannot be closed as it stands; it is open again, and nothing has changed",
    };
    let reply = answer::refuse(gate, CODE, message);
    let error = Object::from_iter([
        ("code", Value::from(CODE.as_str())),
        ("message", message.into()),
        ("retryable", CODE.is_retryable().into()),
        ("retry_after_seconds", 0.into()),
    ]);
    let reasons: Vec<Object<'_>> = objections.iter().map(said).collect();
    let object = Object::from_iter([
        ("error", Value::from(error)),
        ("platform_run_id", run.into()),
        ("state", state.into()),
        ("reasons", reasons.into()),
    ]);
    Routed::object(reply.status, &object)
}

fn said(objection: &Objection) -> Object<'_> {
    let sample: Vec<&str> = objection.sample.iter().map(String::as_str).collect();
    Object::from_iter([
        ("code", Value::from(objection.ground.as_str())),
        ("message", objection.message.as_str().into()),
        ("count", objection.count.into()),
        ("sample", sample.into()),
    ])
}

/// What whoever closes a run asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wish {
    reason: Option<String>,
    manifest: Option<Manifest>,
}

impl Wish {
    /// `{"manifest": {"output": count, …}, "reason": "…"}`; either may be left out, and so may all.
    fn read(body: &[u8]) -> Result<Self, &'static str> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let parsed = json::parse(body, &json::Limits::default());
        let Ok(Value::Object(members)) = parsed else {
            return Err("the body must be a JSON object");
        };
        if members.iter().any(|(name, _)| name != "manifest" && name != "reason") {
            return Err("the body may have a manifest and a reason, and nothing else");
        }
        let manifest = match members.get("manifest") {
            None | Some(Value::Null) => None,
            Some(Value::Object(outputs)) => Some(manifest(outputs)?),
            Some(_) => return Err(MANIFEST),
        };
        let reason = match members.get("reason") {
            None | Some(Value::Null) => None,
            Some(Value::String(why)) if why.chars().count() <= REASON_CHARS_MAX => {
                Some(why.trim().to_owned()).filter(|why| !why.is_empty())
            }
            Some(_) => return Err("the reason must be a text of at most 1000 characters"),
        };
        Ok(Self { reason, manifest })
    }
}

const MANIFEST: &str = "the manifest must be an object of at most 10000 outputs, each with the number \
                        of its admitted events";

fn manifest(outputs: &Object<'_>) -> Result<Manifest, &'static str> {
    let mut manifest = Manifest::new();
    for (output, count) in outputs.iter() {
        let count = count.as_u64().ok_or(MANIFEST)?;
        if output.is_empty() || manifest.insert(output.to_owned(), count).is_some() {
            return Err(MANIFEST);
        }
    }
    if manifest.len() > OUTPUTS_MAX { Err(MANIFEST) } else { Ok(manifest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_may_be_empty_or_name_a_manifest_and_a_reason() {
        assert_eq!(Wish::read(b""), Ok(Wish::default()));
        assert_eq!(Wish::read(b"{}"), Ok(Wish::default()));
        assert_eq!(Wish::read(br#"{"manifest":null,"reason":" "}"#), Ok(Wish::default()));
        let wish = Wish::read(br#"{"manifest":{"a":3,"b":0},"reason":"done"}"#).unwrap();
        let manifest = Manifest::from([("a".to_owned(), 3), ("b".to_owned(), 0)]);
        assert_eq!(wish, Wish { reason: Some("done".to_owned()), manifest: Some(manifest) });
    }

    #[test]
    fn what_is_no_wish_is_refused() {
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
            assert!(Wish::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
