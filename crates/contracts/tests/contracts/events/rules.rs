//! Schemas, signatures and timestamps of a stream.

use admit_contracts::Contract as _;
use admit_contracts::events::{Events, FieldPath, Settings, WebhookSecret, Webhooks};
use admit_core::{Age, Code, Entry, Horizon, Millis, json::Value};

use super::{JSON, NOW, code, entries, event, refused, request, stream};

const KEY: (&str, &str) = ("idempotency-key", "k");

fn with_schema(settings: &mut Settings) {
    let schema =
        r#"{"type":"object","required":["total"],"properties":{"total":{"type":"number"}}}"#;
    settings.schemas = vec![("1".to_owned(), schema.to_owned())];
    settings.version_field = FieldPath::parse("v");
}

#[test]
fn an_event_is_checked_against_the_schema_of_its_version() {
    let events = stream(with_schema);
    event(&events, &[JSON, KEY], r#"{"v":1,"total":5}"#);
    event(&events, &[JSON, KEY], r#"{"v":"1","total":5}"#);
    for body in ["{}", r#"{"v":2}"#, "[]"] {
        assert_eq!(code(&events, &[JSON, KEY], body), Code::SchemaVersionUnsupported, "{body}");
    }
    let refused = refused(&events, &[JSON, KEY], r#"{"v":1,"total":"hush"}"#);
    assert_eq!(refused.code, Code::InvalidEnvelope);
    let violations = refused.facts.get("violations").and_then(Value::as_array).map(<[_]>::len);
    assert_eq!(violations, Some(1));
    assert!(!refused.message.contains("hush"), "{}", refused.message);
}

#[test]
fn a_cloudevent_names_its_version_in_dataschema() {
    let events = stream(with_schema);
    let code = |schema: &str, total: &str| {
        let body = format!(
            r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t","dataschema":"{schema}","data":{{"total":{total}}}}}"#
        );
        let headers = [("content-type", "application/cloudevents+json")];
        match entries(&events, request(&headers, &body)).pop() {
            Some(Entry::Event(_)) => None,
            Some(Entry::Refused(refused)) => Some(refused.code),
            None => panic!("one event"),
        }
    };
    assert_eq!(code("1", "5"), None);
    assert_eq!(code("1", "null"), Some(Code::InvalidEnvelope));
    assert_eq!(code("2", "5"), Some(Code::SchemaVersionUnsupported));
}

#[test]
fn a_stream_with_secrets_parses_nothing_unsigned() {
    let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
    let webhooks = Webhooks { secrets: vec![secret], tolerance_seconds: 300, principal: None };
    let events = stream(|settings| settings.webhooks = Some(webhooks));
    let turned = events.split(request(&[JSON, KEY], "{}")).unwrap_err();
    assert_eq!(turned.code, Code::Unauthorized);
    let id = ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    let headers = [
        JSON,
        id,
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let mut signed = request(&headers, r#"{"test": 2432232314}"#);
    signed.received_at = Millis(1_614_265_330_000);
    let Some(Entry::Event(event)) = entries(&events, signed).pop() else { panic!("an event") };
    assert_eq!(event.facts.get("webhook_id").and_then(Value::as_str), Some(id.1));
    assert_eq!(event.happened_at, None, "the timestamp is of the attempt, not of the event");
}

#[test]
fn the_time_of_an_event_is_read_from_the_configured_field() {
    let events = stream(|settings| settings.time_field = FieldPath::parse("at"));
    let at = |time: &str| event(&events, &[JSON, KEY], &format!(r#"{{"at":{time}}}"#)).happened_at;
    let then = Some(Millis(1_771_524_842_000));
    assert_eq!(at("\"2026-02-19T18:14:02Z\""), then);
    assert_eq!(at("1771524842"), then);
    assert_eq!(at("1771524842000"), then);
    for body in ["{}", r#"{"at":"soon"}"#, r#"{"at":1.5}"#, r#"{"at":null}"#] {
        assert_eq!(code(&events, &[JSON, KEY], body), Code::InvalidEnvelope, "{body}");
    }
}

#[test]
fn an_event_older_than_the_retention_is_refused() {
    let mut settings = Settings::named("orders");
    settings.time_field = FieldPath::parse("at");
    let horizon = Horizon::new(Some(Age::from_secs(60)), None);
    let events = Events::new(settings).expect("settings that fit").within(horizon);
    let body = |ago: i64| format!(r#"{{"at":{}}}"#, NOW.0 - ago);
    event(&events, &[JSON, KEY], &body(60_000));
    assert_eq!(code(&events, &[JSON, KEY], &body(60_001)), Code::OutsideHorizon);
}
