//! `POST /v1/rounds/accept/{receipt_id}`: an operator accepts a later stats file of a round.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::entity::Acceptance;
use admit_core::json::{self, Object, Value};
use admit_core::{Code, ReceiptId};
use admit_ledger::port::{AcceptError, AcceptedEvent};
use axum::extract::State;
use http::{HeaderMap, header};

use super::intent_replay::REASON_CHARS_MAX;
use super::publications::RoundOperator;
use super::read::query::{BodyBytes, PathParams};
use super::read::{RouteReply, rounds};
use super::response;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;

/// Accepts the values of an event, and records the operator and the reason.
pub(super) async fn accept(
    State(gate): State<Arc<Gate>>,
    operator: RoundOperator,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
    BodyBytes(body): BodyBytes,
) -> RouteReply {
    let refused = |code, message: &str| RouteReply(response::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // Browsers send this content type to another origin only after a CORS preflight.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let reason = match parse_reason(&body) {
        Ok(reason) => reason,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let missing = || RouteReply::not_found(&gate, "unknown event, or not of a round");
    let Some(id) = id.parse::<ReceiptId>().ok().filter(|id| id.ledger == gate.ledger.tag()) else {
        return missing();
    };
    let Some((records, policy)) = rounds::records_and_policy(&gate) else { return missing() };
    let acceptance = Acceptance { by: operator.name, reason, at: gate.clock.now() };
    let work = async move { records.accept(DOOR.to_owned(), policy, id.seq, acceptance).await };
    let accepted = RunToCompletion::new(gate.tasks.clone(), work).await;
    if let Some(publisher) = &gate.publisher {
        publisher.wake();
    }
    match accepted {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(Err(AcceptError::Unknown)) => missing(),
        Ok(Err(AcceptError::Unfit(why))) => {
            refused(Code::NotReconcilable, &format!("{id} cannot be accepted: {why}"))
        }
        Ok(Err(AcceptError::Unreadable)) => {
            refused(Code::InternalError, "cannot read the stored event")
        }
        Ok(Ok(AcceptedEvent { record_id, is_new })) => RouteReply::object(
            200,
            &Object::from_iter([
                ("receipt_id", Value::from(id.to_string())),
                ("round_id", record_id.into()),
                ("accepted_before", (!is_new).into()),
            ]),
        ),
    }
}

/// Parses `{"reason": "…"}`.
fn parse_reason(body: &[u8]) -> Result<String, &'static str> {
    const EXPECTED: &str = r#"the body must be {"reason": "…"} with 1 to 1000 characters"#;
    let Ok(Value::Object(members)) = json::parse(body, &json::Limits::default()) else {
        return Err(EXPECTED);
    };
    let reason = members.get("reason").and_then(Value::as_str).ok_or(EXPECTED)?;
    let is_reason = !reason.trim().is_empty() && reason.chars().count() <= REASON_CHARS_MAX;
    let is_alone = members.iter().all(|(name, _)| name == "reason");
    if is_reason && is_alone { Ok(reason.to_owned()) } else { Err(EXPECTED) }
}
