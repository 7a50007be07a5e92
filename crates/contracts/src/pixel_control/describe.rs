//! Wire description of this door for the OpenAPI document: one request and three closed response
//! objects.

use admit_core::Code;
use serde_json::{Value, json};

use super::reply;
use crate::describe::{Description, ResponseDescription};

/// Published schema of the hard rules of a body.
const REQUEST: &str = include_str!("../../schemas/pixel-control/request.json");

const JSON: &str = "application/json";

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description() -> Description {
    let mut answers = vec![ResponseDescription {
        status: 200,
        when: "the event is accepted, now or before, or permanently rejected".to_owned(),
        content_type: JSON,
        schema: closed_object("ack", &json!({ "oneOf": [accepted(), rejected()] })),
    }];
    let errors = Code::ALL.iter().copied().filter(|code| status(*code) != 200);
    let error = closed_object("error", &reason(None));
    answers.extend(Description::refusals(&errors.collect::<Vec<_>>(), status, JSON, &error));
    let request = serde_json::from_str(REQUEST).expect("the published schema is JSON");
    Description {
        summary: "Send one event of the Pixel Control plugin",
        request: vec![(JSON, request)],
        answers,
    }
}

fn status(code: Code) -> u16 {
    reply::refuse(code, "", 1).status
}

/// Schema of an object with exactly one member.
fn closed_object(name: &str, schema: &Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": [name],
        "properties": { name: schema },
    })
}

fn accepted() -> Value {
    let fields = json!({
        "status": { "const": "accepted" },
        "disposition": { "enum": ["processed", "duplicate"] },
        "event_id": { "type": "string" },
        "idempotency_key": { "type": "string" },
        "dedupe_key": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
        "received_at": { "type": "string", "format": "date-time" },
    });
    object(&fields)
}

fn rejected() -> Value {
    reason(Some(json!({ "const": "rejected" })))
}

/// Schema of the four fields that a rejection and an error share.
fn reason(status: Option<Value>) -> Value {
    let mut fields = json!({
        "code": { "type": "string", "pattern": "^[a-z0-9_]+$" },
        "message": { "type": "string", "minLength": 1 },
        "retryable": { "type": "boolean" },
        "retry_after_seconds": { "type": "integer", "minimum": 0 },
    });
    if let Some(status) = status {
        fields["status"] = status;
    }
    object(&fields)
}

/// Schema of an object with exactly these members.
fn object(fields: &Value) -> Value {
    let names: Vec<&String> = fields.as_object().into_iter().flatten().map(|(n, _)| n).collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": names,
        "properties": fields,
    })
}

#[cfg(test)]
mod tests {
    use jsonschema::validator_for;

    use super::*;

    #[test]
    fn every_reply_of_this_door_is_described() {
        let described = description();
        for code in Code::ALL {
            let refusal = reply::refuse(*code, "why", 5);
            let answer = described.answers.iter().find(|answer| answer.status == refusal.status);
            let answer = answer.unwrap_or_else(|| panic!("{code:?} is not described"));
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            assert!(validator_for(&answer.schema).unwrap().is_valid(&body), "{body}");
            let mut more = body;
            more["more"] = json!(1);
            assert!(!validator_for(&answer.schema).unwrap().is_valid(&more), "{more}");
        }
    }
}
