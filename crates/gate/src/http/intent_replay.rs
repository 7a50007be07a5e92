//! `POST /v1/intents/{receipt_id}/replay`: an operator repeats the effect of an intent.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_contracts::intents::DOOR;
use admit_core::effect::{Attribution, Step};
use admit_core::hash::hex;
use admit_core::json::{self, Value};
use admit_core::{Code, Door, Receipt};
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use http::{HeaderMap, header};

use super::read::query::{BodyBytes, PathParams};
use super::read::{RouteReply, authorize, intents};
use super::response;
use crate::auth;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::gateway_delivery::{self, ReplayError};
use crate::principals::Role;

/// Longest reason of an operator, in characters.
pub(super) const REASON_CHARS_MAX: usize = 1_000;

/// A principal with the role `operate` at the intents door.
pub(super) struct IntentOperator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for IntentOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let door = Door::new(DOOR);
        let known = authorize(head, gate, |known| auth::permit(known, Role::Operate, &door))?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// Starts one more attempt, and records the operator and the reason.
pub(super) async fn replay(
    State(gate): State<Arc<Gate>>,
    operator: IntentOperator,
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
    let (reason, is_again) = match parse_replay(&body) {
        Ok(parsed) => parsed,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let receipt = match intents::admission(&gate, &id).await {
        Ok(receipt) => receipt,
        Err(routed) => return routed,
    };
    let by = Attribution { who: operator.name, why: Some(reason) };
    let step = if is_again { Step::Replay(by) } else { Step::ReplayUndone(by) };
    let work = run(Arc::clone(&gate), receipt, step);
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Ok(reply) => RouteReply(reply),
        Err(ReplayError::InWork) => {
            refused(Code::InWork, "an attempt is in progress; retry when it has ended")
        }
        Err(ReplayError::NotReplayable(message)) => refused(Code::NotReplayable, message),
        Err(ReplayError::Fault(fault)) => RouteReply::fault(&gate, &fault),
    }
}

async fn run(gate: Arc<Gate>, receipt: Receipt, step: Step) -> Result<Reply, ReplayError> {
    let Some(door) = gate.doors.iter().find(|mount| mount.door == receipt.door) else {
        return Err(ReplayError::NotReplayable("the door of this event is not configured"));
    };
    let mut trace = [0; 16];
    if getrandom::fill(&mut trace).is_err() {
        return Err(ReplayError::NotReplayable("the system random number generator failed"));
    }
    gateway_delivery::replay(&gate, door, &receipt, step, &hex(&trace)).await
}

/// Parses `{"reason": "…", "again": true}`. With `again`, an effect that is done is repeated too.
fn parse_replay(body: &[u8]) -> Result<(String, bool), &'static str> {
    const EXPECTED: &str = r#"the body must be {"reason": "…"} with 1 to 1000 characters, and optionally "again": true"#;
    let Ok(Value::Object(members)) = json::parse(body, &json::Limits::default()) else {
        return Err(EXPECTED);
    };
    if members.iter().any(|(name, _)| !["reason", "again"].contains(&name)) {
        return Err(EXPECTED);
    }
    let is_again = match members.get("again") {
        None | Some(Value::Null) => false,
        Some(again) => again.as_bool().ok_or(EXPECTED)?,
    };
    let reason = members.get("reason").and_then(Value::as_str).ok_or(EXPECTED)?;
    let is_reason = !reason.trim().is_empty() && reason.chars().count() <= REASON_CHARS_MAX;
    if is_reason { Ok((reason.to_owned(), is_again)) } else { Err(EXPECTED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_needs_a_reason_and_repeats_done_effects_only_on_request() {
        let because = |is_again| Ok(("because".to_owned(), is_again));
        assert_eq!(parse_replay(br#"{"reason":"because"}"#), because(false));
        assert_eq!(parse_replay(br#"{"reason":"because","again":false}"#), because(false));
        assert_eq!(parse_replay(br#"{"again":true,"reason":"because"}"#), because(true));
        for wrong in [
            "",
            "{}",
            "[]",
            "{",
            r#"{"again":true}"#,
            r#"{"reason":null}"#,
            r#"{"reason":""}"#,
            r#"{"reason":" "}"#,
            r#"{"reason":5}"#,
            r#"{"reason":"x","why":"x"}"#,
            r#"{"reason":"x","again":"yes"}"#,
        ] {
            assert!(parse_replay(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
