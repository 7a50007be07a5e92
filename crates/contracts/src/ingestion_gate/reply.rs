//! Everything this door says: decisions with their receipts, and errors in its own words.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, Filed, Issued, IssuedKind, Recorded};

use super::issue::{RUN_CLOSED, RUN_CLOSING};
use super::vet::INVALID_JSON;
use crate::Reply;

const JSON: &str = "application/json";

/// The answer to a delivery, from the documents that were issued about it.
pub(super) fn reply(recorded: &Recorded, documents: &[Filed]) -> Reply {
    let find = |kind| documents.iter().map(|filed| &filed.issued).find(|one| one.kind == kind);
    if let Some(receipt) = find(IssuedKind::Receipt) {
        return decided(receipt);
    }
    let detail = match &recorded.entry {
        Entry::Refused(refused) => refused.message.as_str(),
        Entry::Event(_) => "the run of this event takes nothing new any more",
    };
    if let Some(record) = find(IssuedKind::Quarantine) {
        return outside(record, detail);
    }
    match &recorded.entry {
        // Refused, and more of that was kept than may be: it is counted, and nothing of it is kept.
        Entry::Refused(refused) => {
            let word = refused.facts.get("reason").and_then(Value::as_str);
            let word = word.unwrap_or_else(|| word_of(refused.code).1);
            error(outside_status(word), word, detail, Object::new())
        }
        Entry::Event(_) => refuse(Code::InternalError, "no receipt was written for this event", 5),
    }
}

/// The answer to a delivery whose run takes nothing new.
pub(super) fn closed(documents: &[Filed]) -> Reply {
    let detail = "the run of this event takes nothing new any more";
    match documents.first() {
        Some(filed) => outside(&filed.issued, detail),
        None => error(409, RUN_CLOSED, detail, Object::new()),
    }
}

/// Seconds after which an event is sent again whose run is being closed: about as long as a closing
/// waits for what is in flight.
const CLOSING_SECONDS: u32 = 10;

/// The answer to a delivery whose run is being closed. Whether the run opens again is not known yet,
/// so the producer keeps the event.
pub(super) fn closing(documents: &[Filed]) -> Reply {
    let detail = "the run of this event is being closed; send it again";
    let mut more = Object::from_iter([
        ("retryable", Value::from(true)),
        ("retry_after_seconds", CLOSING_SECONDS.into()),
    ]);
    if let Some(filed) = documents.first() {
        more.push("quarantine_id", filed.issued.id.as_str());
        more.push("quarantine_ref", filed.issued.path.as_str());
    }
    let mut reply = error(503, RUN_CLOSING, detail, more);
    reply.headers.push(("retry-after", CLOSING_SECONDS.to_string()));
    reply
}

/// `{decision, receipt, receipt_ref}`
pub(super) fn decided(receipt: &Issued) -> Reply {
    let mut body = Vec::with_capacity(receipt.text.len() + 256);
    body.extend_from_slice(b"{\"decision\":");
    json::write(&Value::from(&*receipt.decision), &mut body);
    body.extend_from_slice(b",\"receipt\":");
    body.extend_from_slice(receipt.text.trim_end().as_bytes());
    body.extend_from_slice(b",\"receipt_ref\":");
    json::write(&Value::from(&receipt.path), &mut body);
    body.push(b'}');
    Reply { status: 200, content_type: JSON, headers: Vec::new(), body }
}

/// An envelope that no run holds: why, and where it is kept.
fn outside(record: &Issued, detail: &str) -> Reply {
    let word = record.reason.as_deref().unwrap_or("INTERNAL_ERROR");
    let more = Object::from_iter([
        ("quarantine_id", Value::from(&record.id)),
        ("quarantine_ref", (&record.path).into()),
    ]);
    error(outside_status(word), word, detail, more)
}

fn outside_status(word: &str) -> u16 {
    match word {
        INVALID_JSON => 400,
        RUN_CLOSED => 409,
        _ => 422,
    }
}

/// See [`Contract::refuse`](crate::Contract::refuse).
pub(super) fn refuse(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let (status, word) = word_of(code);
    let mut more = Object::from_iter([("retryable", Value::from(code.is_retryable()))]);
    if code.is_retryable() {
        more.push("retry_after_seconds", retry_after_seconds);
    }
    let mut reply = error(status, word, message, more);
    if code.is_retryable() {
        reply.headers.push(("retry-after", retry_after_seconds.to_string()));
    }
    reply
}

/// The contract's status and word for a code.
pub(super) fn word_of(code: Code) -> (u16, &'static str) {
    let word = match code {
        Code::InvalidJson => INVALID_JSON,
        Code::InvalidEnvelope => return (422, "ENVELOPE_INVALID"),
        Code::SchemaVersionUnsupported => return (422, "SCHEMA_VERSION_NOT_ALLOWED"),
        Code::OutsideHorizon => "OUTSIDE_HORIZON",
        Code::IdempotencyKeyMissing => "IDEMPOTENCY_KEY_MISSING",
        Code::IdempotencyKeyReused => "PAYLOAD_HASH_MISMATCH",
        Code::EventIdTaken => "EVENT_ID_TAKEN",
        Code::IdempotencyKeyInUse => return (503, "PUBLISH_IN_FLIGHT"),
        Code::LeaseLost => "LEASE_LOST",
        Code::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
        Code::BodyTooLarge => "PAYLOAD_TOO_LARGE",
        Code::Unauthorized => "UNAUTHORIZED",
        Code::Forbidden => "FORBIDDEN",
        Code::NotFound => "NOT_FOUND",
        Code::MethodNotAllowed => "METHOD_NOT_ALLOWED",
        Code::InvalidRequest => "INVALID_REQUEST",
        Code::InWork => "IN_WORK",
        Code::RunClosed => RUN_CLOSED,
        Code::ClosureRefused => "CLOSURE_REFUSED",
        Code::NotReconcilable => "NOT_RECONCILABLE",
        Code::Unhealthy => "IG_UNHEALTHY",
        Code::NotReplayable => "NOT_REPLAYABLE",
        Code::RequestTimeout => "REQUEST_TIMEOUT",
        Code::RateLimited => "RATE_LIMITED",
        Code::Overloaded => "OVERLOADED",
        Code::Draining => "DRAINING",
        // To a producer there is one gate, and it is not well.
        Code::LedgerUnavailable => "IG_UNHEALTHY",
        Code::OutcomeUnknown => "OUTCOME_UNKNOWN",
        Code::InternalError => "INTERNAL_ERROR",
    };
    (code.http_status(), word)
}

/// `{"error": CODE, "detail": …, "retryable": …}` and more: the shape of every error of this door.
pub(super) fn error(status: u16, word: &str, detail: &str, more: Object<'_>) -> Reply {
    let detail = if detail.is_empty() { word } else { detail };
    let mut body = Object::from_iter([("error", Value::from(word)), ("detail", detail.into())]);
    if !more.contains_key("retryable") {
        body.push("retryable", false);
    }
    for (name, value) in more {
        body.push(name, value);
    }
    written(status, &body)
}

/// The answer to a question that names nothing.
pub(super) fn missing_query() -> Reply {
    let detail = "ask for event_id, receipt_id or dedupe_key";
    error(400, "MISSING_QUERY", detail, Object::new())
}

fn written(status: u16, object: &Object<'_>) -> Reply {
    let mut body = Vec::new();
    json::write_object(object, &mut body);
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}
