//! What a person does to what is kept. Needs the role `operate`, and is written down.

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

use super::answer;
use super::read::query::{Named, Sent};
use super::read::{Routed, intents, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;
use crate::perform::{self, NoReplay};
use crate::principals::Role;

/// Longest reason that is kept, in characters.
pub(super) const REASON_CHARS_MAX: usize = 1_000;

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
    Named(id): Named<String>,
    headers: HeaderMap,
    Sent(body): Sent,
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
    let (reason, is_again) = match asked(&body) {
        Ok(asked) => asked,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let receipt = match intents::admission(&gate, &id).await {
        Ok(receipt) => receipt,
        Err(routed) => return routed,
    };
    let by = Attribution { who: operator.name, why: Some(reason) };
    let step = if is_again { Step::Replay(by) } else { Step::ReplayUndone(by) };
    let work = run(Arc::clone(&gate), receipt, step);
    match Finishing::new(gate.tasks.clone(), work).await {
        Ok(reply) => Routed(reply),
        Err(NoReplay::InWork) => {
            refused(Code::InWork, "an attempt is in work, ask again when it has ended")
        }
        Err(NoReplay::Nothing(message)) => refused(Code::NotReplayable, message),
        Err(NoReplay::Fault(fault)) => Routed::fault(&gate, &fault),
    }
}

async fn run(gate: Arc<Gate>, receipt: Receipt, step: Step) -> Result<Reply, NoReplay> {
    let Some(door) = gate.doors.iter().find(|mount| mount.door == receipt.door) else {
        return Err(NoReplay::Nothing("the door of this event is not open"));
    };
    let mut trace = [0; 16];
    if getrandom::fill(&mut trace).is_err() {
        return Err(NoReplay::Nothing("the system has no randomness to give"));
    }
    perform::replay(&gate, door, &receipt, step, &hex(&trace)).await
}

/// `{"reason": "…", "again": true}`: why, and whether also what has been done is to be done again.
fn asked(body: &[u8]) -> Result<(String, bool), &'static str> {
    const WANTED: &str =
        r#"the body must be {"reason": "…"} with 1 to 1000 characters, and perhaps "again": true"#;
    let Ok(Value::Object(asked)) = json::parse(body, &json::Limits::default()) else {
        return Err(WANTED);
    };
    if asked.iter().any(|(name, _)| !["reason", "again"].contains(&name)) {
        return Err(WANTED);
    }
    let is_again = match asked.get("again") {
        None | Some(Value::Null) => false,
        Some(again) => again.as_bool().ok_or(WANTED)?,
    };
    let reason = asked.get("reason").and_then(Value::as_str).ok_or(WANTED)?;
    let is_reason = !reason.trim().is_empty() && reason.chars().count() <= REASON_CHARS_MAX;
    if is_reason { Ok((reason.to_owned(), is_again)) } else { Err(WANTED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_has_a_reason_and_again_only_when_it_is_said() {
        let because = |is_again| Ok(("because".to_owned(), is_again));
        assert_eq!(asked(br#"{"reason":"because"}"#), because(false));
        assert_eq!(asked(br#"{"reason":"because","again":false}"#), because(false));
        assert_eq!(asked(br#"{"again":true,"reason":"because"}"#), because(true));
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
            assert!(asked(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
