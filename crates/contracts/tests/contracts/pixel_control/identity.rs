//! Key, digest and receipt facts of an event.

use admit_contracts::pixel_control::SchemaMode;
use admit_core::hash::sha256_hex;
use admit_core::{Code, Entry, Key, OnOtherContent};
use serde_json::{Value, json};

use super::{SAMPLE, event, refused, sample, text, valid, vet_as};

const IDEMPOTENCY_KEY: &str = "pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65";

#[test]
fn the_dedupe_key_is_the_hash_of_scope_and_idempotency_key() {
    let event = event(SAMPLE);
    let expected = sha256_hex(format!("arena:{IDEMPOTENCY_KEY}").as_bytes());
    let dedupe_key = event.facts.get("dedupe_key").and_then(|value| value.as_str());
    assert_eq!(dedupe_key, Some(expected.as_str()));
    let bytes = admit_core::hash::unhex32(&expected).unwrap();
    assert_eq!(event.key, Key::derive("pixel-control", &[&bytes]));
    assert_eq!(event.on_other_content, OnOtherContent::Conflict);
}

#[test]
fn one_key_in_two_scopes_is_two_events() {
    let keys = ["arena", "other"].map(|scope| match vet_as(scope, SchemaMode::Envelope, SAMPLE) {
        Entry::Event(event) => (event.key, event.digest),
        Entry::Refused(refused) => panic!("{}", refused.message),
    });
    assert_ne!(keys[0].0, keys[1].0);
    assert_eq!(keys[0].1, keys[1].1);
}

#[test]
fn a_retry_with_another_transport_part_is_the_same_event() {
    let first = event(SAMPLE);
    assert_eq!(first.attempt, Some(1));
    let transports = [
        json!({"attempt": 2, "max_attempts": 3, "retry_backoff_ms": 250, "auth_mode": "api_key"}),
        json!({"attempt": 3.0, "max_attempts": 9, "retry_backoff_ms": 0, "auth_mode": "none"}),
    ];
    for (transport, attempt) in transports.into_iter().zip([2, 3]) {
        let mut body = sample();
        body["transport"] = transport;
        let again = event(&body.to_string());
        assert_eq!((again.key, again.digest), (first.key, first.digest));
        assert_eq!(again.attempt, Some(attempt));
    }
    let endless = SAMPLE.replace("\"attempt\": 1", "\"attempt\": 99999999999");
    assert_eq!(event(&endless).attempt, Some(u32::MAX));
}

#[test]
fn spaces_and_the_order_of_keys_do_not_matter() {
    let body = sample();
    let reversed = |part: &Value| {
        let mut entries: Vec<_> = part.as_object().unwrap().iter().collect();
        entries.sort_by(|a, b| b.0.cmp(a.0));
        let entries: Vec<_> =
            entries.iter().map(|(key, value)| format!("\"{key}\" :\n{value}")).collect();
        format!("{{ {} }}", entries.join(" , "))
    };
    let body = format!(
        r#"{{"transport":{},"envelope":{}}}"#,
        reversed(&body["transport"]),
        reversed(&body["envelope"])
    );
    assert_eq!(event(&body).digest, event(SAMPLE).digest);
}

#[test]
fn any_change_of_the_envelope_is_other_content() {
    let mut digests = vec![event(SAMPLE).digest];
    let changes: [(&str, Value); 13] = [
        ("/envelope/event_name", json!("pixel_control.lifecycle.maniaplanet_endmatch")),
        ("/envelope/schema_version", json!("2026-02-20.1")),
        ("/envelope/event_id", json!("pc-evt-lifecycle-maniaplanet_beginmatch-1739980000002")),
        ("/envelope/event_category", json!("mode")),
        ("/envelope/source_callback", json!("ManiaPlanet.EndMatch")),
        ("/envelope/source_sequence", json!(1_739_980_000_002_u64)),
        ("/envelope/source_time", json!(1_739_980_001)),
        ("/envelope/idempotency_key", json!(format!("pc-idem-{}", "0".repeat(40)))),
        ("/envelope/payload", json!({"a": 1})),
        ("/envelope/payload", json!({"a": 1.0})),
        ("/envelope/payload", json!({"a": "1"})),
        ("/envelope/payload", json!([])),
        ("/envelope/metadata", json!({"a": null})),
    ];
    for (path, value) in changes {
        let mut body = sample();
        *body.pointer_mut(path).unwrap() = value;
        digests.push(event(&body.to_string()).digest);
    }
    let count = digests.len();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), count, "1, 1.0 and \"1\", [] and {{}} are all different");
}

#[test]
fn the_facts_are_those_of_the_contracts_receipt() {
    let mut body = valid("2026-02-19.1", "lifecycle");
    insta::assert_snapshot!(text(event(&body.to_string()).facts), @r#"{"event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","dedupe_key":"0fea1fbcd1868bdd63824940f100c23a92b3e66711f36dfc899b71e1409941ee","event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","event_category":"lifecycle","schema_version":"2026-02-19.1","source_sequence":1739980000001,"server_login":"arena-1"}"#);
    body["envelope"]["metadata"]["context"]["server"]["login"] = json!(7);
    insta::assert_snapshot!(text(event(&body.to_string()).facts), @r#"{"event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","dedupe_key":"0fea1fbcd1868bdd63824940f100c23a92b3e66711f36dfc899b71e1409941ee","event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","event_category":"lifecycle","schema_version":"2026-02-19.1","source_sequence":1739980000001,"warning_count":1,"warnings":["envelope.metadata.context.server.login must be of type string"]}"#);
}

#[test]
fn a_rejection_keeps_what_could_be_read() {
    let mut body = valid("2026-02-19.1", "lifecycle");
    body["envelope"]["schema_version"] = json!("2026-02-19.2");
    body["transport"]["attempt"] = json!(2);
    let unsupported = refused(&body.to_string());
    assert_eq!(unsupported.attempt, Some(2));
    insta::assert_snapshot!(text(unsupported.facts), @r#"{"event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","dedupe_key":"0fea1fbcd1868bdd63824940f100c23a92b3e66711f36dfc899b71e1409941ee","event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","event_category":"lifecycle","schema_version":"2026-02-19.2","source_sequence":1739980000001,"server_login":"arena-1"}"#);

    body["envelope"] = json!({"event_id": "x".repeat(1000), "idempotency_key": "mine", "source_sequence": -1, "payload": 5});
    let invalid = refused(&body.to_string());
    assert_eq!(invalid.code, Code::InvalidEnvelope);
    let facts = text(invalid.facts);
    assert!(facts.len() < 400, "{facts}");
    assert!(facts.contains(r#""idempotency_key":"mine","source_sequence":-1}"#), "{facts}");
}

#[test]
fn a_rejected_request_still_records_the_envelopes_identity() {
    let mut body = sample();
    body["transport"]["attempt"] = json!(0);
    let refused = refused(&body.to_string());
    assert_eq!(refused.attempt, None);
    let key = refused.facts.get("idempotency_key").and_then(|value| value.as_str());
    assert_eq!(key, Some(IDEMPOTENCY_KEY));
    assert!(refused.facts.contains_key("dedupe_key"));
}
