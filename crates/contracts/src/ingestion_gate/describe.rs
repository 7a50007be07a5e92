//! Wire description of this door for the OpenAPI document: an envelope in, a decision or an error
//! out.

use admit_core::Code;
use serde_json::{Value, json};

use super::schemas::{self, parse_schema};
use super::{enums, reply};
use crate::describe::{Description, ResponseDescription};

const JSON: &str = "application/json";

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description() -> Description {
    let mut answers = vec![ResponseDescription {
        status: 200,
        when: "the decision about the event, with its receipt".to_owned(),
        content_type: JSON,
        schema: decision(),
    }];
    answers.extend(Description::refusals(Code::ALL, status, JSON, &error()));
    Description {
        summary: "Push one event",
        request: vec![(JSON, inlined(schemas::ENVELOPE))],
        answers,
    }
}

fn status(code: Code) -> u16 {
    reply::refuse(code, "", 1).status
}

/// Schema of the reply to a delivery that got a receipt.
pub fn decision() -> Value {
    let decisions = [
        enums::ReceiptDecision::Admit,
        enums::ReceiptDecision::Duplicate,
        enums::ReceiptDecision::Quarantine,
    ];
    json!({
        "type": "object",
        "required": ["decision", "receipt", "receipt_ref"],
        "properties": {
            "decision": { "enum": decisions.map(enums::ReceiptDecision::as_str) },
            "receipt": inlined(schemas::RECEIPT),
            "receipt_ref": { "type": "string" },
        },
    })
}

/// Schema of the receipt lookup reply.
pub fn lookup() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "receipt_id": text,
            "event_id": { "type": ["string", "null"] },
            "event_type": { "type": ["string", "null"] },
            "decision": text,
            "receipt_ref": text,
        },
    })
}

/// Schema of the health reply.
pub fn health() -> Value {
    json!({
        "type": "object",
        "required": ["state", "reasons"],
        "properties": {
            "state": { "enum": ["GREEN", "AMBER", "RED"] },
            "reasons": { "type": "array", "items": { "type": "string" } },
        },
    })
}

/// Schema of every error of this door.
pub fn error() -> Value {
    json!({
        "type": "object",
        "required": ["error", "detail"],
        "properties": {
            "error": { "type": "string" },
            "detail": { "type": "string" },
            "retryable": { "type": "boolean" },
            "retry_after_seconds": { "type": "integer" },
            "quarantine_id": { "type": "string" },
            "quarantine_ref": { "type": "string" },
        },
    })
}

/// Embeds a shipped schema in another document.
fn inlined(schema: &str) -> Value {
    let mut schema = parse_schema(schema);
    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
    }
    schema
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
