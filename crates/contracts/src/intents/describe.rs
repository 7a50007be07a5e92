//! Wire description of this door for the OpenAPI document: a packet in, an envelope or an error
//! out.

use admit_core::Code;
use serde_json::{Value, json};

use super::reply;
use crate::describe::{Description, ResponseDescription};

const JSON: &str = "application/json";

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description() -> Description {
    let answer = |status, when: &str, schema| ResponseDescription {
        status,
        when: when.to_owned(),
        content_type: JSON,
        schema,
    };
    let mut answers = vec![
        answer(200, "the intent is stored, and executed if execution is enabled", envelope()),
        answer(
            422,
            "the intent is stored, but no rule yields an action",
            json!({ "anyOf": [envelope(), error()] }),
        ),
        answer(
            502,
            "the intent is stored, and the gateway refused it or did not respond",
            envelope(),
        ),
    ];
    answers.extend(Description::refusals(Code::ALL, status, JSON, &error()));
    Description { summary: "Send one intent", request: vec![(JSON, packet())], answers }
}

fn status(code: Code) -> u16 {
    reply::refuse(code, "", 1).status
}

/// Schema of a packet; unknown members are allowed and stored.
fn packet() -> Value {
    let text = json!({ "type": ["string", "null"] });
    json!({
        "type": "object",
        "required": ["kind"],
        "properties": {
            "kind": { "const": "intent" },
            "schema_version": { "enum": ["v1", null] },
            "intent_type": text,
            "natural_language": text,
            "actor_id": text,
            "confidence": { "type": ["number", "null"] },
            "fields": { "type": ["object", "null"] },
            "target": {
                "type": ["object", "null"],
                "required": ["kind"],
                "properties": { "kind": { "type": "string" }, "key": text },
            },
        },
    })
}

/// Schema of the envelope: the result of an intent.
pub fn envelope() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "required": [
            "receipt_id", "trace_id", "status", "idempotency_key", "intent_id", "correlation_id",
            "request_id", "plan", "details",
        ],
        "properties": {
            "receipt_id": text,
            "trace_id": text,
            "status": { "enum": ["planned", "executed", "failed"] },
            "idempotency_key": text,
            "intent_id": text,
            "correlation_id": text,
            "request_id": {},
            "plan": { "type": ["object", "null"] },
            "details": { "type": "object" },
            "error": problem(),
        },
    })
}

fn error() -> Value {
    json!({ "type": "object", "required": ["error"], "properties": { "error": problem() } })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["code", "message", "details"],
        "properties": {
            "code": { "type": "string" },
            "message": { "type": "string" },
            "details": { "type": "object" },
        },
    })
}

#[cfg(test)]
mod tests {
    use jsonschema::validator_for;

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
