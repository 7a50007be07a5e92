//! Renders verdicts as one of the three closed objects that the producer accepts.
//!
//! The producer reads the body only, never the status, and treats anything unknown as success. So
//! every reply of every layer is an accepted ack, a rejected ack or a typed error; transient errors
//! carry `retryable: true`, because otherwise the producer drops the event.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, Event, RecordedEntry, Verdict};

use crate::Reply;

/// Error code for temporary failures: storage, overload, shutdown, unknown outcome.
const INGESTION_UNAVAILABLE: &str = "ingestion_unavailable";

/// See [`Contract::reply`](crate::Contract::reply).
pub(super) fn reply(recorded: &RecordedEntry) -> Reply {
    match &recorded.entry {
        Entry::Refused(refused) => rejected(refused.code, &refused.message),
        Entry::Event(event) => match &recorded.verdict {
            // A revision is stored and applied; this contract never requests one.
            Verdict::Fresh { .. } | Verdict::Revision { .. } => accepted(event, "processed"),
            // The contract accepts every copy, so that retries stop. A copy with other content is
            // stored as evidence and not applied.
            Verdict::Duplicate { .. } | Verdict::Conflict { .. } => accepted(event, "duplicate"),
            // A ledger never refuses a vetted event. If it does, the reply must not claim anything.
            Verdict::Refused { .. } => refuse(
                Code::InternalError,
                "the event could not be processed",
                DEFECT_RETRY_SECONDS,
            ),
        },
    }
}

/// Retry hint for an internal defect detected in this file.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// See [`Contract::refuse`](crate::Contract::refuse).
pub(super) fn refuse(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let own = code.as_str();
    match code {
        Code::InvalidJson
        | Code::InvalidEnvelope
        | Code::SchemaVersionUnsupported
        | Code::OutsideHorizon => rejected(code, message),
        Code::IdempotencyKeyMissing
        | Code::IdempotencyKeyReused
        | Code::EventIdTaken
        | Code::LeaseLost
        | Code::UnsupportedMediaType
        | Code::BodyTooLarge
        | Code::Unauthorized
        | Code::Forbidden
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::InvalidRequest
        | Code::NotReplayable
        | Code::RunClosed
        | Code::ClosureRefused
        | Code::NotReconcilable => error(code.http_status(), own, message, None),
        Code::IdempotencyKeyInUse
        | Code::RequestTimeout
        | Code::InWork
        | Code::RunClosing
        | Code::Unhealthy
        | Code::RateLimited
        | Code::InternalError => error(code.http_status(), own, message, Some(retry_after_seconds)),
        Code::Overloaded | Code::Draining | Code::LedgerUnavailable | Code::OutcomeUnknown => {
            error(503, INGESTION_UNAVAILABLE, message, Some(retry_after_seconds))
        }
    }
}

fn accepted(event: &Event, disposition: &'static str) -> Reply {
    let fact = |name| event.facts.get(name).and_then(Value::as_str).unwrap_or_default();
    let ack = [
        ("status", "accepted".into()),
        ("disposition", disposition.into()),
        ("event_id", fact("event_id").into()),
        ("idempotency_key", fact("idempotency_key").into()),
        ("dedupe_key", fact("dedupe_key").into()),
        ("received_at", event.received_at.to_rfc3339_seconds().into()),
    ];
    object(200, "ack", ack.into_iter().collect())
}

fn rejected(code: Code, message: &str) -> Reply {
    let mut ack = Object::from_iter([("status", "rejected".into())]);
    ack.extend(reason(code.as_str(), message, None));
    object(200, "ack", ack)
}

/// Builds a typed error; retryable if `retry_after_seconds` is set.
fn error(status: u16, code: &str, message: &str, retry_after_seconds: Option<u32>) -> Reply {
    let mut reply = object(status, "error", reason(code, message, retry_after_seconds).collect());
    if let Some(seconds) = retry_after_seconds {
        // Ignored by the producer; useful to proxies and operators.
        reply.headers.push(("retry-after", seconds.to_string()));
    }
    reply
}

/// Builds the four fields that a rejection and an error share. The message is never empty.
fn reason<'a>(
    code: &'a str,
    message: &'a str,
    retry_after_seconds: Option<u32>,
) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    let message = if message.is_empty() { code } else { message };
    [
        ("code", code.into()),
        ("message", message.into()),
        ("retryable", retry_after_seconds.is_some().into()),
        ("retry_after_seconds", retry_after_seconds.unwrap_or(0).into()),
    ]
    .into_iter()
}

fn object(status: u16, name: &'static str, content: Object<'_>) -> Reply {
    let mut body = Vec::with_capacity(384);
    json::write(&Object::from_iter([(name, content.into())]).into(), &mut body);
    Reply { status, content_type: "application/json", headers: Vec::new(), body }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn every_code_has_a_reply_that_the_producer_understands() {
        let mut table = String::new();
        for code in Code::ALL {
            let reply = refuse(*code, "why", 7);
            let body = String::from_utf8(reply.body).unwrap();
            writeln!(table, "{} {} {body} {:?}", code.as_str(), reply.status, reply.headers)
                .unwrap();
        }
        insta::assert_snapshot!(table, @r#"
        invalid_json 200 {"ack":{"status":"rejected","code":"invalid_json","message":"why","retryable":false,"retry_after_seconds":0}} []
        invalid_envelope 200 {"ack":{"status":"rejected","code":"invalid_envelope","message":"why","retryable":false,"retry_after_seconds":0}} []
        schema_version_unsupported 200 {"ack":{"status":"rejected","code":"schema_version_unsupported","message":"why","retryable":false,"retry_after_seconds":0}} []
        outside_horizon 200 {"ack":{"status":"rejected","code":"outside_horizon","message":"why","retryable":false,"retry_after_seconds":0}} []
        idempotency_key_missing 400 {"error":{"code":"idempotency_key_missing","message":"why","retryable":false,"retry_after_seconds":0}} []
        idempotency_key_reused 422 {"error":{"code":"idempotency_key_reused","message":"why","retryable":false,"retry_after_seconds":0}} []
        event_id_taken 409 {"error":{"code":"event_id_taken","message":"why","retryable":false,"retry_after_seconds":0}} []
        idempotency_key_in_use 409 {"error":{"code":"idempotency_key_in_use","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        lease_lost 409 {"error":{"code":"lease_lost","message":"why","retryable":false,"retry_after_seconds":0}} []
        unsupported_media_type 415 {"error":{"code":"unsupported_media_type","message":"why","retryable":false,"retry_after_seconds":0}} []
        body_too_large 413 {"error":{"code":"body_too_large","message":"why","retryable":false,"retry_after_seconds":0}} []
        unauthorized 401 {"error":{"code":"unauthorized","message":"why","retryable":false,"retry_after_seconds":0}} []
        forbidden 403 {"error":{"code":"forbidden","message":"why","retryable":false,"retry_after_seconds":0}} []
        not_found 404 {"error":{"code":"not_found","message":"why","retryable":false,"retry_after_seconds":0}} []
        method_not_allowed 405 {"error":{"code":"method_not_allowed","message":"why","retryable":false,"retry_after_seconds":0}} []
        invalid_request 400 {"error":{"code":"invalid_request","message":"why","retryable":false,"retry_after_seconds":0}} []
        in_work 409 {"error":{"code":"in_work","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        run_closed 409 {"error":{"code":"run_closed","message":"why","retryable":false,"retry_after_seconds":0}} []
        run_closing 503 {"error":{"code":"run_closing","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        closure_refused 409 {"error":{"code":"closure_refused","message":"why","retryable":false,"retry_after_seconds":0}} []
        not_reconcilable 409 {"error":{"code":"not_reconcilable","message":"why","retryable":false,"retry_after_seconds":0}} []
        unhealthy 503 {"error":{"code":"unhealthy","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        not_replayable 409 {"error":{"code":"not_replayable","message":"why","retryable":false,"retry_after_seconds":0}} []
        request_timeout 408 {"error":{"code":"request_timeout","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        rate_limited 429 {"error":{"code":"rate_limited","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        overloaded 503 {"error":{"code":"ingestion_unavailable","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        draining 503 {"error":{"code":"ingestion_unavailable","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        ledger_unavailable 503 {"error":{"code":"ingestion_unavailable","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        outcome_unknown 503 {"error":{"code":"ingestion_unavailable","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        internal_error 500 {"error":{"code":"internal_error","message":"why","retryable":true,"retry_after_seconds":7}} [("retry-after", "7")]
        "#);
    }

    #[test]
    fn the_retry_flag_matches_the_code_table() {
        for code in Code::ALL {
            let body = String::from_utf8(refuse(*code, "why", 7).body).unwrap();
            assert_eq!(body.contains("\"retryable\":true"), code.is_retryable(), "{body}");
        }
    }

    #[test]
    fn codes_are_small_letters_digits_and_underscores_and_messages_never_empty() {
        for code in Code::ALL {
            let reply = refuse(*code, "", 7);
            let body = json::parse(&reply.body, &json::Limits::default()).unwrap();
            let object = body.get("ack").or_else(|| body.get("error")).unwrap();
            let word = object.get("code").and_then(Value::as_str).unwrap();
            assert!(word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_')), "{word}");
            assert!(!object.get("message").and_then(Value::as_str).unwrap().is_empty());
        }
    }
}
