//! Wire description of a stream for the OpenAPI document.

use admit_core::Code;
use serde_json::{Value, json};

use super::settings::{Accept, Settings};
use crate::describe::{Description, ResponseDescription};

/// See [`Contract::describe`](crate::Contract::describe).
pub(super) fn description(settings: &Settings) -> Description {
    let mut request = vec![
        ("application/json", json!({})),
        ("application/cloudevents+json", cloud_event()),
        ("application/cloudevents-batch+json", json!({ "type": "array", "items": cloud_event() })),
        ("application/x-ndjson", json!({ "type": "string" })),
    ];
    if settings.accept == Accept::Any {
        request.push(("*/*", json!({})));
    }
    let answer = |status, when: &str, content_type, schema| ResponseDescription {
        status,
        when: when.to_owned(),
        content_type,
        schema,
    };
    let results = json!({ "type": "array", "items": { "type": "object" } });
    let (problem, lines) = ("application/problem+json", "application/x-ndjson");
    let mut answers =
        vec![answer(201, "the event is admitted, now or before", "application/json", receipt())];
    answers.extend(Description::refusals(Code::ALL, Code::http_status, problem, &problem_schema()));
    for (status, when) in [
        (200, "every event of the batch is admitted"),
        (207, "some events of the batch are permanently refused"),
        (503, "some events of the batch can be retried"),
    ] {
        answers.push(answer(status, when, "application/json", results.clone()));
        answers.push(answer(status, when, lines, json!({ "type": "string" })));
    }
    Description { summary: "Send events to a stream", request, answers }
}

fn cloud_event() -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    json!({
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": { "const": "1.0" }, "id": text, "source": text, "type": text,
        },
    })
}

fn receipt() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["receipt_id", "stream", "key", "received_at"],
        "properties": {
            "receipt_id": { "type": "string" },
            "stream": { "type": "string" },
            "key": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
            "received_at": { "type": "string", "format": "date-time" },
        },
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "error"],
        "properties": {
            "type": { "type": "string", "format": "uri-reference" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "receipt_id": { "type": "string" },
            "first_receipt_id": { "type": "string" },
            "violations": { "type": "array", "items": { "type": "string" } },
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

    use super::*;
    use crate::events::problem;

    #[test]
    fn every_refusal_of_this_door_is_described() {
        let described = description(&Settings::named("default"));
        for code in Code::ALL {
            let reply = problem(*code, "why", 5);
            let answer = described.answers.iter().find(|answer| answer.status == reply.status);
            let answer = answer.unwrap_or_else(|| panic!("{code:?} is not described"));
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            assert!(validator_for(&answer.schema).unwrap().is_valid(&body), "{body}");
        }
    }
}
