//! ACK and NACK: disjoint JSON objects, so that no producer mistakes one for the other.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, Millis, RecordedEntry, Verdict, refusal_of_conflict};

use crate::Reply;

const JSON: &str = "application/json";

/// Prefix of the reason in a NACK for an invalid envelope.
const INVALID: &str = "invalid envelope";

/// See [`Contract::reply`](crate::Contract::reply).
pub(super) fn reply(recorded: &RecordedEntry, now: Millis) -> Reply {
    let event = match &recorded.entry {
        Entry::Event(event) => event,
        Entry::Refused(refused) => {
            let event_id = refused.facts.get("event_id").and_then(Value::as_str);
            return nack(event_id, refused.code, &refused.message, now);
        }
    };
    let event_id = event.inbox.as_deref().unwrap_or_default();
    match &recorded.verdict {
        Verdict::Fresh { .. } | Verdict::Duplicate { .. } | Verdict::Revision { .. } => {
            ack(event_id, now)
        }
        Verdict::Conflict { first, .. } => match refusal_of_conflict(first, event) {
            Some((code, message)) => nack(Some(event_id), code, message, now),
            // Of two contents under one id the first stays; the producer may delete its copy.
            None => ack(event_id, now),
        },
        // A ledger never refuses a vetted event. If it does, the reply must not claim anything.
        Verdict::Refused { .. } => {
            nack(Some(event_id), Code::InternalError, "the event could not be stored", now)
        }
    }
}

fn ack(event_id: &str, now: Millis) -> Reply {
    let body = Object::from_iter([
        ("event_id", Value::from(event_id)),
        ("ack_ts", now.to_rfc3339_seconds().into()),
        ("status", "stored".into()),
    ]);
    respond(200, &body)
}

/// Builds a NACK with the reason why this delivery stored nothing, as far as is known.
pub(super) fn nack(event_id: Option<&str>, code: Code, message: &str, now: Millis) -> Reply {
    let word = nack_code(code);
    let message = match (word, message) {
        ("invalid_envelope", "") => INVALID.to_owned(),
        ("invalid_envelope", message) => format!("{INVALID}: {message}"),
        (word, "") => word.replace('_', " "),
        (_, message) => message.to_owned(),
    };
    let error = Object::from_iter([
        ("code", Value::from(word)),
        ("message", message.into()),
        ("retryable", code.is_retryable().into()),
    ]);
    let body = Object::from_iter([
        ("event_id", Value::from(event_id)),
        ("nack_ts", now.to_rfc3339_seconds().into()),
        ("status", "rejected".into()),
        ("error", error.into()),
    ]);
    respond(code.http_status(), &body)
}

fn respond(status: u16, object: &Object<'_>) -> Reply {
    let mut body = Vec::with_capacity(160);
    json::write_object(object, &mut body);
    Reply { status, content_type: JSON, headers: Vec::new(), body }
}

/// Maps a code to the NACK code. Six codes concern envelopes; the others occur only for HTTP
/// requests that did not carry a proper envelope.
pub fn nack_code(code: Code) -> &'static str {
    match code {
        Code::InvalidJson
        | Code::InvalidEnvelope
        | Code::SchemaVersionUnsupported
        | Code::OutsideHorizon
        | Code::IdempotencyKeyMissing
        | Code::IdempotencyKeyReused => "invalid_envelope",
        Code::BodyTooLarge => "too_large",
        Code::Unauthorized | Code::Forbidden => "unauthorized",
        Code::RateLimited | Code::Overloaded => "rate_limited",
        Code::Draining
        | Code::LedgerUnavailable
        | Code::OutcomeUnknown
        | Code::InternalError
        | Code::IdempotencyKeyInUse
        | Code::Unhealthy
        | Code::InWork => "storage_unavailable",
        other @ (Code::EventIdTaken
        | Code::LeaseLost
        | Code::UnsupportedMediaType
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::InvalidRequest
        | Code::NotReplayable
        | Code::NotReconcilable
        | Code::RunClosed
        | Code::RunClosing
        | Code::ClosureRefused
        | Code::RequestTimeout) => other.as_str(),
    }
}
