//! Closed schema of the envelope: the hand-written checks, compared with the shipped schema.

use admit_contracts::ingestion_gate::envelope::violations;
use admit_contracts::ingestion_gate::schemas;
use admit_core::json::{self, Limits};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{changed, envelope, fits, without};

fn violations_of(envelope: &Value) -> Vec<String> {
    let text = envelope.to_string();
    let value = json::parse(text.as_bytes(), &Limits::default()).unwrap();
    violations(value.as_object().unwrap())
}

#[test]
fn a_valid_envelope_has_no_violations() {
    assert_eq!(violations_of(&envelope()), [""; 0]);
    for optional in
        ["parameter_hash", "seed", "scenario_id", "run_id", "platform_run_id", "payload"]
    {
        assert_eq!(violations_of(&without(optional)), [""; 0], "{optional}");
    }
}

#[test]
fn every_violation_is_described_without_repeating_the_value() {
    let envelope = changed(|envelope| {
        envelope["event_id"] = "".into();
        envelope["ts_utc"] = "2026-01-01T00:00:00Z".into();
        envelope["run_id"] = "HUSH".into();
        envelope["payload"] = json!([]);
        envelope["hush"] = 1.into();
    });
    assert_eq!(
        violations_of(&envelope),
        [
            "event_id must be a string of 1 to 256 characters",
            "ts_utc must be a time such as 2026-01-01T00:00:00.000000Z",
            "run_id must be 32 lower-case hex digits",
            "payload must be an object",
            "\"hush\" is not a field of an envelope",
        ]
    );
    assert_eq!(violations_of(&json!({})).len(), 4, "four fields are required");
}

/// Almost valid values for every field.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!(0)),
        Just(json!(-1)),
        Just(json!(1.0)),
        Just(json!(1.5)),
        Just(json!(u64::MAX)),
        Just(json!(true)),
        Just(json!({})),
        Just(json!([])),
        Just(json!("a".repeat(32))),
        Just(json!("a".repeat(64))),
        Just(json!("A".repeat(64))),
        Just(json!("é".repeat(64))),
        Just(json!("é".repeat(128))),
        Just(json!("é".repeat(257))),
        Just(json!("2026-01-01T00:00:00.000000Z")),
        Just(json!("2026-01-01T00:00:00.00000Z")),
        Just(json!("platform_20260212T085637Z")),
        Just(json!("platform_2026021T085637Z")),
        Just(json!("x")),
    ]
}

const FIELDS: [&str; 18] = [
    "event_id",
    "event_type",
    "ts_utc",
    "manifest_fingerprint",
    "parameter_hash",
    "seed",
    "scenario_id",
    "run_id",
    "platform_run_id",
    "scenario_run_id",
    "emitted_at_utc",
    "schema_version",
    "trace_id",
    "span_id",
    "parent_event_id",
    "producer",
    "payload",
    "other",
];

proptest! {
    #[test]
    fn the_hand_and_the_shipped_schema_agree(
        changes in prop::collection::vec((0..FIELDS.len(), odd()), 0..4),
    ) {
        let envelope = changed(|envelope| {
            for (field, value) in changes {
                envelope[FIELDS[field]] = value;
            }
        });
        let by_hand = violations_of(&envelope);
        let by_schema = fits(schemas::ENVELOPE, &envelope);
        prop_assert_eq!(by_hand.is_empty(), by_schema.is_ok(), "{:?} {:?}", by_hand, by_schema);
    }
}
