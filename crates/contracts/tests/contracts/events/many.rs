//! Requests with many events: each gets its own verdict.

use admit_contracts::{Contract as _, RequestShape, events::EventIdentity};
use admit_core::{Code, Entry};

use super::{entries, event, request, stream};

const BATCH: (&str, &str) = ("content-type", "application/cloudevents-batch+json");
const LINES: (&str, &str) = ("content-type", "application/x-ndjson");
const KEY: (&str, &str) = ("idempotency-key", "batch-1");

fn cloud(id: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"t","data":[1,"],"]}}"#)
}

fn codes(entries: &[Entry]) -> Vec<Option<Code>> {
    let code = |entry: &Entry| match entry {
        Entry::Event(_) => None,
        Entry::Refused(refused) => Some(refused.code),
    };
    entries.iter().map(code).collect()
}

#[test]
fn each_event_of_a_batch_keeps_its_bytes() {
    let events = stream(|_| {});
    let body = format!(" [ {} ,{{\"id\":5}},\n{}]", cloud("1"), cloud("2"));
    let entries = entries(&events, request(&[BATCH], &body));
    assert_eq!(codes(&entries), [None, Some(Code::InvalidEnvelope), None]);
    let (Entry::Event(one), Entry::Refused(bad)) = (&entries[0], &entries[1]) else {
        panic!("{entries:?}")
    };
    assert_eq!((&*one.body, &*bad.body), (cloud("1").as_bytes(), br#"{"id":5}"#.as_slice()));
    let alone = event(&events, &[("content-type", "application/cloudevents+json")], &cloud("1"));
    assert_eq!((one.key, one.digest), (alone.key, alone.digest), "alone or among others");
}

#[test]
fn a_malformed_batch_is_stored_whole() {
    let events = stream(|_| {});
    for (body, code) in [("[{]", Code::InvalidJson), ("{}", Code::InvalidEnvelope)] {
        let entries = entries(&events, request(&[BATCH], body));
        assert_eq!(codes(&entries), [Some(code)]);
    }
    assert!(entries(&events, request(&[BATCH], " [ ] ")).is_empty(), "nothing is no mistake");
}

#[test]
fn an_invalid_line_does_not_affect_other_lines() {
    let events = stream(|_| {});
    let body = format!("{{\"n\":1}}\r\n\n{{bad\n{}\n{{\"n\":2}}", cloud("1"));
    let split = events.split(request(&[LINES, KEY], &body)).expect("it is looked at");
    assert_eq!(split.shape, RequestShape::Lines(vec![1, 3, 4, 5]));
    let entries = entries(&events, request(&[LINES, KEY], &body));
    assert_eq!(codes(&entries), [None, Some(Code::InvalidJson), None, None]);
}

#[test]
fn lines_are_named_by_the_key_of_the_request_and_their_number() {
    let events = stream(|_| {});
    let keys = |body: &str| -> Vec<_> {
        let key =
            |entry| if let Entry::Event(event) = entry { event.key } else { panic!("{entry:?}") };
        entries(&events, request(&[LINES, KEY], body)).into_iter().map(key).collect()
    };
    let first = keys("1\n1\n");
    assert_ne!(first[0], first[1]);
    assert_eq!(first, keys("1\n1\n"), "a retry has the same names");
    let missing = entries(&events, request(&[LINES], "1\n2\n"));
    assert_eq!(codes(&missing), [Some(Code::IdempotencyKeyMissing); 2]);
    let by_body = stream(|settings| settings.identity = EventIdentity::Body);
    assert_eq!(codes(&entries(&by_body, request(&[LINES], "1\n2\n"))), [None; 2]);
}

#[test]
fn a_request_has_a_limit_and_so_has_each_event_in_it() {
    let events = stream(|settings| {
        settings.events_per_request_max = 2;
        settings.event_bytes_max = 100;
    });
    let three = format!("[{},{},{}]", cloud("1"), cloud("2"), cloud("3"));
    for (kind, body) in [(LINES, "1\n\n2\n3"), (BATCH, three.as_str())] {
        let turned = events.split(request(&[kind, KEY], body)).unwrap_err();
        assert_eq!(turned.code, Code::BodyTooLarge);
    }
    let large = format!("1\n\"{}\"\n", "x".repeat(100));
    let entries = entries(&events, request(&[LINES, KEY], &large));
    assert_eq!(codes(&entries), [None, Some(Code::BodyTooLarge)]);
    assert!(matches!(&entries[1], Entry::Refused(refused) if refused.body.len() == 102));
}

#[test]
fn a_request_without_a_line_is_refused() {
    let events = stream(|_| {});
    for body in ["", "\n \r\n"] {
        let entries = entries(&events, request(&[LINES, KEY], body));
        assert_eq!(codes(&entries), [Some(Code::InvalidJson)]);
    }
}
