//! Renders verdicts: the merge state of an event, or the error that stopped it at the door.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, RecordedEntry, Verdict};

use crate::Reply;

const JSON: &str = "application/json";

/// Retry hint for an internal defect detected in this file.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// See [`Contract::reply`](crate::Contract::reply). Every stored submission gets 200, including
/// unreadable ones: the data is safe.
pub(super) fn reply(recorded: &RecordedEntry) -> Reply {
    if let Entry::Refused(refused) = &recorded.entry {
        return refuse(refused.code, &refused.message, 0);
    }
    let Some(receipt_id) = recorded.receipt_id() else {
        return refuse(
            Code::InternalError,
            "the event got no sequence number",
            DEFECT_RETRY_SECONDS,
        );
    };
    let empty = Object::new();
    let outcome = recorded.outcome.as_ref().unwrap_or(&empty);
    let is_applied = outcome.get("is_applied").and_then(Value::as_bool) == Some(true);
    let disposition = match &recorded.verdict {
        Verdict::Fresh { .. } => "new",
        Verdict::Revision { .. } if is_applied => "updated",
        // Stored without effect: for the round it is a copy.
        Verdict::Revision { .. } | Verdict::Duplicate { .. } | Verdict::Conflict { .. } => "replay",
        Verdict::Refused { .. } => {
            return refuse(Code::InternalError, "the event was not stored", DEFECT_RETRY_SECONDS);
        }
    };
    // A copy of an event that is stored but not in effect differs from the effective content, just
    // like that event.
    let is_later = outcome.get("is_later").and_then(Value::as_bool) == Some(true);
    let differs = match &recorded.verdict {
        Verdict::Revision { .. } => true,
        Verdict::Duplicate { .. } => is_later && !is_applied,
        Verdict::Fresh { .. } | Verdict::Conflict { .. } | Verdict::Refused { .. } => false,
    };
    let text = |name: &str| outcome.get(name).cloned().unwrap_or_default();
    let body = Object::from_iter([
        ("receipt_id", Value::from(receipt_id.to_string())),
        ("disposition", disposition.into()),
        ("content_differs", differs.into()),
        ("state", text("state")),
        ("link_status", text("link_status")),
        ("reason_code", text("reason_code")),
        ("confidence", text("confidence")),
        ("fingerprint", text("fingerprint")),
        ("round_id", text("record_id")),
    ]);
    Reply { status: 200, content_type: JSON, headers: Vec::new(), body: to_bytes(&body) }
}

/// See [`Contract::refuse`](crate::Contract::refuse).
pub(super) fn refuse(code: Code, message: &str, retry_after_seconds: u32) -> Reply {
    let message = if message.is_empty() { code.as_str() } else { message };
    let retry_after = if code.is_retryable() { retry_after_seconds } else { 0 };
    let error = Object::from_iter([
        ("code", Value::from(code.as_str())),
        ("message", message.into()),
        ("retryable", code.is_retryable().into()),
        ("retry_after_seconds", retry_after.into()),
    ]);
    let mut headers = Vec::new();
    if retry_after > 0 {
        headers.push(("retry-after", retry_after.to_string()));
    }
    let body = to_bytes(&Object::from_iter([("error", error.into())]));
    Reply { status: code.http_status(), content_type: JSON, headers, body }
}

fn to_bytes(object: &Object<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(384);
    json::write_object(object, &mut body);
    body
}
