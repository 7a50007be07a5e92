//! OpenAPI components of the inbox.

use serde_json::{Value, json};

use super::schemas::{closed, list, nullable, path, query, request_object, time, with};

/// Component schemas of the inbox.
pub(super) fn schemas() -> Value {
    json!({
        "InboxEvent": closed(&event()),
        "InboxPage": closed(&json!({
            "events": list(&closed(&event())),
            "next_after": { "type": "integer", "minimum": 0 },
            "more": { "type": "boolean" },
        })),
        "InboxClaimed": closed(&json!({ "events": list(&closed(&with(&event(), &json!({
            "lease": { "type": "string" },
            "lease_expires_at": time(),
            "attempt": { "type": "integer", "minimum": 1 },
        })))) })),
        "InboxChanged": request_object(&["event_id", "status", "finished_before"], &json!({
            "event_id": { "type": "string" },
            "status": { "type": "string" },
            "finished_before": { "type": "boolean" },
            "lease_expires_at": time(),
        })),
    })
}

fn event() -> Value {
    json!({
        "event_id": { "type": "string" },
        "status": { "enum": ["received", "claimed", "done", "failed"] },
        "received_at": time(),
        "last_updated_at": time(),
        "principal": nullable("string"),
        "payload": nullable("object"),
    })
}

/// Parameters of the inbox.
pub(super) fn parameters() -> Value {
    json!({
        "after_row": query(
            "after",
            "cursor: the `next_after` value of the previous page",
            json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        ),
        "inbox_status": query(
            "status",
            "only events with this status",
            json!({ "enum": ["received", "claimed", "done", "failed"] }),
        ),
        "inbox_event_id": path(
            "event_id",
            "the id of an inbox event",
            json!({ "type": "string", "minLength": 1 }),
        ),
    })
}
