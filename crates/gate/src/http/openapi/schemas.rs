//! Shared components of the OpenAPI document: schemas, parameters, headers.

use serde_json::{Value, json};

use super::{inbox, ingestion, rounds};

/// Returns a reference to a component.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn schema(name: &str) -> Value {
    reference("schemas", name)
}

/// All component schemas.
pub(super) fn schemas() -> Value {
    let parts = [
        inbox::schemas(),
        ingestion::schemas(),
        rounds::schemas(),
        super::runs::schemas(),
        super::run_reports::schemas(),
    ];
    parts.iter().fold(with(&general_schemas(), &settle_schemas()), |all, part| with(&all, part))
}

/// Schemas of settle requests and their replies.
fn settle_schemas() -> Value {
    json!({
        "Change": request_object(&["status", "lease"], &json!({
            "status": { "enum": ["done", "failed", "released", "extended"] },
            "lease": { "type": "string" },
            "lease_seconds": lease_seconds(),
        })),
        "Changed": request_object(&["receipt_id", "status", "finished_before"], &json!({
            "receipt_id": receipt_id(),
            "status": { "type": "string" },
            "finished_before": { "type": "boolean" },
            "lease_expires_at": time(),
        })),
    })
}

fn general_schemas() -> Value {
    json!({
        "Error": closed(&json!({
            "error": closed(&json!({
                "code": { "type": "string", "pattern": "^[a-z0-9_]+$" },
                "message": { "type": "string", "minLength": 1 },
                "retryable": { "type": "boolean" },
                "retry_after_seconds": { "type": "integer", "minimum": 0 },
            })),
        })),
        "Alive": closed(&json!({ "alive": { "const": true } })),
        "Ready": closed(&ready()),
        "Health": health(),
        "Doors": closed(&json!({ "doors": list(&open(&json!({
            "door": { "type": "string" },
            "method": { "type": "string" },
            "path": { "type": "string" },
        }))) })),
        "OpenApi": open(&json!({
            "openapi": { "type": "string" },
            "info": { "type": "object" },
            "paths": { "type": "object" },
        })),
        "Receipt": receipt(),
        "Admissions": page("admissions", "Receipt"),
        "Quarantine": page("quarantine", "Receipt"),
        "PixelServers": page("servers", "PixelServerItem"),
        "PixelServerItem": open(&with(&identity(), &json!({
            "last_event_at": time(),
            "last_heartbeat_at": nullable("string"),
            "current_map": nullable("object"),
            "players": nullable("object"),
        }))),
        "PixelServer": pixel_server(),
        "Intent": intent(),
        "IntentEnvelope": admit_contracts::intents::envelope(),
        "ConfirmTime": request_object(&[], &json!({
            "reason": { "type": ["string", "null"], "maxLength": 1000 },
        })),
        "ConfirmedTime": closed(&json!({
            "confirmed": { "type": "boolean" },
            "time": time(),
            "trusted_before": { "oneOf": [time(), { "type": "null" }] },
        })),
        "Replay": request_object(&["reason"], &json!({
            "reason": { "type": "string", "minLength": 1, "maxLength": 1000, "pattern": "\\S" },
            "again": { "type": ["boolean", "null"], "default": false },
        })),
        "StreamPage": closed(&json!({
            "events": list(&open(&stream_event())),
            "next_after": { "type": "integer", "minimum": 0 },
            "more": { "type": "boolean" },
        })),
        "Claimed": closed(&json!({ "events": list(&open(&with(&stream_event(), &json!({
            "lease": { "type": "string" },
            "lease_expires_at": time(),
            "attempt": { "type": "integer", "minimum": 1 },
        })))) })),
        "Claim": request_object(&["consumer"], &json!({
            "consumer": { "type": "string", "minLength": 1, "maxLength": 128 },
            "max": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 1 },
            "lease_seconds": lease_seconds(),
        })),
    })
}

fn intent() -> Value {
    let text = || json!({ "type": "string" });
    open(&json!({
        "receipt_id": receipt_id(),
        "status": { "enum": ["planned", "executed", "failed"] },
        "idempotency_key": text(),
        "intent_id": text(),
        "correlation_id": text(),
        "request_id": text(),
        "trace_id": text(),
        "plan": nullable("object"),
        "error": nullable("object"),
        "principal": text(),
        "received_at": time(),
        "duplicate_count": { "type": "integer", "minimum": 0 },
        "effect": nullable("object"),
        "reply": { "type": "object" },
        "history": list(&open(&json!({ "at": time(), "what": text() }))),
    }))
}

fn stream_event() -> Value {
    json!({
        "receipt_id": receipt_id(),
        "seq": { "type": "integer", "minimum": 1 },
        "key": { "type": "string" },
        "received_at": time(),
        "principal": { "type": "string" },
    })
}

fn lease_seconds() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 3600, "default": 60 })
}

/// A request object with these members, of which `required` are mandatory.
pub(super) fn request_object(required: &[&str], members: &Value) -> Value {
    let mut object = closed(members);
    object["required"] = json!(required);
    object
}

fn ready() -> Value {
    json!({
        "ready": { "type": "boolean" },
        "reasons": list(&json!({ "type": "string" })),
        "closed_doors": list(&closed(&json!({
            "door": { "type": "string" },
            "state": { "enum": ["AMBER", "RED"] },
            "reasons": list(&json!({ "type": "string" })),
        }))),
    })
}

fn health() -> Value {
    let checks = json!({
        "ledger": { "enum": ["ok", "failing"] },
        "doors": { "enum": ["ok", "draining"] },
        "retention": { "enum": ["ok", "clock_jump"] },
    });
    let mut health = closed(&with(&ready(), &json!({ "checks": closed(&checks) })));
    let count = json!({ "type": "integer", "minimum": 0 });
    health["properties"]["retention"] = closed(&json!({
        "trusted_time": time(),
        "clock": time(),
        "action": { "type": "string" },
    }));
    health["properties"]["load"] = json!({ "type": "object", "additionalProperties": count });
    health
}

fn receipt() -> Value {
    let reason = closed(&json!({
        "code": { "type": "string" },
        "reply_code": nullable("string"),
        "message": { "type": "string" },
    }));
    let hash = json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" });
    let mut receipt = closed(&json!({
        "id": receipt_id(),
        "door": { "type": "string" },
        "principal": { "type": "string" },
        "verdict": { "enum": ["fresh", "duplicate", "revision", "conflict", "refused"] },
        "key": { "oneOf": [hash, { "type": "null" }] },
        "digest": hash,
        "received_at": time(),
        "last_seen_at": time(),
        "duplicate_count": { "type": "integer", "minimum": 0 },
        "last_attempt": nullable("integer"),
        "first": { "oneOf": [receipt_id(), { "type": "null" }] },
        "reason": { "oneOf": [reason, { "type": "null" }] },
        "facts": { "description": "data of the contract, in its own format" },
    }));
    for (name, schema) in super::ingestion::receipt_members().as_object().into_iter().flatten() {
        receipt["properties"][name] = schema.clone();
    }
    receipt
}

pub(super) fn receipt_id() -> Value {
    json!({ "type": "string", "pattern": "^rcp-[0-9a-f]{8}-[0-9]+$" })
}

fn identity() -> Value {
    json!({
        "scope": { "type": "string" },
        "login": nullable("string"),
        "online": { "type": "boolean" },
        "name": nullable("string"),
        "game_mode": nullable("string"),
        "title_id": nullable("string"),
        "plugin_version": nullable("string"),
    })
}

fn pixel_server() -> Value {
    let phases = ["match", "map", "round", "warmup", "pause"];
    let mut members = with(
        &identity(),
        &json!({
            "first_seen_at": time(),
            "last_event_at": time(),
            "last_registration": nullable("object"),
            "last_heartbeat": nullable("object"),
            "queue_depth": nullable("integer"),
            "current_map": nullable("object"),
            "players": nullable("object"),
            "event_counts": {
                "type": "object",
                "additionalProperties": { "type": "integer", "minimum": 0 },
            },
        }),
    );
    for phase in phases {
        members[phase] = nullable("object");
    }
    open(&members)
}

fn page(name: &str, item: &str) -> Value {
    closed(&json!({ name: list(&schema(item)), "next": nullable("string") }))
}

pub(super) fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

pub(super) fn list(item: &Value) -> Value {
    json!({ "type": "array", "items": item })
}

pub(super) fn nullable(kind: &str) -> Value {
    json!({ "type": [kind, "null"] })
}

/// Merges two maps of members, which must not share a name.
pub(super) fn with(members: &Value, more: &Value) -> Value {
    let mut all = members.clone();
    for (name, value) in more.as_object().into_iter().flatten() {
        debug_assert!(all.get(name).is_none(), "{name} is described twice");
        all[name] = value.clone();
    }
    all
}

/// An object with exactly these members.
pub(super) fn closed(members: &Value) -> Value {
    let mut object = open(members);
    object["additionalProperties"] = json!(false);
    object
}

/// An object with at least these members.
pub(super) fn open(members: &Value) -> Value {
    let names: Vec<&String> = members.as_object().into_iter().flatten().map(|(n, _)| n).collect();
    json!({ "type": "object", "required": names, "properties": members })
}

/// All component parameters.
pub(super) fn parameters(wait_ms_max: u64) -> Value {
    let text = || json!({ "type": "string" });
    let verdicts = |name: &str, allowed: &[&str]| {
        json!({
            "name": name,
            "in": "query",
            "description": "only these verdicts, separated by commas",
            "style": "form",
            "explode": false,
            "schema": { "type": "array", "minItems": 1, "items": { "enum": allowed } },
        })
    };
    let parameters = json!({
        "door": query("door", "only receipts of this door", text()),
        "principal": query("principal", "only receipts of this principal", text()),
        "verdict": verdicts("verdict", &["fresh", "revision", "conflict", "refused"]),
        "quarantine_verdict": verdicts("verdict", &["conflict", "refused"]),
        "after": query(
            "after",
            "cursor: a receipt id or a seq; only later entries are returned",
            json!({ "type": "string", "pattern": "^([0-9]{1,18}|rcp-[0-9a-f]{8}-[0-9]{1,18})$" }),
        ),
        "after_entity": query("after", "cursor: the `next` value of the previous page", text()),
        "limit": query(
            "limit",
            "page size",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        ),
        "verbose": query(
            "verbose",
            "adds the load of the gate",
            json!({ "enum": ["", "1", "true"] }),
        ),
        "wait_ms": query(
            "wait_ms",
            "timeout of a long poll in milliseconds, if there are no entries yet",
            json!({ "type": "integer", "minimum": 0, "maximum": wait_ms_max, "default": 0 }),
        ),
        "receipt_id": path(
            "id",
            "a receipt id; with `door` also an id from the replies of its contract: dedupe_key for \
             pixel-control, event_id for skyra, receipt_id or dedupe_key for ingestion-gate",
            json!({ "type": "string", "minLength": 1 }),
        ),
        "id_door": query("door", "the door whose contract issued the id", text()),
        "id_run": query("run", "the run of the id, for ingestion-gate", text()),
        "intent_receipt_id": path("receipt_id", "the receipt id of an intent", receipt_id()),
        "claimed_id": path("receipt_id", "the receipt id of a claimed event", receipt_id()),
        "stream": path(
            "stream",
            "the name of a stream",
            json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]+$" }),
        ),
        "scope": path(
            "scope",
            "the name of the principal that sent the events",
            json!({ "type": "string", "minLength": 1 }),
        ),
        "login": path(
            "login",
            "the server's login",
            json!({ "type": "string", "minLength": 1 }),
        ),
    });
    let parts = [inbox::parameters(), ingestion::parameters(), rounds::parameters()];
    parts.iter().fold(parameters, |all, part| with(&all, part))
}

/// An optional query parameter.
pub(super) fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}

/// A path parameter.
pub(super) fn path(name: &str, description: &str, schema: Value) -> Value {
    json!({
        "name": name, "in": "path", "required": true, "description": description, "schema": schema,
    })
}

/// Response headers.
pub(super) fn headers() -> Value {
    json!({
        "Retry-After": {
            "description": "seconds until a retry may succeed; the body has the same value",
            "schema": { "type": "integer", "minimum": 1 },
        },
        "X-Trace-Id": {
            "description": "trace id of the request in the logs; set on every 5xx response, and \
                            on every response to a request with a valid traceparent",
            "schema": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
        },
    })
}
