//! What a person does to what is kept. Needs the role `operate`, and is written down.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_contracts::intents::DOOR;
use admit_core::effect::By;
use admit_core::hash::hex;
use admit_core::json::{self, Value};
use admit_core::{Code, Door, Receipt};
use axum::extract::{FromRequestParts, Path, State};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};

use super::answer;
use super::read::{Routed, intents, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::perform::{self, NoReplay};
use crate::principals::Role;

/// Longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// Somebody who may act on intents.
pub(super) struct Operator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for Operator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let door = Door::new(DOOR);
        let known = known(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// `POST /v1/intents/{receipt_id}/replay`: one more attempt, with who asked and why.
pub(super) async fn replay(
    State(gate): State<Arc<Gate>>,
    operator: Operator,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // No page can send this without asking first, so none can have somebody replay by accident.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let why = match reason(&body) {
        Ok(why) => why,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let receipt = match intents::admission(&gate, &id).await {
        Ok(receipt) => receipt,
        Err(routed) => return routed,
    };
    let by = By { who: operator.name, why };
    let work = run(Arc::clone(&gate), receipt, by);
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok(reply) => Routed(reply),
        Err(NoReplay::InWork) => {
            refused(Code::InWork, "an attempt is in work, ask again when it has ended")
        }
        Err(NoReplay::Nothing(message)) => refused(Code::NotReplayable, message),
        Err(NoReplay::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

async fn run(gate: Arc<Gate>, receipt: Receipt, by: By) -> Result<Reply, NoReplay> {
    let Some(door) = gate.doors.iter().find(|mount| mount.door == receipt.door) else {
        return Err(NoReplay::Nothing("the door of this event is not open"));
    };
    let mut trace = [0; 16];
    if getrandom::fill(&mut trace).is_err() {
        return Err(NoReplay::Nothing("the system has no randomness to give"));
    }
    perform::replay(&gate, door, &receipt, by, &hex(&trace)).await
}

/// `{"reason": "…"}`, which may be left out.
fn reason(body: &[u8]) -> Result<Option<String>, &'static str> {
    const WANTED: &str =
        r#"the body must be empty or {"reason": "…"} with at most 1000 characters"#;
    if body.is_empty() {
        return Ok(None);
    }
    let Ok(Value::Object(asked)) = json::parse(body, &json::Limits::default()) else {
        return Err(WANTED);
    };
    if asked.iter().any(|(name, _)| name != "reason") {
        return Err(WANTED);
    }
    match asked.get("reason") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(why)) if why.chars().count() <= REASON_CHARS_MAX => {
            Ok(Some(why.clone().into_owned()).filter(|why| !why.trim().is_empty()))
        }
        Some(_) => Err(WANTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_text_or_nothing() {
        assert_eq!(reason(b""), Ok(None));
        assert_eq!(reason(b"{}"), Ok(None));
        assert_eq!(reason(br#"{"reason":"because"}"#), Ok(Some("because".to_owned())));
        for wrong in ["[]", "{", r#"{"reason":5}"#, r#"{"why":"x"}"#] {
            assert!(reason(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
