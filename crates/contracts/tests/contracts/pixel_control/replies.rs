//! Replies as the producer reads them, byte for byte.

use admit_contracts::Contract;
use admit_contracts::pixel_control::{PixelControl, SchemaMode, Settings};
use admit_core::{Digest, Millis, PriorAdmission, RecordedEntry, Seq, Verdict};
use serde_json::Value;

use super::{SAMPLE, sample, vet};

fn reply(body: &str, verdict: Verdict) -> (u16, String) {
    let reply = PixelControl::new(Settings::default()).reply(&RecordedEntry {
        entry: vet(body),
        verdict,
        ledger: 1,
        outcome: None,
    });
    assert_eq!(reply.content_type, "application/json");
    (reply.status, String::from_utf8(reply.body).unwrap())
}

fn first() -> PriorAdmission {
    PriorAdmission {
        seq: Seq(1),
        digest: Digest::of(b"the first"),
        received_at: Millis(0),
        principal: admit_core::Principal::new("arena-1"),
        facts: "{}".into(),
    }
}

#[test]
fn a_fresh_event_is_processed() {
    let (status, body) = reply(SAMPLE, Verdict::Fresh { seq: Seq(1) });
    assert_eq!(status, 200);
    insta::assert_snapshot!(body, @r#"{"ack":{"status":"accepted","disposition":"processed","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","dedupe_key":"0fea1fbcd1868bdd63824940f100c23a92b3e66711f36dfc899b71e1409941ee","received_at":"2026-02-19T18:14:02Z"}}"#);
}

#[test]
fn a_copy_is_a_duplicate_with_or_without_other_content() {
    let duplicate = reply(SAMPLE, Verdict::Duplicate { seq: Seq(2), first: first() });
    let conflict = reply(SAMPLE, Verdict::Conflict { seq: Seq(3), first: first() });
    assert_eq!(duplicate, conflict);
    assert_eq!(duplicate.0, 200);
    insta::assert_snapshot!(duplicate.1, @r#"{"ack":{"status":"accepted","disposition":"duplicate","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","dedupe_key":"0fea1fbcd1868bdd63824940f100c23a92b3e66711f36dfc899b71e1409941ee","received_at":"2026-02-19T18:14:02Z"}}"#);
}

#[test]
fn a_rejection_matches_the_contracts_sample() {
    let mut body = sample();
    body["envelope"]["schema_version"] = "2026-02-19.2".into();
    let (status, text) = reply(&body.to_string(), Verdict::Refused { seq: None });
    assert_eq!(status, 200);
    insta::assert_snapshot!(text, @r#"{"ack":{"status":"rejected","code":"schema_version_unsupported","message":"schema_version 2026-02-19.2 is not supported","retryable":false,"retry_after_seconds":0}}"#);
}

#[test]
fn a_vetted_event_that_a_ledger_refuses_is_not_acknowledged() {
    let (status, text) = reply(SAMPLE, Verdict::Refused { seq: None });
    assert_eq!(status, 500);
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["error"]["retryable"], true);
}

#[test]
fn settings_accept_the_config_values_and_no_others() {
    let read = serde_json::from_str::<Settings>;
    assert_eq!(read("{}").unwrap(), Settings::default());
    assert_eq!(read(r#"{"schema":"strict"}"#).unwrap().schema, SchemaMode::Strict);
    assert_eq!(read(r#"{"schema":"envelope"}"#).unwrap().schema, SchemaMode::Envelope);
    assert_eq!(read(r#"{"json_depth_max":9}"#).unwrap().json_depth_max, 9);
    assert!(read(r#"{"schema":"Strict"}"#).is_err());
    assert!(read(r#"{"shema":"strict"}"#).is_err());
}
