//! `POST /v1/ops/confirm-time`: a person vouches for the clock, so that retention goes on.

use std::sync::Arc;

use admit_core::Code;
use admit_core::json::{self, Object, Value};
use axum::extract::{FromRequestParts, State};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};

use super::answer;
use super::operate::REASON_CHARS_MAX;
use super::read::{Routed, known};
use crate::auth;
use crate::finish::Finishing;
use crate::gate::Gate;

/// A principal with the role `operate` at every door: the clock is of all of them.
pub(super) struct ClockOperator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for ClockOperator {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let known = known(head, gate, auth::permit_operating_everything)?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// Confirms what the clock shows, with who did and why. Without a jump nothing is recorded.
pub(super) async fn confirm(
    State(gate): State<Arc<Gate>>,
    operator: ClockOperator,
    headers: HeaderMap,
    body: Bytes,
) -> Routed {
    let refused = |code, message: &str| Routed(answer::refuse(&gate, code, message));
    if gate.is_draining() {
        return refused(Code::Draining, "the gate is shutting down");
    }
    // A web page cannot send this content type without asking first.
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
    });
    if !is_json {
        return refused(Code::UnsupportedMediaType, "the content type must be application/json");
    }
    let reason = match reason(&body) {
        Ok(reason) => reason,
        Err(message) => return refused(Code::InvalidRequest, message),
    };
    let Some(retention) = gate.retention.clone() else {
        return Routed::not_found(&gate, "this gate has no retention");
    };
    let work = async move { retention.confirm(&operator.name, reason).await };
    match Finishing::new(gate.tasks.clone(), work).await {
        Err(fault) => Routed::fault(&gate, &fault),
        Ok(confirmation) => Routed::object(
            200,
            &Object::from_iter([
                ("confirmed", Value::from(confirmation.is_some())),
                (
                    "time",
                    match &confirmation {
                        Some(confirmation) => confirmation.confirmed_at,
                        None => gate.clock.now(),
                    }
                    .to_rfc3339_millis()
                    .into(),
                ),
                (
                    "trusted_before",
                    confirmation.map_or(Value::Null, |confirmation| {
                        confirmation.trusted_at.to_rfc3339_millis().into()
                    }),
                ),
            ]),
        ),
    }
}

/// Reads `{"reason": "…"}`; body and reason are optional.
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
