//! Regression tests for known defects of the reference implementation.

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::schemas;
use admit_core::{Code, DocumentKind, Entry};
use serde_json::{Value, json};

use super::{
    DocumentStore, RUN, changed, document, done, envelope, event, fact, fits, gate, receipt,
    refused, submission, without,
};

#[test]
fn an_envelope_that_no_receipt_can_describe_is_stored_outside_of_every_run() {
    for envelope in [
        without("event_id"),
        changed(|e| e["event_id"] = 7.into()),
        changed(|e| e["event_id"] = "".into()),
        without("ts_utc"),
        changed(|e| e["ts_utc"] = 7.into()),
        without("manifest_fingerprint"),
        changed(|e| e["manifest_fingerprint"] = "xyz".into()),
        without("platform_run_id"),
        changed(|e| e["platform_run_id"] = "../../etc".into()),
        changed(|e| e["seed"] = "42".into()),
        changed(|e| e["seed"] = json!(4.2)),
        json!({}),
        json!([]),
        json!(7),
    ] {
        let refused = refused(&envelope);
        assert_eq!(refused.code, Code::InvalidEnvelope, "{envelope}");
        let documents = DocumentStore::default().refuse(&envelope);
        assert_eq!(documents.len(), 1, "{envelope}");
        let record = document(&documents, DocumentKind::Quarantine);
        fits(schemas::QUARANTINE, &record).unwrap();
        let id = record["quarantine_id"].as_str().unwrap();
        assert_eq!(documents[0].path, format!("unscoped/ig/quarantine/{id}.json"));
        let raw = format!("unscoped/ig/quarantine/{id}.raw");
        assert_eq!(record["evidence_refs"], json!([{ "kind": "raw_body", "ref": raw }]));
        assert_eq!(documents[0].run, None);
    }
}

#[test]
fn the_violation_decides_the_code_of_an_envelope_without_a_receipt() {
    let reason = |envelope: &Value| fact(&refused(envelope).facts, "reason");
    assert_eq!(reason(&without("event_id")), "ENVELOPE_INVALID");
    assert_eq!(reason(&without("platform_run_id")), "PINS_MISSING");
    let message = refused(&without("platform_run_id")).message;
    assert_eq!(message, "no receipt can be written for it: platform_run_id is missing");
}

#[test]
fn the_same_bytes_without_a_run_are_kept_once() {
    let id = |envelope: &Value| DocumentStore::default().refuse(envelope)[0].id.clone();
    assert_eq!(id(&without("event_id")), id(&without("event_id")));
    assert_ne!(id(&without("event_id")), id(&without("ts_utc")));
}

#[test]
fn a_body_that_is_not_json_is_stored_too() {
    for body in [&b"{"[..], b"", b"\xff", b"{\"a\":NaN}"] {
        let Entry::Refused(refused) = gate().vet(&super::door(), submission(body)) else {
            panic!("refused")
        };
        assert_eq!(refused.code, Code::InvalidJson);
        assert_eq!(fact(&refused.facts, "reason"), "INVALID_JSON");
        assert_eq!(fact(&refused.facts, "unscoped_id").len(), 32);
    }
}

#[test]
fn a_time_in_another_form_is_an_ordinary_quarantine() {
    let documents = DocumentStore::default().refuse(&changed(|e| e["ts_utc"] = "yesterday".into()));
    let receipt = receipt(&documents);
    assert_eq!(receipt["reason_codes"], json!(["ENVELOPE_INVALID"]));
    assert_eq!(receipt["ts_utc"], "yesterday");
    assert_eq!(documents[0].run.as_deref(), Some(RUN));
}

#[test]
fn an_integer_scenario_is_refused_before_anything_is_published() {
    for scenario in [json!(7), json!(0)] {
        let envelope = changed(|e| e["scenario_id"] = scenario.clone());
        assert!(refused(&envelope).message.contains("scenario_id must be a string"));
        let documents = DocumentStore::default().refuse(&envelope);
        let found_receipt = receipt(&documents);
        super::is_receipt(&found_receipt).unwrap();
        assert_eq!(found_receipt["reason_codes"], json!(["ENVELOPE_INVALID"]));
        assert_eq!(found_receipt["pins"].get("scenario_id"), None);
        let record = document(&documents, DocumentKind::Quarantine);
        assert_eq!(record["pins"]["scenario_id"], scenario, "the record keeps what was sent");
    }
}

#[test]
fn one_event_id_in_two_classes_has_two_receipts() {
    let fraud = event(&envelope());
    let trigger = event(&changed(|e| {
        e["event_type"] = "case_trigger".into();
        e["payload"] = json!({});
    }));
    assert_ne!(fraud.key, trigger.key);
    let mut kept = DocumentStore::default();
    let first = kept.settle(&fraud, &done());
    let second = kept.settle(&trigger, &done());
    assert_ne!(first[0].path, second[0].path);
    assert_eq!(kept.0.len(), 2);
    assert_eq!(receipt(&second)["event_class"], "case_trigger");
    let again = kept.settle(&trigger, &done());
    assert_eq!(again, second, "its own id is its own for ever");
}

#[test]
fn a_second_reason_for_the_same_event_keeps_its_own_record() {
    let mut kept = DocumentStore::default();
    let pins = kept.refuse(&without("run_id"));
    let schema = kept.refuse(&changed(|e| e["payload"]["amount"] = "much".into()));
    let other = kept.refuse(&changed(|e| e["payload"]["amount"] = "more".into()));
    let ids: Vec<&str> =
        [&pins, &schema, &other].map(|documents| documents[0].id.as_str()).to_vec();
    assert_eq!(ids[0], "6f5a6bc0ddcc94fce77d146e971628d2", "the first has the reference's id");
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2], "{ids:?}");
    for documents in [&pins, &schema, &other] {
        let record = document(documents, DocumentKind::Quarantine);
        assert_eq!(record["quarantine_id"], receipt(documents)["receipt_id"]);
    }
    let before = kept.0.len();
    kept.refuse(&without("run_id"));
    assert_eq!(kept.0.len(), before, "the same again is the same artifact");
}

#[test]
fn unhealthy_is_a_503_with_a_hint_and_never_a_400() {
    for code in [Code::Unhealthy, Code::LedgerUnavailable] {
        let reply = gate().refuse(code, "the bus is down", 7);
        assert_eq!(reply.status, 503);
        assert_eq!(reply.headers, [("retry-after", "7".to_owned())]);
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body["error"], "IG_UNHEALTHY");
        assert_eq!(body["retry_after_seconds"], 7);
    }
}
