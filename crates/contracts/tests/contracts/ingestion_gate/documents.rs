//! Receipts and records: closed schema, complete, and stored under the run of their own event.

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::enums::Reason;
use admit_contracts::ingestion_gate::schemas;
use admit_core::effect::Attribution;
use admit_core::{Code, DocumentKind, Entry, FirstAdmission, Issue as _, IssueReason, Seq};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    DocumentStore, RUN, ambiguous, changed, committed, document, done, envelope, event, fits, gate,
    in_flight, is_receipt, receipt, vectors, vet, without,
};

#[test]
fn an_admission_has_every_member_of_its_receipt() {
    let event = event(&envelope());
    let documents = DocumentStore::default().settle(&event, &done());
    assert_eq!(documents.len(), 1);
    let receipt = receipt(&documents);
    is_receipt(&receipt).unwrap();
    let digest = gate().policy().digest().to_owned();
    let vectors = vectors();
    assert_eq!(
        receipt,
        json!({
            "receipt_id": vectors["receipt_id"]["ADMIT"],
            "decision": "ADMIT",
            "event_id": vectors["event_id"],
            "event_type": "s3_event_stream_with_fraud_6B",
            "event_class": "traffic_fraud",
            "ts_utc": "2026-01-01T00:00:00.000000Z",
            "manifest_fingerprint": envelope()["manifest_fingerprint"],
            "platform_run_id": RUN,
            "scenario_run_id": "fd17b1049bbce9df478c22ba1740e9ea",
            "run_config_digest": digest,
            "policy_rev": {
                "policy_id": "ig_policy", "revision": "builtin-v0", "content_digest": digest,
            },
            "schema_version": "v1",
            "producer": "svc:world_stream_producer",
            "pins": {
                "platform_run_id": RUN,
                "scenario_run_id": "fd17b1049bbce9df478c22ba1740e9ea",
                "manifest_fingerprint": envelope()["manifest_fingerprint"],
                "parameter_hash": envelope()["parameter_hash"],
                "seed": 42,
                "scenario_id": "baseline_v1",
                "run_id": "c25a2675fbfbacd952b13bb594880e92",
            },
            "dedupe_key": vectors["dedupe_key"],
            "payload_hash": { "algo": "sha256", "hex": vectors["payload_hash"] },
            "admitted_at_utc": "2026-02-19T18:14:02.123000+00:00",
            "partitioning_profile_id": "ig.partitioning.v0.traffic.fraud",
            "partition_key": vectors["partition_key"],
            "eb_ref": {
                "topic": "fp.bus.traffic.fraud.v1", "partition": 0, "offset": "7",
                "offset_kind": "file_line",
                "published_at_utc": "2026-02-19T18:14:02.123000+00:00",
            },
            "actor": {
                "actor_id": "SYSTEM::wsp", "source_type": "SYSTEM", "auth_mode": "api_key",
                "principal": "wsp",
            },
            "provenance": {
                "service_release_id": "dev-local", "environment": "local",
                "config_revision": "builtin-v0", "run_config_digest": digest,
            },
            "service_release_id": "dev-local",
            "environment": "local",
        })
    );
    let path = format!("{RUN}/ig/receipts/84201e31c95d5984ab11eb2c7bc20280.json");
    assert_eq!(documents[0].path, path);
    assert_eq!(documents[0].run.as_deref(), Some(RUN));
}

#[test]
fn a_duplicate_receipt_names_the_first_and_no_partition() {
    let event = event(&envelope());
    let mut kept = DocumentStore::default();
    let admitted = kept.settle(&event, &done());
    let documents = kept.copy(&event, &event, &done());
    assert_eq!(documents.len(), 1);
    let copy = receipt(&documents);
    is_receipt(&copy).unwrap();
    assert_eq!(copy["receipt_id"], vectors()["receipt_id"]["DUPLICATE"]);
    assert_eq!(copy["reason_codes"], json!(["DUPLICATE"]));
    let reference = json!([{ "kind": "receipt_ref", "ref": admitted[0].path }]);
    assert_eq!(copy["evidence_refs"], reference);
    let first = receipt(&admitted);
    for same in ["eb_ref", "admitted_at_utc", "payload_hash", "scenario_run_id"] {
        assert_eq!(copy[same], first[same], "{same}");
    }
    assert_eq!(copy.get("partition_key"), None);
    assert_eq!(copy.get("partitioning_profile_id"), None);
    let again = kept.copy(&event, &event, &done());
    assert_eq!(again, documents, "every copy gets the same receipt");
}

#[test]
fn a_quarantine_has_a_record_a_receipt_and_a_line() {
    let documents = DocumentStore::default().refuse(&without("run_id"));
    assert_eq!(documents.len(), 3);
    let record = document(&documents, DocumentKind::Quarantine);
    fits(schemas::QUARANTINE, &record).unwrap();
    assert_eq!(record["reason_codes"], json!(["PINS_MISSING"]));
    assert_eq!(record["received_at_utc"], "2026-02-19T18:14:02.123000+00:00");
    let mut sent = without("run_id");
    sent.as_object_mut().unwrap().remove("payload");
    assert_eq!(record["envelope"], sent);
    let found_receipt = receipt(&documents);
    is_receipt(&found_receipt).unwrap();
    assert_eq!(found_receipt["receipt_id"], record["quarantine_id"]);
    assert_eq!(found_receipt["receipt_id"], vectors()["quarantine_id"]);
    let path = format!("{RUN}/ig/quarantine/6f5a6bc0ddcc94fce77d146e971628d2.json");
    assert_eq!(
        found_receipt["evidence_refs"],
        json!([{ "kind": "quarantine_record", "ref": path }])
    );
    let line = document(&documents, DocumentKind::Governance);
    assert_eq!(line["event_family"], "CORRIDOR_ANOMALY");
    assert_eq!(line["details"]["category"], "SCHEMA_POLICY_MISSING");
    assert!(documents.iter().all(|one| one.run.as_deref() == Some(RUN)));
}

#[test]
fn another_payload_under_a_known_name_is_kept_as_a_mismatch() {
    let first = event(&envelope());
    let other = event(&changed(|e| e["payload"]["amount"] = json!(13.0)));
    assert_eq!(first.key, other.key);
    assert_ne!(first.digest, other.digest);
    let state = done();
    let original =
        FirstAdmission { seq: Seq(1), facts: &first.facts, state: &state, receipt: None };
    let mut kept = DocumentStore::default();
    let documents = kept.issue(IssueReason::Conflict { first: original }, &other.facts);
    assert_eq!(receipt(&documents)["reason_codes"], json!(["PAYLOAD_HASH_MISMATCH"]));
    let line = document(&documents, DocumentKind::Governance);
    assert_eq!(line["event_id"], vectors()["governance_event_id_payload_hash_mismatch"]);
    assert_eq!(line["details"]["category"], "UNKNOWN");
}

#[test]
fn the_state_of_the_first_decides_about_its_copies() {
    let event = event(&envelope());
    let receipt_of = |state| receipt(&DocumentStore::default().copy(&event, &event, &state));
    assert_eq!(receipt_of(in_flight())["reason_codes"], json!(["PUBLISH_IN_FLIGHT"]));
    assert_eq!(receipt_of(ambiguous())["reason_codes"], json!(["PUBLISH_AMBIGUOUS"]));
    assert_eq!(receipt_of(done())["decision"], "DUPLICATE");
    is_receipt(&receipt_of(in_flight())).unwrap();
    let gate = gate();
    assert!(gate.is_transient("PUBLISH_IN_FLIGHT"));
    assert!(!gate.is_transient("PUBLISH_AMBIGUOUS"));
    for reason in Reason::ALL {
        let is_about = matches!(reason, Reason::PublishInFlight | Reason::PublishAmbiguous);
        assert_eq!(gate.is_released_by_settlement(reason.as_str()), is_about);
    }
}

#[test]
fn an_ambiguous_publish_is_in_quarantine_until_it_is_reconciled() {
    let event = event(&envelope());
    let mut kept = DocumentStore::default();
    let lost = kept.settle(&event, &ambiguous());
    assert_eq!(receipt(&lost)["reason_codes"], json!(["PUBLISH_AMBIGUOUS"]));
    let line = document(&lost, DocumentKind::Governance);
    assert_eq!(line["details"]["category"], "PUBLISH_AMBIGUOUS");
    let by = Attribution { who: "ana".to_owned(), why: Some("seen on the bus".to_owned()) };
    let found = kept.issue(IssueReason::Settled { state: &done(), by: Some(&by) }, &event.facts);
    let found_receipt = receipt(&found);
    is_receipt(&found_receipt).unwrap();
    assert_eq!(found_receipt["decision"], "ADMIT");
    let how = json!([{ "kind": "reconciled", "ref": "ana: seen on the bus" }]);
    assert_eq!(found_receipt["evidence_refs"], how);
    assert_eq!(found_receipt["eb_ref"]["offset"], committed().eb_ref.offset);
}

#[test]
fn a_delivery_refused_by_a_closed_run_is_stored_outside_of_it() {
    let event = event(&envelope());
    let documents = DocumentStore::default().issue(IssueReason::RunClosed, &event.facts);
    assert_eq!(documents.len(), 1);
    let record = document(&documents, DocumentKind::Quarantine);
    fits(schemas::QUARANTINE, &record).unwrap();
    assert_eq!(record["reason_codes"], json!(["RUN_CLOSED"]));
    assert_eq!(documents[0].run, None);
    assert!(documents[0].path.starts_with("unscoped/ig/quarantine/"));
    let other_run =
        super::event(&changed(|e| e["platform_run_id"] = "platform_20260213T000000Z".into()));
    let other = DocumentStore::default().issue(IssueReason::RunClosed, &other_run.facts);
    assert_ne!(other[0].id, documents[0].id, "the same event of another run is another one");
    let closing = DocumentStore::default().issue(IssueReason::RunClosing, &event.facts);
    let record = document(&closing, DocumentKind::Quarantine);
    assert_eq!(record["reason_codes"], json!(["RUN_CLOSING"]));
    assert_ne!(closing[0].id, documents[0].id, "a later refusal of the closed run has its own");
}

#[test]
fn a_refusal_without_a_reason_is_an_internal_error() {
    let event = event(&envelope());
    let reason = IssueReason::Refused { code: Code::InternalError, message: "" };
    let documents = DocumentStore::default().issue(reason, &event.facts);
    assert_eq!(receipt(&documents)["reason_codes"], json!(["INTERNAL_ERROR"]));
}

#[test]
fn a_record_has_each_field_once_and_the_last_of_repeated_ones() {
    let text = without("run_id").to_string();
    let body = format!("{{\"trace_id\":\"first\",\"zz\":1,\"payload\":{{}},{}", &text[1..]);
    let Entry::Refused(refused) = gate().vet(&super::door(), super::submission(body)) else {
        panic!("refused")
    };
    let reason = IssueReason::Refused { code: refused.code, message: &refused.message };
    let documents = DocumentStore::default().issue(reason, &refused.facts);
    let sent = &document(&documents, DocumentKind::Quarantine)["envelope"];
    assert_eq!(sent["trace_id"], envelope()["trace_id"]);
    assert_eq!(sent["zz"], 1);
    assert_eq!(sent.get("payload"), None);
}

#[test]
fn an_envelope_of_a_thousand_unknown_fields_has_a_short_report() {
    let envelope = changed(|envelope| {
        for number in 0..1_000 {
            envelope[format!("strange_{number}")] = number.into();
        }
    });
    let documents = DocumentStore::default().refuse(&envelope);
    let sent = document(&documents, DocumentKind::Quarantine)["envelope"].clone();
    assert_eq!(
        sent.as_object().unwrap().len(),
        32 + super::envelope().as_object().unwrap().len() - 1
    );
    assert_eq!(sent["platform_run_id"], RUN);
}

/// Values of the wrong type that producers may send.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!(0)),
        Just(json!(-5)),
        Just(json!(2.0)),
        Just(json!(2.5)),
        Just(json!(true)),
        Just(json!({ "a": 1 })),
        Just(json!([1])),
        Just(json!("b".repeat(32))),
        Just(json!("b".repeat(64))),
        Just(json!("é".repeat(300))),
        Just(json!("2026-01-01T00:00:00.000000Z")),
        Just(json!("yesterday")),
        Just(json!("platform_20260101T000000Z")),
        Just(json!("case_trigger")),
        Just(json!("v1")),
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
    fn the_documents_of_any_delivery_satisfy_their_schemas(
        changes in prop::collection::vec((0..FIELDS.len(), prop::option::of(odd())), 0..5),
    ) {
        let envelope = changed(|envelope| {
            for (field, value) in changes {
                match value {
                    Some(value) => envelope[FIELDS[field]] = value,
                    None => {
                        envelope.as_object_mut().unwrap().remove(FIELDS[field]);
                    }
                }
            }
        });
        let mut kept = DocumentStore::default();
        let documents = match vet(&envelope) {
            Entry::Event(event) => {
                let mut documents = kept.settle(&event, &done());
                documents.extend(kept.copy(&event, &event, &in_flight()));
                documents
            }
            Entry::Refused(_) => kept.refuse(&envelope),
        };
        prop_assert!(!documents.is_empty());
        for one in documents {
            let value: Value = serde_json::from_str(&one.text).unwrap();
            let fitting = match one.kind {
                DocumentKind::Receipt => is_receipt(&value),
                DocumentKind::Quarantine => fits(schemas::QUARANTINE, &value),
                DocumentKind::Governance => Ok(()),
            };
            prop_assert_eq!(fitting, Ok(()), "{}", one.text);
            let run = one.run.as_deref().unwrap_or("unscoped");
            prop_assert!(one.path.starts_with(&format!("{run}/")), "{}", one.path);
        }
    }
}
