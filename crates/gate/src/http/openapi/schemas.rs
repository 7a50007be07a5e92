//! The parts of the OpenAPI document that routes share: shapes of answers, parameters, headers.

use serde_json::{Value, json};

use super::{inbox, ingestion, rounds};

/// A reference to a component.
pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn schema(name: &str) -> Value {
    reference("schemas", name)
}

/// The shapes of the gate's own answers.
pub(super) fn schemas() -> Value {
    let parts = [
        inbox::schemas(),
        ingestion::schemas(),
        rounds::schemas(),
        super::runs::schemas(),
        super::accounts::schemas(),
    ];
    parts.iter().fold(with(&own(), &settling()), |all, part| with(&all, part))
}

/// What consumers say of entries that they claimed.
fn settling() -> Value {
    json!({
        "Change": sent(&["status", "lease"], &json!({
            "status": { "enum": ["done", "failed", "released", "extended"] },
            "lease": { "type": "string" },
            "lease_seconds": lease_seconds(),
        })),
        "Changed": sent(&["receipt_id", "status", "finished_before"], &json!({
            "receipt_id": receipt_id(),
            "status": { "type": "string" },
            "finished_before": { "type": "boolean" },
            "lease_expires_at": time(),
        })),
    })
}

fn own() -> Value {
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
        "ConfirmTime": sent(&[], &json!({
            "reason": { "type": ["string", "null"], "maxLength": 1000 },
        })),
        "ConfirmedTime": closed(&json!({
            "confirmed": { "type": "boolean" },
            "time": time(),
            "trusted_before": { "oneOf": [time(), { "type": "null" }] },
        })),
        "Replay": sent(&["reason"], &json!({
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
        "Claim": sent(&["consumer"], &json!({
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

/// An object that may be sent with these members, some of which must be there.
pub(super) fn sent(required: &[&str], members: &Value) -> Value {
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
        "facts": { "description": "the contract's part, in its own words" },
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

/// Both. No name may be in both: one of the two would be lost.
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

/// What may be asked.
pub(super) fn parameters(wait_ms_max: u64) -> Value {
    let text = || json!({ "type": "string" });
    let verdicts = |name: &str, words: &[&str]| {
        json!({
            "name": name,
            "in": "query",
            "description": "only these verdicts, with commas between",
            "style": "form",
            "explode": false,
            "schema": { "type": "array", "minItems": 1, "items": { "enum": words } },
        })
    };
    let parameters = json!({
        "door": query("door", "only what came in at this door", text()),
        "principal": query("principal", "only what this principal sent", text()),
        "verdict": verdicts("verdict", &["fresh", "revision", "conflict", "refused"]),
        "quarantine_verdict": verdicts("verdict", &["conflict", "refused"]),
        "after": query(
            "after",
            "only what came after this receipt or this place",
            json!({ "type": "string", "pattern": "^([0-9]{1,18}|rcp-[0-9a-f]{8}-[0-9]{1,18})$" }),
        ),
        "after_entity": query("after", "the `next` of the page before", text()),
        "limit": query(
            "limit",
            "at most so many",
            json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        ),
        "verbose": query(
            "verbose",
            "adds how busy the gate is",
            json!({ "enum": ["", "1", "true"] }),
        ),
        "wait_ms": query(
            "wait_ms",
            "how long to wait for something when there is nothing, in milliseconds",
            json!({ "type": "integer", "minimum": 0, "maximum": wait_ms_max, "default": 0 }),
        ),
        "receipt_id": path(
            "id",
            "a receipt id; with `door` also an id that its own answers give: the dedupe_key of \
             pixel-control, the event_id of skyra, the receipt_id or dedupe_key of ingestion-gate",
            json!({ "type": "string", "minLength": 1 }),
        ),
        "id_door": query("door", "the door that has given the id", text()),
        "id_run": query("run", "the run of an id of ingestion-gate", text()),
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

/// A parameter in the query, which may be left out.
pub(super) fn query(name: &str, about: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": about, "schema": schema })
}

/// A parameter in the path.
pub(super) fn path(name: &str, about: &str, schema: Value) -> Value {
    json!({
        "name": name, "in": "path", "required": true, "description": about, "schema": schema,
    })
}

/// What answers carry beside their body.
pub(super) fn headers() -> Value {
    json!({
        "Retry-After": {
            "description": "seconds until a retry may help; the body says the same",
            "schema": { "type": "integer", "minimum": 1 },
        },
        "X-Trace-Id": {
            "description": "where the request is found in the logs: on every 5xx, and on every \
                            answer to a request with a valid traceparent",
            "schema": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
        },
    })
}
