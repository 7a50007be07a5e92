//! CloudEvents in all transport modes are the same event; invalid ones are refused with the
//! violation.

use admit_contracts::events::EventIdentity;
use admit_core::{Code, Millis};

use super::{JSON, code, event, refused, stream};

const STRUCTURED: (&str, &str) = ("content-type", "application/cloudevents+json; charset=utf-8");

const EVENT: &str = r#"{"specversion":"1.0","id":"A-1","source":"/shop/1","type":"order.paid","time":"2026-02-19T18:14:02Z","subject":"caf\u00e9 1","n":7,"data":{"total":12.5}}"#;

const BINARY: [(&str, &str); 8] = [
    ("content-type", "application/json"),
    ("ce-specversion", "1.0"),
    ("ce-id", "A-1"),
    ("ce-source", "/shop/1"),
    ("ce-type", "order.paid"),
    ("ce-time", "2026-02-19T18:14:02Z"),
    ("ce-subject", "caf%C3%A9%201"),
    ("ce-n", "7"),
];

#[test]
fn structured_and_binary_are_the_same_event() {
    for identity in [EventIdentity::IdempotencyKey, EventIdentity::Body] {
        let events = stream(|settings| settings.identity = identity);
        let structured = event(&events, &[STRUCTURED], EVENT);
        let binary = event(&events, &BINARY, "{\"total\": 12.5}");
        assert_eq!(structured.key, binary.key, "source and id, regardless of the stream settings");
        assert_eq!(structured.digest, binary.digest);
        assert_eq!(structured.happened_at, Some(Millis(1_771_524_842_000)));
        assert_eq!(binary.happened_at, structured.happened_at);
    }
}

#[test]
fn every_attribute_and_the_data_are_content() {
    let events = stream(|_| {});
    let first = event(&events, &[STRUCTURED], EVENT);
    for other in [
        EVENT.replace("order.paid", "order.sent"),
        EVENT.replace("\"n\":7", "\"n\":8"),
        EVENT.replace("12.5", "12.6"),
        EVENT.replace("02Z", "03Z"),
    ] {
        let other = event(&events, &[STRUCTURED], &other);
        assert_eq!((other.key, other.digest == first.digest), (first.key, false));
    }
    for other in [EVENT.replace("A-1", "A-2"), EVENT.replace("/shop/1", "/shop/2")] {
        assert_ne!(event(&events, &[STRUCTURED], &other).key, first.key);
    }
}

#[test]
fn non_json_data_is_the_same_in_every_mode() {
    let events = stream(|settings| settings.accept = admit_contracts::events::Accept::Any);
    let head =
        r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain""#;
    let text = event(&events, &[STRUCTURED], &format!(r#"{head},"data":"hello"}}"#));
    let bytes = event(&events, &[STRUCTURED], &format!(r#"{head},"data_base64":"aGVsbG8="}}"#));
    let mut headers = BINARY[..5].to_vec();
    headers[0].1 = "text/plain";
    headers[2].1 = "1";
    headers[3].1 = "/s";
    headers[4].1 = "t";
    let binary = event(&events, &headers, "hello");
    assert_eq!(text.digest, bytes.digest);
    assert_eq!(text.digest, binary.digest);
}

#[test]
fn an_event_without_data_needs_no_content_type() {
    let events = stream(|_| {});
    let binary = event(&events, &BINARY[1..5], "");
    let structured = r#"{"specversion":"1.0","id":"A-1","source":"/shop/1","type":"order.paid"}"#;
    assert_eq!(binary.digest, event(&events, &[STRUCTURED], structured).digest);
}

#[test]
fn an_invalid_cloudevent_is_refused_with_the_violation() {
    let events = stream(|_| {});
    for (from, to, message) in [
        (r#""id":"A-1","#, "", "the attribute id is missing"),
        (r#""source":"/shop/1","#, "", "the attribute source is missing"),
        (r#""type":"order.paid","#, r#""type":null,"#, "the attribute type is missing"),
        (r#""specversion":"1.0","#, "", "the attribute specversion is missing"),
        (r#""id":"A-1""#, r#""id":"""#, "the attribute id is empty"),
        (
            r#""n":7"#,
            r#""n":7.5"#,
            r#"the attribute "n" is a number, which an attribute cannot be"#,
        ),
        (r#""n":7"#, r#""n":{}"#, r#"the attribute "n" is a object, which an attribute cannot be"#),
        (
            r#""n":7"#,
            r#""N":7"#,
            r#"the attribute "N" has a name with characters other than lower-case letters and digits"#,
        ),
        (r#""n":7"#, r#""id":"A-2""#, r#"the attribute "id" appears twice"#),
        ("2026-02-19T18:14:02Z", "yesterday", "the attribute time is not an RFC 3339 time"),
        ("/shop/1", "shop 1", "the attribute source is not a URI reference"),
        (r#""n":7"#, r#""data_base64":"AA==""#, "an event has data or data_base64, not both"),
        (r#""data":{"total":12.5}"#, r#""data_base64":"?""#, "data_base64 is not base64"),
    ] {
        let body = EVENT.replace(from, to);
        let refused = refused(&events, &[STRUCTURED], &body);
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (Code::InvalidEnvelope, message),
            "{body}"
        );
    }
    assert_eq!(code(&events, &[STRUCTURED], "[]"), Code::InvalidEnvelope);
    assert_eq!(code(&events, &[STRUCTURED], "{"), Code::InvalidJson);
    let newer = EVENT.replace("1.0", "2.0");
    assert_eq!(code(&events, &[STRUCTURED], &newer), Code::SchemaVersionUnsupported);
}

#[test]
fn a_binary_event_is_held_to_the_same_rules() {
    let events = stream(|_| {});
    for lacking in 1..5 {
        let mut headers = BINARY.to_vec();
        let (name, _) = headers.remove(lacking);
        let refused = refused(&events, &headers, "{}");
        assert_eq!(refused.code, Code::InvalidEnvelope);
        let message = format!("the attribute {} is missing", name.trim_start_matches("ce-"));
        assert_eq!(refused.message, message);
    }
    let twice = [&BINARY[..], &[("ce-id", "A-2")]].concat();
    assert_eq!(code(&events, &twice, "{}"), Code::InvalidEnvelope);
    let garbled = [&BINARY[..6], &[("ce-subject", "%ff")]].concat();
    assert_eq!(code(&events, &garbled, "{}"), Code::InvalidEnvelope);
    assert_eq!(code(&events, &BINARY, "{"), Code::InvalidJson);
    let plain = [JSON, ("idempotency-key", "k")];
    assert!(event(&events, &plain, EVENT).happened_at.is_none(), "only a type makes it one");
}
