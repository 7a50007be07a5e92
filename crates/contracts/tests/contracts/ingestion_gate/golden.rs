//! Golden vectors recorded from the running reference implementation.

use admit_contracts::ingestion_gate::enums::{DUPLICATE, Reason, ReceiptDecision};
use admit_contracts::ingestion_gate::governance::{COMPONENT, GovernanceFamily};
use admit_contracts::ingestion_gate::names::{self, ArtifactName};
use admit_contracts::ingestion_gate::service_token::{ServiceTokens, sign};
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits};

use super::{RUN, envelope, event, fact, vectors};

fn text(pointer: &str) -> String {
    vectors().pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn the_golden_event_has_its_names() {
    let event = event(&envelope());
    assert_eq!(fact(&event.facts, "event_class"), text("/event_class"));
    assert_eq!(fact(&event.facts, "dedupe_key"), text("/dedupe_key"));
    assert_eq!(event.digest.to_string(), text("/payload_hash"));
    let plan = event.effect.expect("it is published").plan;
    assert_eq!(fact(&plan, "topic"), text("/stream"));
    assert_eq!(fact(&plan, "partition_key"), text("/partition_key"));
    assert_eq!(fact(&plan, "dedupe_key"), text("/dedupe_key"));
    assert_eq!(fact(&plan, "partitioning_profile_id"), text("/partitioning_profile_id"));
}

#[test]
fn the_golden_receipts_have_their_ids() {
    let id = |decision, reason| {
        let (event_id, payload_hash) = (&text("/event_id"), &text("/payload_hash"));
        ArtifactName { decision, event_id, class: "traffic_fraud", reason, payload_hash }.short()
    };
    assert_eq!(id(ReceiptDecision::Admit, ""), text("/receipt_id/ADMIT"));
    assert_eq!(id(ReceiptDecision::Duplicate, DUPLICATE), text("/receipt_id/DUPLICATE"));
    let quarantine = id(ReceiptDecision::Quarantine, Reason::SchemaFail.as_str());
    assert_eq!(quarantine, text("/receipt_id/QUARANTINE"));
    assert_eq!(quarantine, text("/quarantine_id"));
}

#[test]
fn the_golden_event_id_is_the_hash_of_its_preimage() {
    assert_eq!(sha256_hex(text("/event_id_preimage").as_bytes()), text("/event_id"));
}

#[test]
fn canonical_json_survives_hostile_input() {
    // Parsed with our own parser: serde_json has no integers of this size.
    let all = include_str!("vectors.json");
    let limits = Limits::default();
    let value = json::parse(all.as_bytes(), &limits).unwrap();
    let tortured = value.pointer("/canonical_json_torture/object").unwrap();
    let wanted = text("/canonical_json_torture/sha256");
    assert_eq!(sha256_hex(&names::canonical(tortured)), wanted);
    assert_eq!(names::payload_hash(tortured.as_object().unwrap()).to_string(), wanted);
}

#[test]
fn the_golden_service_token_is_accepted() {
    let token = text("/service_token");
    let token = token.split(' ').next().unwrap();
    let tokens = ServiceTokens::new(["other", "test-secret-1"], [""; 0]);
    assert_eq!(tokens.verify(token), Ok("world_stream_producer".to_owned()));
    assert_eq!(sign(b"test-secret-1", "world_stream_producer"), token);
}

#[test]
fn the_golden_governance_line_has_its_id() {
    let id = names::governance_event_id(
        GovernanceFamily::CorridorAnomaly.as_str(),
        RUN,
        Some("fd17b1049bbce9df478c22ba1740e9ea"),
        COMPONENT,
        &format!("ig_quarantine:{}:PAYLOAD_HASH_MISMATCH", text("/event_id")),
    );
    assert_eq!(id, text("/governance_event_id_payload_hash_mismatch"));
}
