//! Gateway call of an intent, and the interpretation of the gateway's response.

use admit_core::Evidence;
use admit_core::effect::{Effect, Outcome, StoredReply};
use admit_core::hash::hex;
use admit_core::json::{self, Limits, Object, Value};
use bytes::Bytes;

use super::paths::{ActionName, ActionPaths};
use super::reply::envelope;
use crate::{AdmissionContext, CallOutcome, Conclusion, GatewayCall};

/// See [`GatewayCalls::call`](crate::GatewayCalls::call).
pub(super) fn call(paths: &ActionPaths, effect: &Effect, trace: &str) -> Option<GatewayCall> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let plan = json::parse(&effect.plan, &limits).ok()?;
    let action = plan.get("action").and_then(Value::as_str).and_then(ActionName::parse)?;
    let request = plan.get("request")?;
    let key = request.get("idempotency_key")?.as_str()?;
    let mut body = Vec::new();
    json::write(request, &mut body);
    Some(GatewayCall {
        path: paths.of(action).to_owned(),
        headers: vec![("idempotency-key", key.to_owned()), ("x-trace-id", trace.to_owned())],
        body: body.into(),
    })
}

/// Interpreted outcome.
struct OutcomeDetails {
    outcome: Outcome,
    /// `details` of the envelope.
    details: Object<'static>,
    /// `error` of the envelope; `None` on success.
    error: Option<Object<'static>>,
}

/// See [`GatewayCalls::conclude`](crate::GatewayCalls::conclude).
pub(super) fn conclude(admission: AdmissionContext<'_>, outcome: &CallOutcome) -> Conclusion {
    let OutcomeDetails { outcome: settled, details, error } = interpret(outcome);
    let (status, http) = match settled {
        Outcome::Done => ("executed", 200),
        Outcome::Refused | Outcome::Ambiguous => ("failed", 502),
    };
    let mut evidence = evidence(outcome);
    evidence.push("details", details.clone());
    evidence.push("error", error.clone());
    let body = envelope(admission, status, details, error);
    Conclusion {
        outcome: settled,
        evidence: Evidence::of(&evidence),
        reply: StoredReply { status: http, body: body.into() },
    }
}

fn interpret(outcome: &CallOutcome) -> OutcomeDetails {
    match outcome {
        CallOutcome::NeverSent { reason } => failed(
            Outcome::Refused,
            "gateway_unreachable",
            "the gateway could not be reached, nothing was sent",
            Object::from_iter([("status_code", Value::Null), ("reason", reason.clone().into())]),
        ),
        CallOutcome::Unknown { reason } => failed(
            Outcome::Ambiguous,
            "outcome_unknown",
            "the gateway did not answer, the action may have been done",
            Object::from_iter([("status_code", Value::Null), ("reason", reason.clone().into())]),
        ),
        CallOutcome::Answered { status, body, is_whole } => {
            interpret_response(*status, body, *is_whole)
        }
    }
}

fn interpret_response(status: u16, body: &Bytes, is_whole: bool) -> OutcomeDetails {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let read = json::parse(body, &limits).ok().filter(|_| is_whole);
    let answer = read.as_ref().and_then(Value::as_object);
    let mut details = Object::from_iter([("status_code", status.into())]);
    if (200..300).contains(&status) {
        if !is_whole {
            let message = "the gateway's answer is not whole, the action may have been done";
            return failed(Outcome::Ambiguous, "outcome_unknown", message, details);
        }
        // Only an object body can contradict the status.
        let has_error = answer.is_some_and(|answer| {
            answer.get("status").and_then(Value::as_str) == Some("error")
                || answer.get("error").is_some_and(is_error)
        });
        if !has_error {
            if let Some(id) = answer.and_then(task_id) {
                details.push("notion_task_id", id.clone().into_owned());
            }
            return OutcomeDetails { outcome: Outcome::Done, details, error: None };
        }
    }
    if let Some(error) = answer.and_then(|answer| answer.get("error")) {
        details.push("gateway_error", error.clone().into_owned());
    }
    // A proxy that returns these has lost the gateway behind it, so the outcome is unknown.
    if matches!(status, 502 | 504) {
        let message = "a proxy lost the gateway, the action may have been done";
        return failed(Outcome::Ambiguous, "outcome_unknown", message, details);
    }
    failed(Outcome::Refused, "gateway_refused", "the gateway did not do it", details)
}

fn is_error(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Int(_) | Value::Float(_) => true,
    }
}

fn task_id<'o, 'a>(answer: &'o Object<'a>) -> Option<&'o Value<'a>> {
    let data = answer.get("data").and_then(Value::as_object);
    ["notion_page_id", "notion_task_id", "page_id"].into_iter().find_map(|name| {
        let found = data.and_then(|data| data.get(name)).or_else(|| answer.get(name));
        found.filter(|id| !id.is_null())
    })
}

fn failed(
    outcome: Outcome,
    code: &'static str,
    message: &'static str,
    details: Object<'static>,
) -> OutcomeDetails {
    let error = Object::from_iter([
        ("code", code.into()),
        ("message", message.into()),
        ("details", details.clone().into()),
    ]);
    OutcomeDetails { outcome, details, error: Some(error) }
}

/// Error of an attempt that was lost with its process.
pub(super) fn lost() -> Object<'static> {
    let message = "the gate stopped while the call was under way, the action may have been done";
    let details = Object::from_iter([("status_code", Value::Null)]);
    failed(Outcome::Ambiguous, "outcome_unknown", message, details).error.unwrap_or_default()
}

/// Returns the full outcome as evidence.
pub(super) fn evidence(outcome: &CallOutcome) -> Object<'static> {
    match outcome {
        CallOutcome::NeverSent { reason } => {
            Object::from_iter([("sent", false.into()), ("reason", reason.clone().into())])
        }
        CallOutcome::Unknown { reason } => {
            Object::from_iter([("sent", true.into()), ("reason", reason.clone().into())])
        }
        CallOutcome::Answered { status, body, is_whole } => {
            let mut evidence = Object::from_iter([("status_code", (*status).into())]);
            match std::str::from_utf8(body) {
                Ok(text) => evidence.push("body", text.to_owned()),
                Err(_) => evidence.push("body_hex", hex(body)),
            }
            if !is_whole {
                evidence.push("is_whole", false);
            }
            evidence
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(status: u16, body: &'static str, is_whole: bool) -> String {
        let outcome =
            CallOutcome::Answered { status, body: Bytes::from_static(body.as_bytes()), is_whole };
        let finding = interpret(&outcome);
        let code =
            finding.error.as_ref().and_then(|error| error.get("code")?.as_str().map(str::to_owned));
        let id =
            finding.details.get("notion_task_id").and_then(|id| id.as_str().map(str::to_owned));
        format!("{:?} {} {}", finding.outcome, code.unwrap_or_default(), id.unwrap_or_default())
    }

    #[test]
    fn a_success_status_counts_unless_an_object_contradicts_it() {
        let table = [
            (200, r#"{"data":{"notion_page_id":"p"}}"#, true, "Done  p"),
            (201, r#"{"status":"ok","page_id":"q","error":null}"#, true, "Done  q"),
            (200, "{}", true, "Done  "),
            (200, r#"{"error":{"code":"x"}}"#, true, "Refused gateway_refused "),
            (200, r#"{"status":"error"}"#, true, "Refused gateway_refused "),
            (200, r#"{"error":{}}"#, true, "Done  "),
            (200, r#"{"error":"full"}"#, true, "Refused gateway_refused "),
            (200, "<html>", true, "Done  "),
            (200, "", true, "Done  "),
            (204, "", true, "Done  "),
            (200, "[]", true, "Done  "),
            (200, "{}", false, "Ambiguous outcome_unknown "),
            (200, "<html>", false, "Ambiguous outcome_unknown "),
            (500, "{}", true, "Refused gateway_refused "),
            (429, "", true, "Refused gateway_refused "),
            (302, "", true, "Refused gateway_refused "),
            (504, "<html>", true, "Ambiguous outcome_unknown "),
        ];
        for (status, body, is_whole, expected) in table {
            assert_eq!(meaning(status, body, is_whole), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_unsent_call_is_a_definite_refusal_and_a_sent_one_is_not() {
        let reason = || "because".to_owned();
        assert_eq!(
            interpret(&CallOutcome::NeverSent { reason: reason() }).outcome,
            Outcome::Refused
        );
        assert_eq!(
            interpret(&CallOutcome::Unknown { reason: reason() }).outcome,
            Outcome::Ambiguous
        );
    }
}
