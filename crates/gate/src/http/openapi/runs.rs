//! OpenAPI routes and schemas of the scenario runner.

use admit_contracts::describe::ResponseDescription;
use admit_core::Code;
use serde_json::{Value, json};

use super::JSON;
use super::table::{AccessClass, Route, json as route};

/// Additional errors of the runner routes.
pub(super) const CODES: &[Code] =
    &[Code::NotFound, Code::InWork, Code::UnsupportedMediaType, Code::BodyTooLarge];

/// The runner routes of `routes.rs`, in the same order.
pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "post",
        body: "RunRequest",
        ..route("/runs", "submit_run", "Submit a run", &[], "RunStatus", AccessClass::Runner)
    },
    route(
        "/runs/{run_id}",
        "run_status",
        "Status of a run",
        &["run_id"],
        "RunStatus",
        AccessClass::Runner,
    ),
    Route {
        method: "post",
        body: "Reemit",
        ..route(
            "/runs/{run_id}/reemit",
            "reemit",
            "Re-publish the message of a run",
            &["run_id", "sr_actor"],
            "Reemitted",
            AccessClass::Runner,
        )
    },
];

/// Response with the status of a run that is not final.
pub(super) fn pending(schema: Value) -> ResponseDescription {
    let when = "the run is not final yet".to_owned();
    ResponseDescription { status: 202, when, content_type: JSON, schema }
}

/// Parameters of the run routes.
pub(super) fn parameters() -> Value {
    let path = |name: &str, description: &str, pattern: &str| {
        json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": { "type": "string", "minLength": 1, "pattern": pattern },
        })
    };
    json!({
        "platform_run_id": path(
            "platform_run_id",
            "the platform_run_id of the envelopes",
            "^[A-Za-z0-9_.-]+$",
        ),
        "run_id": path("run_id", "the id of a scenario run", "^[0-9a-f]{32}$"),
        "sr_actor": {
            "name": "X-SR-Actor",
            "in": "header",
            "description": "the person who requests it; default: the principal",
            "schema": { "type": "string", "minLength": 1, "maxLength": 256,
                        "pattern": "^[!-~]+$" },
        },
    })
}

/// Component schemas of the runner.
pub(super) fn schemas() -> Value {
    super::schemas::with(&request_schemas(), &reply_schemas())
}

fn hex64() -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
}

fn request_schemas() -> Value {
    let (text, hex64) = (json!({ "type": "string" }), hex64());
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 128,
                       "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$" });
    json!({
        "RunRequest": {
            "type": "object",
            "additionalProperties": false,
            "required": ["run_equivalence_key", "manifest_fingerprint", "parameter_hash", "seed",
                         "scenario", "window"],
            "properties": {
                "run_equivalence_key": { "type": "string", "minLength": 1, "maxLength": 256 },
                "manifest_fingerprint": hex64,
                "parameter_hash": hex64,
                "seed": { "type": "integer", "minimum": 0, "maximum": u64::MAX },
                "scenario": { "type": "object", "oneOf": [
                    { "required": ["scenario_id"] }, { "required": ["scenario_set"] },
                ], "additionalProperties": false, "properties": {
                    "scenario_id": name,
                    "scenario_set": { "type": "array", "minItems": 1, "maxItems": 256,
                                      "items": name },
                } },
                "window": { "type": "object", "additionalProperties": false,
                    "required": ["window_start_utc", "window_end_utc", "window_tz"],
                    "properties": {
                        "window_start_utc": { "type": "string", "format": "date-time" },
                        "window_end_utc": { "type": "string", "format": "date-time" },
                        "window_tz": text,
                    } },
                "request_id": text,
                "requested_strategy": { "enum": ["AUTO", "FORCE_INVOKE", "FORCE_REUSE"] },
                "output_ids": { "type": "array", "maxItems": 256, "items": name },
                "engine_run_root": text,
                "notes": text,
                "invoker": text,
            },
        },
        "Reemit": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "reemit_kind": { "enum": ["READY_ONLY", "TERMINAL_ONLY", "BOTH"] },
                "reason": { "type": "string", "maxLength": 1000 },
                "dry_run": { "type": "boolean" },
                "emit_platform_run_id": {
                    "type": "string", "pattern": "^platform_[0-9]{8}T[0-9]{6}Z$",
                },
                "cross_run_override": { "type": "object", "properties": {
                    "reason_code": { "type": "string", "maxLength": 1000 },
                } },
            },
        },
    })
}

fn reply_schemas() -> Value {
    let (text, hex64) = (json!({ "type": "string" }), hex64());
    json!({
        "RunStatus": {
            "type": "object",
            "required": ["run_id", "platform_run_id", "state", "message", "publications"],
            "properties": {
                "run_id": text,
                "platform_run_id": text,
                "state": { "enum": ["OPEN", "PLANNED", "EXECUTING", "WAITING_EVIDENCE", "READY",
                                    "FAILED", "QUARANTINED"] },
                "reason_code": { "type": ["string", "null"] },
                "message": text,
                "message_id": hex64,
                "publications": { "type": "array", "items": { "type": "object" } },
            },
        },
        "Reemitted": {
            "type": "object",
            "required": ["run_id", "state", "kind", "message_id", "publication", "dry_run"],
            "properties": {
                "run_id": text,
                "state": text,
                "kind": { "enum": ["READY_REEMIT", "TERMINAL_REEMIT"] },
                "message_id": hex64,
                "publication": { "enum": ["published", "dry_run"] },
                "dry_run": { "type": "boolean" },
            },
        },
    })
}
