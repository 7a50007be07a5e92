//! A person has a later stats file of a round count. Needs the role `operate`, and is written down.

use std::sync::Arc;

use admit_contracts::rounds::DOOR;
use admit_core::json::{self, Object, Value};
use admit_core::entity::Acceptance;
use admit_core::{Code, ReceiptId};
use admit_ledger::port::{AcceptedEvent, AcceptError};
use axum::extract::State;
use http::{HeaderMap, header};

use super::answer;
use super::operate::REASON_CHARS_MAX;
use super::publications::Operator;
use super::read::query::{Named, Sent};
use super::read::{Routed, rounds};
use crate::finish::Finishing;
use crate::gate::Gate;

/// `POST /v1/rounds/accept/{receipt_id}`: what this event tells counts, by whom and why.
pub(super) async fn accept(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Named(id): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // No page can send this without asking first.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let reason = match asked(&body) {
        Ok(reason) => reason,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let missing = || Routed::not_found(&gate, "there is no such event of a round");
    let Some(id) = id.parse::<ReceiptId>().ok().filter(|id| id.ledger == gate.ledger.tag()) else {
        return missing();
    };
    let Some((records, policy)) = rounds::opened(&gate) else { return missing() };
    let word = Acceptance { by: operator.name, reason, at: gate.clock.now() };
    let work = async move { records.accept(DOOR.to_owned(), policy, id.seq, word).await };
    let accepted = Finishing::new(gate.tasks.clone(), work).await;
    if let Some(publisher) = &gate.publisher {
        publisher.wake();
    }
    match accepted {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(Err(AcceptError::Unknown)) => missing(),
        Ok(Err(AcceptError::Unfit(why))) => {
            refused(Code::NotReconcilable, &format!("{id} cannot be accepted: {why}"))
        }
        Ok(Err(AcceptError::Unreadable)) => {
            refused(Code::InternalError, "what the ledger keeps of this event cannot be read")
        }
        Ok(Ok(AcceptedEvent { record_id, is_new })) => Routed::object(
            200,
            &Object::from_iter([
                ("receipt_id", Value::from(id.to_string())),
                ("round_id", record_id.into()),
                ("accepted_before", (!is_new).into()),
            ]),
        ),
    }
}

/// `{"reason": "…"}`
fn asked(body: &[u8]) -> Result<String, &'static str> {
    const WANTED: &str = r#"the body must be {"reason": "…"} with 1 to 1000 characters"#;
    let Ok(Value::Object(asked)) = json::parse(body, &json::Limits::default()) else {
        return Err(WANTED);
    };
    let reason = asked.get("reason").and_then(Value::as_str).ok_or(WANTED)?;
    let is_reason = !reason.trim().is_empty() && reason.chars().count() <= REASON_CHARS_MAX;
    let is_alone = asked.iter().all(|(name, _)| name == "reason");
    if is_reason && is_alone { Ok(reason.to_owned()) } else { Err(WANTED) }
}
