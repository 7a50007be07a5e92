//! Encoding of an event as an outbox row: its id, and the payload sent to the gate.
//!
//! The gate must derive the same key and digest from the payload as the agent did. For a stream,
//! the headers that identify the event are rebuilt from its facts.

use admit_core::json::{Object, Value};
use admit_core::{Digest, Entry, Event, Millis, Principal, Submission};
use admit_edge::{Dialect, RowRequest};
use bytes::Bytes;

use super::doors::EdgeDoor;

/// The row of an event: id and payload.
pub(super) fn encode(dialect: Dialect, event: &Event) -> (String, String) {
    let fact = |name| event.facts.get(name).and_then(Value::as_str).map(str::to_owned);
    let body = || String::from_utf8_lossy(&event.body).into_owned();
    let id = match dialect {
        Dialect::Skyra => event.inbox.clone(),
        Dialect::PixelControl => fact("idempotency_key"),
        Dialect::Events => None,
    };
    let payload = match dialect {
        Dialect::Skyra | Dialect::PixelControl => body(),
        Dialect::Events => row_request(event).to_payload(),
    };
    (id.unwrap_or_else(|| event.key.to_string()), payload)
}

/// The digest of a row's payload, computed by its contract.
pub(super) fn digest(door: &EdgeDoor, principal: &Principal, payload: &str) -> Option<Digest> {
    let RowRequest { headers, body } = match door.dialect {
        Dialect::Skyra | Dialect::PixelControl => {
            RowRequest { headers: Vec::new(), body: payload.as_bytes().to_vec() }
        }
        Dialect::Events => RowRequest::from_payload(payload)?,
    };
    let submission = Submission {
        principal: principal.clone(),
        received_at: Millis::default(),
        body: Bytes::from(body),
        headers,
        nonce: [0; 16],
    };
    let contract = &door.mount.contract;
    let first = contract.split(submission).ok()?.submissions.into_iter().next()?;
    match contract.vet(&door.mount.door, first) {
        Entry::Event(event) => Some(event.digest),
        Entry::Refused(_) => None,
    }
}

/// The request that reproduces this event of a stream.
fn row_request(event: &Event) -> RowRequest {
    let text = |name| event.facts.get(name).and_then(Value::as_str);
    let header = |name: &str, value: String| (name.to_owned(), value);
    let mut headers = Vec::new();
    let mut body = event.body.to_vec();
    let content_type = match (text("mode"), line_number(&event.facts)) {
        (Some("structured"), _) => Some("application/cloudevents+json".to_owned()),
        (Some(_), _) => {
            if let Some(Value::Object(attributes)) = event.facts.get("attributes") {
                for (name, value) in
                    attributes.iter().filter(|(name, _)| *name != "datacontenttype")
                {
                    let value = percent_encode(value.as_str().unwrap_or_default());
                    headers.push(header(&format!("ce-{name}"), value));
                }
            }
            text("content_type").map(str::to_owned)
        }
        (None, Some(number)) => {
            // The line number is part of the event's identity, so it is reproduced with empty
            // lines.
            let before = usize::try_from(number.saturating_sub(1)).unwrap_or(0);
            body = [vec![b'\n'; before], body].concat();
            Some("application/x-ndjson".to_owned())
        }
        (None, None) => Some(text("content_type").unwrap_or("application/json").to_owned()),
    };
    headers.extend(content_type.map(|kind| header("content-type", kind)));
    headers.extend(text("idempotency_key").map(|key| header("idempotency-key", quote(key))));
    RowRequest { headers, body }
}

fn line_number(facts: &Object<'_>) -> Option<i64> {
    facts.get("line").and_then(Value::as_i64)
}

/// A key as a quoted string, which can hold every character of a key.
fn quote(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An attribute encoded as in the HTTP binding of CloudEvents.
fn percent_encode(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && !b"\"%\\".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use admit_contracts::events::{EventIdentity, Events, Settings};
    use admit_core::Door;
    use admit_gate::DoorMount;
    use admit_gate::gateway::EffectTarget;

    use super::*;

    fn stream(identity: EventIdentity) -> EdgeDoor {
        let settings = Settings { identity, ..Settings::named("default") };
        let mount = DoorMount {
            door: Door::new("events/default"),
            path: "/v1/events".to_owned(),
            api_key_header: "x-api-key".parse().unwrap(),
            contract: Arc::new(Events::new(settings).unwrap()),
            effect_target: EffectTarget::default(),
        };
        EdgeDoor { mount, dialect: Dialect::Events }
    }

    fn vet_all(door: &EdgeDoor, headers: &[(&str, &str)], body: &[u8]) -> Vec<Event> {
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let submission = Submission {
            principal: Principal::new("local"),
            received_at: Millis(1),
            body: Bytes::copy_from_slice(body),
            headers,
            nonce: [0; 16],
        };
        let contract = &door.mount.contract;
        let split = contract.split(submission).expect("a request that can be taken apart");
        let event = |submission| match contract.vet(&door.mount.door, submission) {
            Entry::Event(event) => event,
            Entry::Refused(refused) => panic!("{}", refused.message),
        };
        split.submissions.into_iter().map(event).collect()
    }

    /// Asserts that every event keeps its key and digest when it is sent from its row.
    fn assert_round_trip(door: &EdgeDoor, headers: &[(&str, &str)], body: &[u8]) {
        for event in vet_all(door, headers, body) {
            let (id, payload) = encode(Dialect::Events, &event);
            assert_eq!(id, event.key.to_string());
            assert_eq!(digest(door, &event.principal, &payload), Some(event.digest), "{payload}");
            let row_request = RowRequest::from_payload(&payload).expect("a request");
            let headers: Vec<_> =
                row_request.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let again = vet_all(door, &headers, &row_request.body);
            assert_eq!(again.len(), 1);
            assert_eq!((again[0].key, again[0].digest), (event.key, event.digest), "{payload}");
        }
    }

    #[test]
    fn a_forwarded_stream_event_keeps_its_key_and_digest() {
        let json = ("content-type", "application/json");
        let named = stream(EventIdentity::IdempotencyKey);
        assert_round_trip(&named, &[json, ("idempotency-key", "k-1")], b"{ \"a\": 1.0 }");
        assert_round_trip(&named, &[json, ("idempotency-key", "\"a \\\"b\\\" \\\\c\"")], b"{}");
        let problem = ("content-type", "application/problem+json; charset=utf-8");
        assert_round_trip(&named, &[problem, ("idempotency-key", "k-1")], b"{\"a\":\"\xc3\xa4\"}");
        assert_round_trip(&stream(EventIdentity::Body), &[json], b"{\"a\":[1,2]}");
    }

    #[test]
    fn batch_lines_keep_their_numbers() {
        let lines = ("content-type", "application/x-ndjson");
        let key = ("idempotency-key", "batch-7");
        let named = stream(EventIdentity::IdempotencyKey);
        assert_round_trip(&named, &[lines, key], b"{\"a\":1}\n\n{\"a\":2}\n{\"a\":3}");
        assert_round_trip(&stream(EventIdentity::Body), &[lines], b"{\"a\":1}\n{\"a\":2}");
    }

    #[test]
    fn cloudevents_are_forwarded_in_their_original_mode() {
        let named = stream(EventIdentity::IdempotencyKey);
        let structured = ("content-type", "application/cloudevents+json");
        let one = br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}"#;
        assert_round_trip(&named, &[structured], one);
        let batch = ("content-type", "application/cloudevents-batch+json");
        assert_round_trip(&named, &[batch], &[b"[", &one[..], b"]"].concat());
        let binary = [
            ("ce-specversion", "1.0"),
            ("ce-id", "a%20b%22"),
            ("ce-source", "/%C3%A4"),
            ("ce-type", "t"),
            ("content-type", "application/json"),
        ];
        assert_round_trip(&named, &binary, b"{\"a\":1}");
    }
}
