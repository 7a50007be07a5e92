//! Identity of plain events, and the replies to copies.

use admit_contracts::events::{Accept, Canonical, EventIdentity, FieldPath};
use admit_core::{Code, Seq, Verdict};

use super::{JSON, code, event, first, refused, reply, stream};

#[test]
fn a_plain_event_is_named_by_its_idempotency_key() {
    let events = stream(|_| {});
    let named = |key| event(&events, &[JSON, ("idempotency-key", key)], r#"{"n":1}"#);
    assert_eq!(named("\"a-1\"").key, named("a-1").key, "quoted or bare");
    assert_ne!(named("a-1").key, named("a-2").key);
    assert_eq!(code(&events, &[JSON], "{}"), Code::IdempotencyKeyMissing);
    for bad in ["", "\"", "a b", "\u{fffd}"] {
        let headers = [JSON, ("idempotency-key", bad)];
        assert_eq!(code(&events, &headers, "{}"), Code::InvalidRequest, "{bad}");
    }
}

#[test]
fn the_same_key_of_another_principal_is_another_event() {
    let events = stream(|_| {});
    let headers = [JSON, ("idempotency-key", "a-1")];
    let mut other = super::request(&headers, "{}");
    other.principal = admit_core::Principal::new("bakery");
    let Some(admit_core::Entry::Event(other)) = super::entries(&events, other).pop() else {
        panic!("an event was expected")
    };
    assert_ne!(other.key, event(&events, &headers, "{}").key);
}

#[test]
fn formatting_does_not_change_the_digest_and_content_does() {
    let events = stream(|_| {});
    let digest = |body| event(&events, &[JSON, ("idempotency-key", "k")], body).digest;
    assert_eq!(digest(r#"{"a":1,"b":"é"}"#), digest("{ \"b\": \"\\u00e9\",\n \"a\": 1 }"));
    assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":2}"#));
    assert_ne!(digest(r#"{"id":9007199254740993}"#), digest(r#"{"id":9007199254740992}"#));
}

#[test]
fn jcs_refuses_content_that_it_cannot_distinguish() {
    let events = stream(|settings| settings.canonical = Canonical::Jcs);
    let headers = [JSON, ("idempotency-key", "k")];
    let digest = |body| event(&events, &headers, body).digest;
    assert_eq!(digest("[1.0]"), digest("[1]"));
    assert_eq!(code(&events, &headers, "[9007199254740993]"), Code::InvalidJson);
    assert_eq!(code(&events, &headers, r#"{"a":1,"a":2}"#), Code::InvalidJson);
}

#[test]
fn fields_can_identify_an_event() {
    let fields = ["order.id", "/kind"].map(|text| FieldPath::parse(text).expect("a field"));
    let events = stream(|settings| settings.identity = EventIdentity::Fields(fields.to_vec()));
    let key = |body| event(&events, &[JSON], body).key;
    let one = key(r#"{"order":{"id":1},"kind":"paid","at":5}"#);
    assert_eq!(one, key(r#"{"kind":"paid","order":{"total":9,"id":1}}"#));
    assert_ne!(one, key(r#"{"order":{"id":"1"},"kind":"paid"}"#), "a number is not a text");
    assert_ne!(one, key(r#"{"order":{"id":2},"kind":"paid"}"#));
    for body in [r#"{"order":{"id":1}}"#, r#"{"order":{"id":null},"kind":"paid"}"#, "[]"] {
        assert_eq!(code(&events, &[JSON], body), Code::IdempotencyKeyMissing, "{body}");
    }
}

#[test]
fn the_body_can_identify_an_event() {
    let events = stream(|settings| settings.identity = EventIdentity::Body);
    let key = |body| event(&events, &[JSON], body).key;
    assert_eq!(key(r#"{"a":1,"b":2}"#), key(r#"{"b":2, "a":1}"#));
    assert_ne!(key(r#"{"a":1}"#), key(r#"{"a":2}"#));
}

#[test]
fn other_bodies_than_json_are_compared_byte_by_byte() {
    let events = stream(|settings| {
        settings.accept = Accept::Any;
        settings.identity = EventIdentity::Body;
    });
    let text = ("content-type", "text/plain");
    let key = |body| event(&events, &[text], body).key;
    assert_ne!(key("{ }"), key("{}"));
    assert_eq!(event(&events, &[JSON], "{ }").key, event(&events, &[JSON], "{}").key);
    assert_ne!(event(&events, &[JSON], "{}").key, key("{}"), "nor are they the same event as JSON");
    assert_eq!(event(&events, &[], "raw").body, "raw");
}

#[test]
fn a_copy_gets_the_reply_of_the_first_byte_for_byte() {
    let events = stream(|_| {});
    let headers = [JSON, ("idempotency-key", "k")];
    let event = event(&events, &headers, "{}");
    let fresh = reply(&events, &event, Verdict::Fresh { seq: Seq(3) });
    let mut late = event.clone();
    late.received_at.0 += 86_400_000;
    let copy = Verdict::Duplicate { seq: Seq(9), first: first(&event) };
    let replayed = reply(&events, &late, copy);
    assert_eq!((fresh.status, &fresh.body), (replayed.status, &replayed.body));
    let header = ("idempotent-replayed", "true".to_owned());
    assert!(replayed.headers.contains(&header) && !fresh.headers.contains(&header));
    insta::assert_snapshot!(String::from_utf8(fresh.body).unwrap(), @r#"{"receipt_id":"rcp-00000007-3","stream":"orders","key":"17361e77b11790023145fe5d3909fbbd5c8ddcd99fd94b7af2719a0c1b2fd3e4","received_at":"2026-02-19T18:14:02.123Z"}"#);
}

#[test]
fn a_reused_key_is_refused_with_the_receipt_of_the_first() {
    let events = stream(|_| {});
    let event = event(&events, &[JSON, ("idempotency-key", "k")], "{}");
    let conflict = Verdict::Conflict { seq: Seq(9), first: first(&event) };
    let reply = reply(&events, &event, conflict);
    assert_eq!((reply.status, reply.content_type), (422, "application/problem+json"));
    insta::assert_snapshot!(String::from_utf8(reply.body).unwrap(), @r#"{"type":"/problems/idempotency_key_reused","title":"idempotency key reused","status":422,"detail":"this key was used before for other content, see rcp-00000007-3","receipt_id":"rcp-00000007-9","first_receipt_id":"rcp-00000007-3","error":{"code":"idempotency_key_reused","message":"this key was used before for other content, see rcp-00000007-3","retryable":false,"retry_after_seconds":0}}"#);
}

#[test]
fn a_refusal_keeps_its_body_and_its_reason() {
    let events = stream(|_| {});
    let refused = refused(&events, &[JSON, ("idempotency-key", "k")], "{\"a\":");
    assert_eq!(refused.code, Code::InvalidJson);
    assert_eq!(refused.body, "{\"a\":");
    assert!(refused.message.starts_with("the body is not json"), "{}", refused.message);
}
