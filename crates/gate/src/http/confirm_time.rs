//! `POST /v1/ops/confirm-time`: an operator confirms the clock after a jump, so that retention resumes.

use std::sync::Arc;

use admit_core::Code;
use admit_core::json::{self, Object, Value};
use axum::extract::{FromRequestParts, State};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, header};

use super::intent_replay::REASON_CHARS_MAX;
use super::read::{RouteReply, authorize};
use super::response;
use crate::auth;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;

/// A principal with the role `operate` at every door, because all doors share the clock.
pub(super) struct ClockOperator {
    name: String,
}

impl FromRequestParts<Arc<Gate>> for ClockOperator {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let known = authorize(head, gate, auth::permit_operating_everything)?;
        Ok(Self { name: known.principal.to_string() })
    }
}

/// Confirms the current time, and records the operator and the reason. Without a jump nothing is recorded.
pub(super) async fn confirm(
    State(gate): State<Arc<Gate>>,
    operator: ClockOperator,
    headers: HeaderMap,
    body: Bytes,
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
    let Some(retention) = gate.retention.clone() else {
        return RouteReply::not_found(&gate, "retention is not configured");
    };
    let work = async move { retention.confirm(&operator.name, reason).await };
    match RunToCompletion::new(gate.tasks.clone(), work).await {
        Err(fault) => RouteReply::fault(&gate, &fault),
        Ok(confirmation) => RouteReply::object(
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

/// Parses `{"reason": "…"}`; body and reason are optional.
fn parse_reason(body: &[u8]) -> Result<Option<String>, &'static str> {
    const EXPECTED: &str =
        r#"the body must be empty or {"reason": "…"} with at most 1000 characters"#;
    if body.is_empty() {
        return Ok(None);
    }
    let Ok(Value::Object(members)) = json::parse(body, &json::Limits::default()) else {
        return Err(EXPECTED);
    };
    if members.iter().any(|(name, _)| name != "reason") {
        return Err(EXPECTED);
    }
    match members.get("reason") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(why)) if why.chars().count() <= REASON_CHARS_MAX => {
            Ok(Some(why.clone().into_owned()).filter(|why| !why.trim().is_empty()))
        }
        Some(_) => Err(EXPECTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_an_optional_string() {
        assert_eq!(parse_reason(b""), Ok(None));
        assert_eq!(parse_reason(b"{}"), Ok(None));
        assert_eq!(parse_reason(br#"{"reason":"because"}"#), Ok(Some("because".to_owned())));
        for wrong in ["[]", "{", r#"{"reason":5}"#, r#"{"why":"x"}"#] {
            assert!(parse_reason(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
