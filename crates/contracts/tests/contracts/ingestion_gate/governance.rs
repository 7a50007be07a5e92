//! Governance lines, and audit events on the bus.

use admit_contracts::ingestion_gate::governance::{
    PolicyRev, SPIKE_COUNT_MIN, SPIKE_WINDOW_MS, SpikeDetector, category,
};
use admit_contracts::ingestion_gate::schemas;
use admit_core::Millis;
use admit_core::json::{self, Limits, Object, write_object};
use serde_json::Value;

use super::{NOW, fits, gate};

fn data(object: &Object<'_>) -> Value {
    let mut out = Vec::new();
    write_object(object, &mut out);
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn every_reason_has_its_category() {
    for (reason, wanted) in [
        ("SCHEMA_FAIL", "SCHEMA_POLICY_MISSING"),
        ("SCHEMA_VERSION_REQUIRED", "SCHEMA_POLICY_MISSING"),
        ("PINS_MISSING", "SCHEMA_POLICY_MISSING"),
        ("PUBLISH_AMBIGUOUS", "PUBLISH_AMBIGUOUS"),
        ("PUBLISH_AMBIGUOUS_RETRY", "PUBLISH_AMBIGUOUS"),
        ("PUBLISH_IN_FLIGHT", "UNKNOWN"),
        ("ENVELOPE_INVALID", "UNKNOWN"),
    ] {
        assert_eq!(category(reason), wanted, "{reason}");
    }
}

#[test]
fn a_policy_change_is_reported_with_the_previous_policy() {
    let now = gate().policy_rev();
    let before = PolicyRev { content_digest: "0".repeat(64), ..now.clone() };
    let (id, line) = now.changed(Some(&before), "unscoped", NOW, gate().provenance());
    let line = data(&line);
    assert_eq!(line["event_id"], id);
    assert_eq!(line["event_family"], "POLICY_REV_CHANGED");
    assert_eq!(line["details"]["policy_rev"]["content_digest"], now.content_digest);
    assert_eq!(line["details"]["previous"]["content_digest"], before.content_digest);
    let (other, _) = before.changed(None, "unscoped", NOW, gate().provenance());
    assert_ne!(other, id);
}

#[test]
fn the_active_policy_round_trips() {
    let policy = gate().policy_rev();
    let mut text = Vec::new();
    write_object(&policy.active(NOW), &mut text);
    let value = json::parse(&text, &Limits::default()).unwrap();
    assert_eq!(PolicyRev::read(&value), Some(policy));
    assert_eq!(PolicyRev::read(&json::Value::Null), None);
}

#[test]
fn audit_events_are_envelopes() {
    let policy = gate().policy_rev();
    let activation = policy.activation(None, NOW);
    let mut spikes = SpikeDetector::default();
    let spike = (0..SPIKE_COUNT_MIN).find_map(|_| spikes.note(NOW)).expect("a spike");
    for audit in [&activation, &spike] {
        let envelope = data(&audit.envelope);
        fits(schemas::ENVELOPE, &envelope).unwrap();
        assert_eq!(envelope["event_id"], audit.event_id.as_str());
        assert_eq!(envelope["manifest_fingerprint"], "0".repeat(64));
        assert_eq!(audit.partition_key().len(), 64);
    }
    assert_eq!(data(&spike.envelope)["payload"]["count"], SPIKE_COUNT_MIN);
}

#[test]
fn a_spike_is_reported_once_per_window() {
    let mut spikes = SpikeDetector::default();
    let mut spikes = |from: i64, count: u32| {
        (0..count).filter_map(|_| spikes.note(Millis(NOW.0 + from))).count()
    };
    assert_eq!(spikes(0, SPIKE_COUNT_MIN - 1), 0);
    assert_eq!(spikes(1, 1), 1);
    assert_eq!(spikes(2, 200), 0, "it was reported just now");
    assert_eq!(spikes(SPIKE_WINDOW_MS + 10, SPIKE_COUNT_MIN - 1), 0, "the others are too old");
    assert_eq!(spikes(SPIKE_WINDOW_MS + 11, 1), 1);
}
