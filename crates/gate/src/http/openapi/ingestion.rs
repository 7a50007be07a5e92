//! OpenAPI components of the ingestion gate.

use serde_json::{Value, json};

use super::schemas::{closed, list, nullable, open, path, query, request_object};

/// Component schemas of the ingestion gate.
pub(super) fn schemas() -> Value {
    json!({
        "IssuedDocument": json!({
            "type": "object",
            "description": "a receipt or a quarantine record of the ingestion gate, as it was issued",
        }),
        "Lookup": admit_contracts::ingestion_gate::describe::lookup(),
        "IngestionHealth": health(),
        "IngestionError": open(&json!({
            "error": { "type": "string" },
            "detail": { "type": "string" },
            "retryable": { "type": "boolean" },
        })),
        "Ambiguous": closed(&json!({
            "ambiguous": list(&open(&json!({
                "dedupe_key": nullable("string"),
                "platform_run_id": nullable("string"),
                "bus": { "enum": ["found", "found_twice", "absent", "cannot_tell"] },
                "eb_refs": list(&json!({ "type": "object" })),
                "may_still_land": nullable("string"),
            }))),
            "next": nullable("integer"),
        })),
        "Reconcile": request_object(&["resolution", "reason"], &json!({
            "resolution": { "enum": ["found", "absent"] },
            "reason": reason(),
            "partition": { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            "offset": { "type": "string", "minLength": 1, "maxLength": 128 },
        })),
        "Reconciled": closed(&json!({
            "dedupe_key": { "type": "string" },
            "state": { "enum": ["ADMITTED", "RELEASED"] },
            "receipt_ref": nullable("string"),
        })),
        "Release": request_object(&["how", "reason"], &json!({
            "how": { "enum": ["dismissed", "resubmitted"] },
            "reason": reason(),
            "run": nullable("string"),
        })),
        "Released": closed(&json!({
            "quarantine_id": { "type": "string" },
            "platform_run_id": nullable("string"),
            "released": { "enum": ["dismissed", "resubmitted"] },
            "receipt_ref": nullable("string"),
        })),
    })
}

/// Additional members of a single receipt of the ingestion gate; lists omit them.
pub(super) fn receipt_members() -> Value {
    let document = closed(&json!({
        "kind": { "enum": ["receipt", "quarantine"] },
        "id": { "type": "string" },
        "platform_run_id": nullable("string"),
        "reason": nullable("string"),
        "ref": { "type": "string" },
        "stands": nullable("string"),
    }));
    let document = json!({ "oneOf": [document, { "type": "null" }] });
    json!({
        "state": nullable("string"),
        "decision": nullable("string"),
        "eb_ref": nullable("object"),
        "document": document,
        "quarantine": document,
    })
}

fn health() -> Value {
    let mut health = closed(&json!({
        "state": { "enum": ["GREEN", "AMBER", "RED"] },
        "reasons": list(&json!({ "type": "string" })),
    }));
    health["properties"]["details"] = list(&json!({ "type": "string" }));
    health
}

/// Parameters of the ingestion gate.
pub(super) fn parameters() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "event_id": query("event_id", "the producer's id of an event", text()),
        "ig_receipt_id": query("receipt_id", "the id of a receipt of the ingestion gate", text()),
        "dedupe_key": query("dedupe_key", "the dedupe key of an event: 64 hex digits", text()),
        "run": query("run", "only publishes of this run", text()),
        "key": path("key", "a dedupe key", json!({ "type": "string", "minLength": 1 })),
        "quarantine_id": path("id", "a quarantine id, or the receipt id of the delivery", json!({ "type": "string", "minLength": 1 })),
    })
}

/// Reason of an operator, stored with the action.
pub(super) fn reason() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 1000, "pattern": "\\S" })
}
