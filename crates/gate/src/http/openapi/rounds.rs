//! OpenAPI components of rounds.

use admit_core::entity::ProcessingState;
use serde_json::{Value, json};

use super::ingestion::reason;
use super::schemas::{
    closed, list, nullable, open, path, query, receipt_id, request_object, time, with,
};

/// Component schemas of rounds.
pub(super) fn schemas() -> Value {
    json!({
        "Rounds": closed(&json!({
            "rounds": list(&open(&round_head())),
            "next": nullable("string"),
        })),
        "Round": round(),
        "RoundsDiagnostics": open(&json!({
            "status": { "enum": ["ok", "warning", "error"] },
            "counts": { "type": "object" },
            "sources": list(&json!({ "type": "object" })),
            "latest": nullable("object"),
            "recent": list(&json!({ "type": "object" })),
            "unlinked": list(&json!({ "type": "object" })),
            "publications": nullable("object"),
            "trends": { "type": "object" },
            "errors": list(&json!({ "type": "string" })),
        })),
        "AmbiguousRounds": closed(&json!({
            "ambiguous": list(&open(&json!({
                "dedupe_key": { "type": "string" },
                "round_id": { "type": "string" },
                "revision": { "type": "integer", "minimum": 1 },
                "bus": { "enum": ["found", "found_twice", "absent", "cannot_tell"] },
                "references": list(&json!({ "type": "object" })),
                "may_still_land": nullable("string"),
            }))),
            "next": nullable("integer"),
        })),
        "ReconciledRound": closed(&json!({
            "dedupe_key": { "type": "string" },
            "state": { "enum": ["published", "released"] },
            "round_id": { "type": "string" },
            "revision": { "type": "integer", "minimum": 1 },
        })),
        "Accept": request_object(&["reason"], &json!({ "reason": reason() })),
        "AcceptedRound": closed(&json!({
            "receipt_id": receipt_id(),
            "round_id": { "type": "string" },
            "accepted_before": { "type": "boolean" },
        })),
        "Relinked": closed(&json!({
            "scanned": { "type": "integer", "minimum": 0 },
            "updated": { "type": "integer", "minimum": 0 },
            "dry_run": { "type": "boolean" },
        })),
    })
}

fn round_head() -> Value {
    json!({
        "round_id": { "type": "string" },
        "map_name": { "type": "string" },
        "round_number": { "type": "integer" },
        "round_date": nullable("string"),
        "round_time": nullable("string"),
        "state": { "type": "string" },
        "revision": { "type": "integer", "minimum": 1 },
        "opened_at": time(),
        "changed_at": time(),
    })
}

fn round() -> Value {
    let field = closed(&json!({
        "value": {},
        "source": { "type": "string" },
        "event": receipt_id(),
    }));
    open(&with(
        &round_head(),
        &json!({
            "fingerprints": { "type": "object" },
            "fields": { "type": "object", "additionalProperties": field },
            "sources": list(&json!({ "type": "object" })),
            "publications": list(&json!({ "type": "object" })),
            "history": list(&json!({ "type": "object" })),
        }),
    ))
}

/// Parameters of rounds.
pub(super) fn parameters() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "round_receipt_id": path("receipt_id", "the receipt id of an event of a round", receipt_id()),
        "map_name": query("map_name", "only rounds on this map", text()),
        "date": query("date", "only rounds of this day, by the clock of the game servers", text()),
        "round_state": query(
            "state",
            "only rounds in this state",
            json!({ "enum": ProcessingState::ALL.map(ProcessingState::word) }),
        ),
        "after_round": query(
            "after",
            "cursor: the `next` value of the previous page",
            json!({ "type": "string", "pattern": "^[0-9]{1,15}:rnd-[0-9a-f]+$" }),
        ),
        "after_publication": query(
            "after",
            "cursor: the `next` value of the previous page",
            json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        ),
        "dry_run": query(
            "dry_run",
            "only report what would change",
            json!({ "type": "boolean", "default": false }),
        ),
        "round_id": path(
            "round_id",
            "the id of a round",
            json!({ "type": "string", "pattern": "^rnd-[0-9a-f]{16}$" }),
        ),
    })
}
