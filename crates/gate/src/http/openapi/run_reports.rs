//! OpenAPI routes and schemas of run reports.

use admit_core::Code;
use serde_json::{Value, json};

use super::table::{AccessClass, Route, json as route};

/// Additional errors of closing a run.
pub(super) const CODES: &[Code] = &[
    Code::NotFound,
    Code::InWork,
    Code::ClosureRefused,
    Code::UnsupportedMediaType,
    Code::BodyTooLarge,
];

/// The routes of run reports in `routes.rs`, in the same order.
pub(super) const ROUTES: &[Route] = &[
    route(
        "/v1/runs",
        "platform_runs",
        "List runs with their counters",
        &["after_entity", "limit"],
        "PlatformRuns",
        AccessClass::ReadItem,
    ),
    route(
        "/v1/runs/{platform_run_id}/report",
        "run_report",
        "Report of a run",
        &["platform_run_id"],
        "RunReport",
        AccessClass::ReadItem,
    ),
    Route {
        method: "post",
        body: "CloseRun",
        ..route(
            "/v1/runs/{platform_run_id}/close",
            "close_run",
            "Close a run, or list all objections",
            &["platform_run_id"],
            "RunClosure",
            AccessClass::Close,
        )
    },
];

/// Component schemas of run reports.
pub(super) fn schemas() -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    let text = json!({ "type": "string" });
    let ingress = ingress(&count);
    json!({
        "PlatformRuns": {
            "type": "object",
            "additionalProperties": false,
            "required": ["runs", "next"],
            "properties": {
                "runs": { "type": "array", "items": {
                    "type": "object",
                    "required": ["platform_run_id", "state", "opened_at", "changed_at", "deliveries",
                                 "admit", "duplicate", "quarantine", "in_flight",
                                 "publish_ambiguous"],
                    "properties": {
                        "platform_run_id": text,
                        "state": { "enum": ["open", "closing", "closed"] },
                        "deliveries": count,
                    },
                } },
                "next": { "type": ["string", "null"] },
            },
        },
        "RunReport": {
            "type": "object",
            "required": ["generated_at_utc", "platform_run_id", "scenario_run_ids", "state",
                         "ingress", "in_flight", "deliveries", "quarantine", "reasons",
                         "producers", "outputs", "evidence_refs", "knobs", "basis",
                         "artifact_refs"],
            "properties": {
                "platform_run_id": text,
                "state": { "enum": ["open", "closing", "closed"] },
                "ingress": ingress,
                "in_flight": count,
                "deliveries": count,
            },
        },
        "CloseRun": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "manifest": { "type": ["object", "null"], "maxProperties": 10000,
                              "propertyNames": { "minLength": 1 },
                              "additionalProperties":
                                  { "type": "integer", "minimum": 0, "maximum": u64::MAX } },
                "reason": { "type": ["string", "null"], "maxLength": 1000 },
            },
        },
        "RunClosure": {
            "type": "object",
            "required": ["platform_run_id", "state", "closed_at_utc", "closed_by", "ingress",
                         "quarantine", "outputs", "closure_ref"],
            "properties": {
                "platform_run_id": text,
                "state": { "const": "closed" },
                "ingress": ingress,
                "closure_ref": text,
            },
        },
        "ClosureRefused": refused(&count, &text),
    })
}

/// Counters of the report.
fn ingress(count: &Value) -> Value {
    let keys = [
        "sent",
        "received",
        "admit",
        "duplicate",
        "quarantine",
        "publish_ambiguous",
        "receipt_write_failed",
    ];
    let properties: Value = keys
        .iter()
        .map(|key| ((*key).to_owned(), count.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({
        "type": "object", "additionalProperties": false, "required": keys, "properties": properties,
    })
}

/// Reply with the objections to closing a run.
fn refused(count: &Value, text: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["error", "platform_run_id", "state", "reasons"],
        "properties": {
            "error": { "type": "object" },
            "platform_run_id": text,
            "state": { "enum": ["open", "closed"] },
            "reasons": { "type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["code", "message", "count", "sample"],
                "properties": {
                    "code": { "type": "string", "pattern": "^[a-z_]+$" },
                    "message": text,
                    "count": count,
                    "sample": { "type": "array", "maxItems": 50, "items": text },
                },
            } },
        },
    })
}
