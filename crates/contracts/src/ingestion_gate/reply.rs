//! Replies of this door: decisions with their receipts, and errors.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Document, DocumentKind, Entry, RecordedEntry, StoredDocument};

use super::documents::{RUN_CLOSED, RUN_CLOSING};
use super::vet::INVALID_JSON;
use crate::Reply;

const JSON: &str = "application/json";

/// Renders the reply to a delivery from the documents issued for it.
pub(super) fn reply(recorded: &RecordedEntry, documents: &[StoredDocument]) -> Reply {
    let find = |kind| documents.iter().map(|filed| &filed.document).find(|one| one.kind == kind);
    if let Some(receipt) = find(DocumentKind::Receipt) {
        return decision(receipt);
    }
    let detail = match &recorded.entry {
        Entry::Refused(refused) => refused.message.as_str(),
        Entry::Event(_) => "the run of this event is closed and accepts no new events",
    };
    if let Some(record) = find(DocumentKind::Quarantine) {
        return unscoped(record, detail);
    }
    match &recorded.entry {
        // Refused beyond the quota of stored refusals: counted, but not stored.
        Entry::Refused(refused) => {
            let word = refused.facts.get("reason").and_then(Value::as_str);
            let word = word.unwrap_or_else(|| wire_code(refused.code).1);
            error(unscoped_status(word), word, detail, Object::new())
        }
        Entry::Event(_) => refuse(Code::InternalError, "no receipt was written for this event", 5),
    }
}

/// Renders the reply to a delivery whose run is closed.
pub(super) fn closed(documents: &[StoredDocument]) -> Reply {
    let detail = "the run of this event is closed and accepts no new events";
    match documents.first() {
        Some(filed) => unscoped(&filed.document, detail),
        None => error(409, RUN_CLOSED, detail, Object::new()),
    }
}

/// Retry hint, in seconds, for an event whose run is being closed: about the time that closing
/// waits for events in flight.
const CLOSING_SECONDS: u32 = 10;

/// Renders the reply to a delivery whose run is being closed. The run may open again, so the
/// producer must keep the event.
pub(super) fn closing(documents: &[StoredDocument]) -> Reply {
    let detail = "the run of this event is being closed; send it again";
    let mut more = Object::from_iter([
        ("retryable", Value::from(true)),
        ("retry_after_seconds", CLOSING_SECONDS.into()),
    ]);
    if let Some(filed) = documents.first() {
        more.push("quarantine_id", filed.document.id.as_str());
        more.push("quarantine_ref", filed.document.path.as_str());
    }
    let mut reply = error(503, RUN_CLOSING, detail, more);
    reply.headers.push(("retry-after", CLOSING_SECONDS.to_string()));
    reply
}

/// `{decision, receipt, receipt_ref}`
pub(super) fn decision(receipt: &Document) -> Reply {
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

/// Renders the reply to an envelope that belongs to no run: the reason, and the path of its record.
fn unscoped(record: &Document, detail: &str) -> Reply {
    let word = record.reason.as_deref().unwrap_or("INTERNAL_ERROR");
    let more = Object::from_iter([
        ("quarantine_id", Value::from(&record.id)),
        ("quarantine_ref", (&record.path).into()),
    ]);
    error(unscoped_status(word), word, detail, more)
}

fn unscoped_status(word: &str) -> u16 {
    match word {
        INVALID_JSON => 400,
        RUN_CLOSED => 409,
        _ => 422,
    }
}

/// See [`Contract::refuse`](crate::Contract::refuse).
pub(super) fn refuse(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let (status, word) = wire_code(code);
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

/// Maps a code to the status and error code of this contract.
pub(super) fn wire_code(code: Code) -> (u16, &'static str) {
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
        Code::RunClosing => RUN_CLOSING,
        Code::ClosureRefused => "CLOSURE_REFUSED",
        Code::NotReconcilable => "NOT_RECONCILABLE",
        Code::Unhealthy => "IG_UNHEALTHY",
        Code::NotReplayable => "NOT_REPLAYABLE",
        Code::RequestTimeout => "REQUEST_TIMEOUT",
        Code::RateLimited => "RATE_LIMITED",
        Code::Overloaded => "OVERLOADED",
        Code::Draining => "DRAINING",
        // Producers see one gate with a single health state.
        Code::LedgerUnavailable => "IG_UNHEALTHY",
        Code::OutcomeUnknown => "OUTCOME_UNKNOWN",
        Code::InternalError => "INTERNAL_ERROR",
    };
    (code.http_status(), word)
}

/// `{"error": CODE, "detail": …, "retryable": …}` and more: the form of every error of this door.
pub(super) fn error(status: u16, word: &str, detail: &str, more: Object<'_>) -> Reply {
    let detail = if detail.is_empty() { word } else { detail };
    let mut body = Object::from_iter([("error", Value::from(word)), ("detail", detail.into())]);
    if !more.contains_key("retryable") {
        body.push("retryable", false);
    }
    for (name, value) in more {
        body.push(name, value);
    }
    to_reply(status, &body)
}

/// Renders the reply to a lookup without a query parameter.
pub(super) fn missing_query() -> Reply {
    let detail = "specify event_id, receipt_id or dedupe_key";
    error(400, "MISSING_QUERY", detail, Object::new())
}

fn to_reply(status: u16, object: &Object<'_>) -> Reply {
    let mut body = Vec::new();
    json::write_object(object, &mut body);
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}
