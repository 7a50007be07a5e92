//! Wire description of this door for the OpenAPI document: an envelope in, an ACK or a NACK out.

use admit_core::Code;
use serde_json::{Value, json};

use super::EVENT_ID_CHARS_MAX;
use crate::describe::{Description, ResponseDescription};

const JSON: &str = "application/json";

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description() -> Description {
    let mut answers = vec![ResponseDescription {
        status: 200,
        when: "the event is stored, now or by an earlier delivery".to_owned(),
        content_type: JSON,
        schema: ack(),
    }];
    answers.extend(Description::refusals(Code::ALL, Code::http_status, JSON, &nack()));
    Description { summary: "Send one envelope", request: vec![(JSON, envelope())], answers }
}

fn envelope() -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    json!({
        "type": "object",
        "required": ["event_id", "type", "ts", "session_id", "device_id", "payload"],
        "properties": {
            "event_id": { "type": "string", "minLength": 1, "maxLength": EVENT_ID_CHARS_MAX },
            "type": text,
            "ts": { "type": "string", "format": "date-time" },
            "session_id": text,
            "device_id": text,
            "payload": { "type": "object" },
        },
    })
}

fn ack() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["event_id", "ack_ts", "status"],
        "properties": {
            "event_id": { "type": "string" },
            "ack_ts": { "type": "string", "format": "date-time" },
            "status": { "const": "stored" },
        },
    })
}

fn nack() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["event_id", "nack_ts", "status", "error"],
        "properties": {
            "event_id": { "type": ["string", "null"] },
            "nack_ts": { "type": "string", "format": "date-time" },
            "status": { "const": "rejected" },
            "error": {
                "type": "object",
                "additionalProperties": false,
                "required": ["code", "message", "retryable"],
                "properties": {
                    "code": { "type": "string" },
                    "message": { "type": "string" },
                    "retryable": { "type": "boolean" },
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
    fn every_refusal_of_this_door_is_described_and_no_refusal_is_an_ack() {
        let described = description();
        for code in Code::ALL {
            let refusal = reply::nack(Some("evt_1"), *code, "why", admit_core::Millis(0));
            let answer = described.answers.iter().find(|answer| answer.status == refusal.status);
            let answer = answer.unwrap_or_else(|| panic!("{code:?} is not described"));
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            assert!(validator_for(&answer.schema).unwrap().is_valid(&body), "{body}");
            assert!(!validator_for(&ack()).unwrap().is_valid(&body), "{body}");
            assert_eq!(body["error"]["retryable"], code.is_retryable());
        }
    }
}
