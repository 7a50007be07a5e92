//! All quarantine reasons, and the order in which they are checked.

use admit_contracts::ingestion_gate::duplicate_rule::{DuplicateDecision, decide_duplicate};
use admit_contracts::ingestion_gate::enums::Reason;
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_core::effect::{Attribution, EffectState, Evidence, Withheld};
use admit_core::{Digest, Entry};
use serde_json::json;

use super::policies::files_with;
use super::{
    ambiguous, changed, done, event, fact, gate_with, in_flight, reason, refused, vet_with, without,
};

#[test]
fn an_envelope_that_breaks_its_schema_is_envelope_invalid() {
    assert_eq!(reason(&changed(|e| e["ts_utc"] = "2026-01-01".into())), "ENVELOPE_INVALID");
    assert_eq!(reason(&changed(|e| e["more"] = 1.into())), "ENVELOPE_INVALID");
    assert_eq!(reason(&changed(|e| e["parameter_hash"] = "x".into())), "ENVELOPE_INVALID");
    assert_eq!(reason(&without("event_type")), "ENVELOPE_INVALID");
}

#[test]
fn a_pin_that_the_class_requires_is_reported_missing() {
    for pin in ["scenario_run_id", "parameter_hash", "seed", "scenario_id", "run_id"] {
        let refused = refused(&without(pin));
        assert_eq!(fact(&refused.facts, "reason"), "PINS_MISSING");
        assert_eq!(refused.message, format!("class traffic_fraud requires {pin}"));
    }
    event(&changed(|e| e["seed"] = 0.into()));
    let without_run_id = |event_type: &str| {
        let mut envelope = without("run_id");
        envelope["event_type"] = event_type.into();
        envelope["payload"] = json!({});
        envelope
    };
    event(&without_run_id("case_trigger"));
    assert_eq!(reason(&without_run_id("no_such_type")), "PINS_MISSING", "its class is traffic");
}

#[test]
fn an_event_type_without_a_policy_is_schema_policy_missing() {
    let unknown = changed(|e| e["event_type"] = "no_such_type".into());
    assert_eq!(reason(&unknown), "SCHEMA_POLICY_MISSING");
    assert_eq!(fact(&refused(&unknown).facts, "event_class"), "traffic");
}

#[test]
fn a_version_is_required_or_allowed_or_neither_matters() {
    let trigger = |version: Option<&str>| {
        changed(|e| {
            e["event_type"] = "case_trigger".into();
            e["payload"] = json!({});
            match version {
                Some(version) => e["schema_version"] = version.into(),
                None => {
                    e.as_object_mut().unwrap().remove("schema_version");
                }
            }
        })
    };
    assert_eq!(reason(&trigger(None)), "SCHEMA_VERSION_REQUIRED");
    assert_eq!(reason(&trigger(Some("v2"))), "SCHEMA_VERSION_NOT_ALLOWED");
    event(&trigger(Some("v1")));
    event(&without("schema_version"));
    event(&changed(|e| e["schema_version"] = "v99".into()));
}

#[test]
fn a_payload_that_breaks_its_schema_is_schema_fail() {
    for (field, value) in [
        ("amount", json!("12.5")),
        ("flow_id", json!(1.5)),
        ("more", json!(1)),
        ("campaign_id", json!(7)),
        ("manifest_fingerprint", json!("x")),
    ] {
        assert_eq!(reason(&changed(|e| e["payload"][field] = value)), "SCHEMA_FAIL", "{field}");
    }
    let absent = refused(&without("payload"));
    assert_eq!(fact(&absent.facts, "reason"), "SCHEMA_FAIL", "it is checked as an empty object");
    event(&changed(|e| e["payload"]["campaign_id"] = "c-1".into()));
}

#[test]
fn the_duplicate_rule_compares_the_payload_first() {
    let (mine, other) = (Digest::of(b"a"), Digest::of(b"b"));
    let withheld = EffectState::Withheld(Withheld::new());
    let by = Attribution { who: "ana".to_owned(), why: None };
    let nothing = Evidence::from_stored("{}");
    let EffectState::Ambiguous(lost) = ambiguous() else { panic!("it is ambiguous") };
    let released = EffectState::Refused(lost.found_refused(&by, nothing));
    let all = [done(), in_flight(), ambiguous(), withheld, released];
    for state in &all {
        let mismatch = DuplicateDecision::Quarantine(Reason::PayloadHashMismatch);
        assert_eq!(decide_duplicate(&other, Some(state), &mine), mismatch);
    }
    let decisions = all.each_ref().map(|state| decide_duplicate(&mine, Some(state), &mine));
    assert_eq!(
        decisions,
        [
            DuplicateDecision::Duplicate,
            DuplicateDecision::Quarantine(Reason::PublishInFlight),
            DuplicateDecision::Quarantine(Reason::PublishAmbiguous),
            DuplicateDecision::Quarantine(Reason::AdmissionStateInvalid),
            DuplicateDecision::Quarantine(Reason::AdmissionStateInvalid),
        ]
    );
    let none = decide_duplicate(&mine, None, &mine);
    assert_eq!(none, DuplicateDecision::Quarantine(Reason::AdmissionStateInvalid));
}

#[test]
fn an_event_without_a_partition_is_partition_key_missing() {
    let partitioning = "version: v0\nprofiles:\n  ig.partitioning.v0.traffic.fraud:\n    stream: s\n    \
                        key_precedence: [payload.nothing, trace_id]\n";
    let gate = gate_with(with_fraud_profile(partitioning));
    let Entry::Refused(refused) = vet_with(&gate, &without("trace_id")) else { panic!("refused") };
    assert_eq!(fact(&refused.facts, "reason"), "PARTITION_KEY_MISSING");
    let Entry::Event(_) = vet_with(&gate, &super::envelope()) else { panic!("it has a trace") };
}

#[test]
fn a_profile_with_another_hash_gives_a_warning_and_its_events_are_unsupported_hash_algo() {
    let partitioning = "version: v0\nprofiles:\n  ig.partitioning.v0.traffic.fraud:\n    stream: s\n    \
                        key_precedence: [event_id]\n    hash_algo: md5\n";
    let policy = with_fraud_profile(partitioning);
    assert_eq!(policy.warnings().len(), 1);
    let Entry::Refused(refused) = vet_with(&gate_with(policy), &super::envelope()) else {
        panic!("refused")
    };
    assert_eq!(fact(&refused.facts, "reason"), "UNSUPPORTED_HASH_ALGO");
}

/// Policy of one class, with this partitioning.
fn with_fraud_profile(partitioning: &str) -> IngestionPolicy {
    let classes = "version: v0\nclasses:\n  traffic: {required_pins: []}\n  traffic_fraud: \
                   {required_pins: [platform_run_id]}\nevent_types:\n  \
                   s3_event_stream_with_fraud_6B: traffic_fraud\n";
    let schemas = "version: v0\npolicies:\n- {event_type: s3_event_stream_with_fraud_6B, class: \
                   traffic_fraud}\n";
    let partitioning = format!(
        "{partitioning}  ig.partitioning.v0.traffic:\n    stream: t\n    key_precedence: \
         [event_id]\n"
    );
    IngestionPolicy::load(&files_with(classes, schemas, &partitioning)).expect("a policy")
}

#[test]
fn every_reason_has_a_ledger_code() {
    for reason in Reason::ALL {
        assert!(!reason.code().as_str().is_empty());
    }
}
