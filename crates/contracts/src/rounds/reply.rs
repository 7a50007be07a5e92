//! What a source is told: where its event stands, or why it got no further than the door.

use admit_core::json::{self, Object, Value};
use admit_core::{Code, Entry, Recorded, Verdict};

use crate::Reply;

const JSON: &str = "application/json";

/// When to come back after a defect of ours that only this file can see.
const DEFECT_RETRY_SECONDS: u32 = 5;

/// See [`Contract::reply`](crate::Contract::reply). Whatever could be kept is answered with 200,
/// also what could not be read: it is safe.
pub(super) fn reply(recorded: &Recorded) -> Reply {
    if let Entry::Refused(refused) = &recorded.entry {
        return refuse(refused.code, &refused.message, 0);
    }
    let Some(receipt_id) = recorded.receipt_id() else {
        return refuse(Code::InternalError, "the event got no place", DEFECT_RETRY_SECONDS);
    };
    let empty = Object::new();
    let outcome = recorded.outcome.as_ref().unwrap_or(&empty);
    let is_applied = outcome.get("is_applied").and_then(Value::as_bool) == Some(true);
    let disposition = match &recorded.verdict {
        Verdict::Fresh { .. } => "new",
        Verdict::Revision { .. } if is_applied => "updated",
        // Kept, and nothing of it counts: as far as the round goes it was here before.
        Verdict::Revision { .. } | Verdict::Duplicate { .. } | Verdict::Conflict { .. } => "replay",
        Verdict::Refused { .. } => {
            return refuse(Code::InternalError, "the event was not taken", DEFECT_RETRY_SECONDS);
        }
    };
    // A copy of what was kept and does not count differs from what counts, as that did.
    let is_later = outcome.get("is_later").and_then(Value::as_bool) == Some(true);
    let differs = match &recorded.verdict {
        Verdict::Revision { .. } => true,
        Verdict::Duplicate { .. } => is_later && !is_applied,
        Verdict::Fresh { .. } | Verdict::Conflict { .. } | Verdict::Refused { .. } => false,
    };
    let told = |name: &str| outcome.get(name).cloned().unwrap_or_default();
    let body = Object::from_iter([
        ("receipt_id", Value::from(receipt_id.to_string())),
        ("disposition", disposition.into()),
        ("content_differs", differs.into()),
        ("state", told("state")),
        ("link_status", told("link_status")),
        ("reason_code", told("reason_code")),
        ("confidence", told("confidence")),
        ("fingerprint", told("fingerprint")),
        ("round_id", told("record_id")),
    ]);
    Reply { status: 200, content_type: JSON, headers: Vec::new(), body: written(&body) }
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
    let body = written(&Object::from_iter([("error", error.into())]));
    Reply { status: code.http_status(), content_type: JSON, headers, body }
}

fn written(object: &Object<'_>) -> Vec<u8> {
    let mut body = Vec::with_capacity(384);
    json::write_object(object, &mut body);
    body
}
