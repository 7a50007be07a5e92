//! Wire description of this door for the OpenAPI document: an artifact or a normalised event in,
//! its merge state out.

use admit_core::Code;
use admit_core::entity::{Confidence, LinkStatus, ProcessingState};
use serde_json::{Value, json};

use crate::describe::{Description, ResponseDescription};

const JSON: &str = "application/json";

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description() -> Description {
    let mut answers = vec![ResponseDescription {
        status: 200,
        when: "the event is stored; its merge state".to_owned(),
        content_type: JSON,
        schema: merge_state(),
    }];
    answers.extend(Description::refusals(Code::ALL, Code::http_status, JSON, &error()));
    let request =
        vec![(JSON, json!({ "anyOf": [round_event(), file(), message(), gametime(), spawns()] }))];
    Description { summary: "Report a round", request, answers }
}

/// Schema of the normalised event; the gate assigns all other members.
fn round_event() -> Value {
    let number = json!({ "type": ["integer", "number", "string", "null"] });
    let text = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "required": ["map_name", "round_number"],
        "properties": {
            "source": text,
            "map_name": { "type": "string" },
            "round_number": number,
            "round_start_unix": number,
            "round_end_unix": number,
            "round_date": text,
            "round_time": text,
            "filename": text,
            "webhook_id": { "type": ["string", "integer", "null"] },
            "round_id": text,
            "match_id": text,
            "details": { "type": ["object", "null"] },
        },
    })
}

fn file() -> Value {
    json!({
        "type": "object",
        "required": ["filename"],
        "properties": {
            "filename": { "type": "string" },
            "content": { "type": ["string", "object", "null"] },
        },
    })
}

fn message() -> Value {
    json!({
        "type": "object",
        "required": ["content"],
        "properties": {
            "content": { "type": "string" },
            "embeds": { "type": "array", "items": { "type": "object" } },
        },
    })
}

fn gametime() -> Value {
    json!({
        "type": "object",
        "required": ["meta"],
        "properties": {
            "meta": { "type": "object" },
            "payload": { "type": ["object", "string", "null"] },
        },
    })
}

fn spawns() -> Value {
    json!({
        "type": "object",
        "required": ["round_number", "spawn_stats"],
        "properties": {
            "match_id": { "type": ["string", "null"] },
            "round_number": { "type": ["integer", "string"] },
            "map_name": { "type": ["string", "null"] },
            "round_end_unix": { "type": ["integer", "string", "null"] },
            "spawn_stats": { "type": ["array", "string"] },
        },
    })
}

/// Schema of the merge state of an event.
fn merge_state() -> Value {
    let text = json!({ "type": "string" });
    let states: Vec<&str> = ProcessingState::ALL.into_iter().map(ProcessingState::word).collect();
    let statuses: Vec<&str> = LinkStatus::ALL.iter().map(|status| status.word()).collect();
    let confidences: Vec<&str> = Confidence::ALL.iter().map(|one| one.word()).collect();
    json!({
        "type": "object",
        "required": [
            "receipt_id", "disposition", "content_differs", "state", "link_status", "reason_code", "confidence",
            "fingerprint", "round_id",
        ],
        "properties": {
            "receipt_id": text,
            "disposition": { "enum": ["new", "replay", "updated"] },
            "content_differs": { "type": "boolean" },
            "state": { "enum": states },
            "link_status": { "enum": statuses },
            "reason_code": text,
            "confidence": { "enum": confidences },
            "fingerprint": {
                "type": ["object", "null"],
                "required": ["kind", "value"],
                "properties": { "kind": { "enum": ["start", "end", "clock"] }, "value": text },
            },
            "round_id": { "type": ["string", "null"] },
        },
    })
}

fn error() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "retryable", "retry_after_seconds"],
                "properties": {
                    "code": { "type": "string" },
                    "message": { "type": "string" },
                    "retryable": { "type": "boolean" },
                    "retry_after_seconds": { "type": "integer" },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use jsonschema::validator_for;

    use super::super::reply;
    use super::*;

    #[test]
    fn every_refusal_of_this_door_is_described() {
        let described = description();
        for code in Code::ALL {
            let refusal = reply::refuse(*code, "why", 5);
            let answer = described.answers.iter().find(|answer| answer.status == refusal.status);
            let answer = answer.unwrap_or_else(|| panic!("{code:?} is not described"));
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            assert!(validator_for(&answer.schema).unwrap().is_valid(&body), "{body}");
        }
    }
}
