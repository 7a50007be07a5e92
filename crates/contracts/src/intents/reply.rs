//! Response envelope, and all other replies of this door.
//!
//! A copy gets the first envelope: the stored bytes, or the same content rendered again from the
//! facts fixed at the first admission. Its own trace id is only in the header.

use admit_core::effect::{Effect, StoredReply};
use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Code, Entry, ReceiptId, RecordedEntry, Verdict};

use super::gateway_call;
use crate::{AdmissionContext, Reply};

const JSON: &str = "application/json";

/// Longest request id repeated in a header, in characters.
const REQUEST_ID_CHARS_MAX: usize = 256;

/// Renders the reply to a recorded submission from the current state of its effect, if it has one.
pub(super) fn reply(recorded: &RecordedEntry, effect: Option<&Effect>) -> Reply {
    let event = match &recorded.entry {
        Entry::Event(event) => event,
        Entry::Refused(refused) => {
            let details = match refused.facts.get("errors") {
                Some(errors @ Value::Array(list)) if !list.is_empty() => {
                    Object::from_iter([("errors", errors.clone())])
                }
                _ => Object::new(),
            };
            let trace = fact(&refused.facts, "trace_id");
            let mut reply = error(400, wire_code(refused.code), &refused.message, details);
            reply.headers.push(("x-trace-id", trace.to_owned()));
            return reply;
        }
    };
    let trace = fact(&event.facts, "trace_id");
    let id = |seq| ReceiptId { ledger: recorded.ledger, seq };
    let (first, facts) = match &recorded.verdict {
        Verdict::Fresh { seq } => (id(*seq), event.facts.clone()),
        // The key is the content, so other content under it is impossible; if it occurred, the
        // first would win.
        Verdict::Duplicate { first, .. }
        | Verdict::Revision { first, .. }
        | Verdict::Conflict { first, .. } => {
            let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
            match json::parse(&first.facts, &limits) {
                Ok(Value::Object(facts)) => (id(first.seq), facts),
                _ => return refuse(Code::InternalError, "the first intent cannot be read", 5),
            }
        }
        Verdict::Refused { .. } => {
            return refuse(Code::InternalError, "the intent could not be processed", 5);
        }
    };
    let admission = AdmissionContext { id: first, facts: &facts, trace: fact(&facts, "trace_id") };
    with_headers(&facts, trace, first_reply(admission, effect))
}

/// The reply to the first submission, whether or not it was delivered.
pub(super) fn first_reply(admission: AdmissionContext<'_>, effect: Option<&Effect>) -> StoredReply {
    let facts = admission.facts;
    let executes = facts.get("execute").and_then(Value::as_bool) == Some(true);
    if let Some(effect) = effect.filter(|_| executes) {
        if let Some(stored) = &effect.reply {
            return stored.clone();
        }
        let is_first_open = effect.state.is_in_work() && effect.state.attempt() == 1;
        if !is_first_open {
            // The first attempt was lost with its process; later attempts do not change its reply.
            let error = gateway_call::lost();
            let details = error.get("details").and_then(Value::as_object).cloned();
            let body = envelope(admission, "failed", details.unwrap_or_default(), Some(error));
            return StoredReply { status: 502, body: body.into() };
        }
    }
    let error = facts.get("error").and_then(Value::as_object).cloned();
    let status = if error.is_some() { 422 } else { 200 };
    let body = envelope(admission, fact(facts, "status"), Object::new(), error);
    StoredReply { status, body: body.into() }
}

/// Builds the envelope.
pub(super) fn envelope(
    admission: AdmissionContext<'_>,
    status: &str,
    details: Object<'_>,
    error: Option<Object<'_>>,
) -> Vec<u8> {
    let facts = admission.facts;
    let text = |name| fact(facts, name).into();
    let mut envelope = Object::from_iter([
        ("receipt_id", Value::from(admission.id.to_string())),
        ("trace_id", admission.trace.into()),
        ("status", status.into()),
        ("idempotency_key", text("idempotency_key")),
        ("intent_id", text("intent_id")),
        ("correlation_id", text("correlation_id")),
        ("request_id", facts.get("request_id").cloned().unwrap_or_default()),
        ("plan", facts.get("plan").cloned().unwrap_or_default()),
        ("details", details.into()),
    ]);
    if let Some(error) = error {
        envelope.push("error", error);
    }
    to_bytes(&envelope)
}

/// Adds the headers of this contract to a reply.
pub(super) fn with_headers(facts: &Object<'_>, trace: &str, reply: StoredReply) -> Reply {
    let text = |name| fact(facts, name).to_owned();
    Reply {
        status: reply.status,
        content_type: JSON,
        headers: vec![
            ("x-intent-id", text("intent_id")),
            ("x-correlation-id", text("correlation_id")),
            ("x-request-id", request_id(facts)),
            ("x-trace-id", trace.to_owned()),
        ],
        body: reply.body.to_vec(),
    }
}

/// Header value of a request id, which may have any type and length in the packet.
fn request_id(facts: &Object<'_>) -> String {
    let text = match facts.get("request_id") {
        None => String::new(),
        Some(Value::String(text)) => text.clone().into_owned(),
        Some(value) => {
            let mut text = Vec::new();
            json::write(value, &mut text);
            String::from_utf8_lossy(&text).into_owned()
        }
    };
    match text.char_indices().nth(REQUEST_ID_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// See [`Contract::refuse`](crate::Contract::refuse).
pub(super) fn refuse(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let mut details = Object::from_iter([("retryable", code.is_retryable().into())]);
    if code.is_retryable() {
        details.push("retry_after_seconds", retry_after_seconds);
    }
    error(code.http_status(), wire_code(code), message, details)
}

/// Reply code of this contract for a ledger code.
pub(super) fn wire_code(code: Code) -> &'static str {
    match code {
        Code::InvalidJson => "bad_json",
        Code::InvalidEnvelope => "schema_validation_failed",
        Code::SchemaVersionUnsupported => "unsupported_schema_version",
        // In both cases a retry returns the outcome, so the producer sees one code.
        Code::LedgerUnavailable | Code::OutcomeUnknown => "storage_unavailable",
        Code::OutsideHorizon
        | Code::IdempotencyKeyMissing
        | Code::IdempotencyKeyReused
        | Code::EventIdTaken
        | Code::IdempotencyKeyInUse
        | Code::LeaseLost
        | Code::UnsupportedMediaType
        | Code::BodyTooLarge
        | Code::Unauthorized
        | Code::Forbidden
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::InvalidRequest
        | Code::InWork
        | Code::NotReplayable
        | Code::RunClosed
        | Code::RunClosing
        | Code::ClosureRefused
        | Code::NotReconcilable
        | Code::Unhealthy
        | Code::RequestTimeout
        | Code::RateLimited
        | Code::Overloaded
        | Code::Draining
        | Code::InternalError => code.as_str(),
    }
}

fn error(status: u16, code: &str, message: &str, details: Object<'_>) -> Reply {
    let message = if message.is_empty() { code } else { message };
    let error = Object::from_iter([
        ("code", Value::from(code)),
        ("message", message.into()),
        ("details", details.into()),
    ]);
    let body = to_bytes(&Object::from_iter([("error", error.into())]));
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}

pub(super) fn fact<'o>(facts: &'o Object<'_>, name: &str) -> &'o str {
    facts.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn to_bytes(object: &Object<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    json::write_object(object, &mut body);
    body
}
