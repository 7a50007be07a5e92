//! An event as a row: its name in the outbox, and what is sent to the gate.
//!
//! What is sent must be the same event to the gate as it was to the agent: same key, same digest.
//! For a stream the headers that named it are made again from what the contract noted of it.

use admit_core::json::{Object, Value};
use admit_core::{Digest, Entry, Event, Millis, Principal, Submission};
use admit_edge::{Dialect, Parcel};
use bytes::Bytes;

use super::doors::EdgeDoor;

/// The row of an event: its id and its payload.
pub(super) fn of(dialect: Dialect, event: &Event) -> (String, String) {
    let fact = |name| event.facts.get(name).and_then(Value::as_str).map(str::to_owned);
    let body = || String::from_utf8_lossy(&event.body).into_owned();
    let id = match dialect {
        Dialect::Skyra => event.inbox.clone(),
        Dialect::PixelControl => fact("idempotency_key"),
        Dialect::Events => None,
    };
    let payload = match dialect {
        Dialect::Skyra | Dialect::PixelControl => body(),
        Dialect::Events => parcel(event).to_payload(),
    };
    (id.unwrap_or_else(|| event.key.to_string()), payload)
}

/// The digest of what a row holds, by the contract that made it.
pub(super) fn digest(door: &EdgeDoor, principal: &Principal, payload: &str) -> Option<Digest> {
    let Parcel { headers, body } = match door.dialect {
        Dialect::Skyra | Dialect::PixelControl => {
            Parcel { headers: Vec::new(), body: payload.as_bytes().to_vec() }
        }
        Dialect::Events => Parcel::from_payload(payload)?,
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

/// The request that makes this event of a stream once more.
fn parcel(event: &Event) -> Parcel {
    let text = |name| event.facts.get(name).and_then(Value::as_str);
    let header = |name: &str, value: String| (name.to_owned(), value);
    let mut headers = Vec::new();
    let mut body = event.body.to_vec();
    let content_type = match (text("mode"), line(&event.facts)) {
        (Some("structured"), _) => Some("application/cloudevents+json".to_owned()),
        (Some(_), _) => {
            if let Some(Value::Object(attributes)) = event.facts.get("attributes") {
                for (name, value) in
                    attributes.iter().filter(|(name, _)| *name != "datacontenttype")
                {
                    let value = encoded(value.as_str().unwrap_or_default());
                    headers.push(header(&format!("ce-{name}"), value));
                }
            }
            text("content_type").map(str::to_owned)
        }
        (None, Some(number)) => {
            // The number of a line is part of its name, so it stands there again.
            let before = usize::try_from(number.saturating_sub(1)).unwrap_or(0);
            body = [vec![b'\n'; before], body].concat();
            Some("application/x-ndjson".to_owned())
        }
        (None, None) => Some(text("content_type").unwrap_or("application/json").to_owned()),
    };
    headers.extend(content_type.map(|kind| header("content-type", kind)));
    headers.extend(text("idempotency_key").map(|key| header("idempotency-key", quoted(key))));
    Parcel { headers, body }
}

fn line(facts: &Object<'_>) -> Option<i64> {
    facts.get("line").and_then(Value::as_i64)
}

/// A key as a quoted string, which carries every character a key may have.
fn quoted(key: &str) -> String {
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""))
}

/// An attribute as the HTTP binding of CloudEvents writes it.
fn encoded(value: &str) -> String {
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

    use admit_contracts::events::{Events, Identity, Settings};
    use admit_core::Door;
    use admit_gate::DoorMount;
    use admit_gate::gateway::Outward;

    use super::*;

    fn stream(identity: Identity) -> EdgeDoor {
        let settings = Settings { identity, ..Settings::named("default") };
        let mount = DoorMount {
            door: Door::new("events/default"),
            path: "/v1/events".to_owned(),
            api_key_header: "x-api-key".parse().unwrap(),
            contract: Arc::new(Events::new(settings).unwrap()),
            outward: Outward::default(),
        };
        EdgeDoor { mount, dialect: Dialect::Events }
    }

    fn vetted(door: &EdgeDoor, headers: &[(&str, &str)], body: &[u8]) -> Vec<Event> {
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

    /// Sent as its row says, every event has the key and the digest it had before.
    fn comes_back(door: &EdgeDoor, headers: &[(&str, &str)], body: &[u8]) {
        for event in vetted(door, headers, body) {
            let (id, payload) = of(Dialect::Events, &event);
            assert_eq!(id, event.key.to_string());
            assert_eq!(digest(door, &event.principal, &payload), Some(event.digest), "{payload}");
            let parcel = Parcel::from_payload(&payload).expect("a parcel");
            let headers: Vec<_> =
                parcel.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let again = vetted(door, &headers, &parcel.body);
            assert_eq!(again.len(), 1);
            assert_eq!((again[0].key, again[0].digest), (event.key, event.digest), "{payload}");
        }
    }

    #[test]
    fn an_event_of_a_stream_is_the_same_event_when_it_is_sent_on() {
        let json = ("content-type", "application/json");
        let named = stream(Identity::IdempotencyKey);
        comes_back(&named, &[json, ("idempotency-key", "k-1")], b"{ \"a\": 1.0 }");
        comes_back(&named, &[json, ("idempotency-key", "\"a \\\"b\\\" \\\\c\"")], b"{}");
        let problem = ("content-type", "application/problem+json; charset=utf-8");
        comes_back(&named, &[problem, ("idempotency-key", "k-1")], b"{\"a\":\"\xc3\xa4\"}");
        comes_back(&stream(Identity::Body), &[json], b"{\"a\":[1,2]}");
    }

    #[test]
    fn every_line_of_a_batch_keeps_its_number() {
        let lines = ("content-type", "application/x-ndjson");
        let key = ("idempotency-key", "batch-7");
        let named = stream(Identity::IdempotencyKey);
        comes_back(&named, &[lines, key], b"{\"a\":1}\n\n{\"a\":2}\n{\"a\":3}");
        comes_back(&stream(Identity::Body), &[lines], b"{\"a\":1}\n{\"a\":2}");
    }

    #[test]
    fn cloudevents_are_sent_on_in_the_mode_they_came() {
        let named = stream(Identity::IdempotencyKey);
        let structured = ("content-type", "application/cloudevents+json");
        let one = br#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{"a":1}}"#;
        comes_back(&named, &[structured], one);
        let batch = ("content-type", "application/cloudevents-batch+json");
        comes_back(&named, &[batch], &[b"[", &one[..], b"]"].concat());
        let binary = [
            ("ce-specversion", "1.0"),
            ("ce-id", "a%20b%22"),
            ("ce-source", "/%C3%A4"),
            ("ce-type", "t"),
            ("content-type", "application/json"),
        ];
        comes_back(&named, &binary, b"{\"a\":1}");
    }
}
