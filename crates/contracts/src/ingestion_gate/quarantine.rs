//! Quarantine records: the stored copy of a delivery, referenced by its receipt.

use admit_core::Millis;
use admit_core::json::{Object, Value};

use super::enums::ReceiptDecision;
use super::envelope;
use super::facts::DeliveryFacts;
use super::time;

/// Builds the record of a delivery. `raw` is the path of its bytes, for an envelope without a run.
pub fn record(
    facts: DeliveryFacts<'_>,
    id: &str,
    reason: &str,
    received_at: Millis,
    raw: Option<&str>,
) -> Object<'static> {
    let sent = Object::new();
    let sent = facts.envelope().unwrap_or(&sent);
    let manifest = envelope::text(sent, "manifest_fingerprint").unwrap_or(NO_MANIFEST);
    let mut record = Object::from_iter([
        ("quarantine_id", Value::from(id.to_owned())),
        ("received_at_utc", time::utc(received_at).into()),
        ("decision", ReceiptDecision::Quarantine.as_str().into()),
        ("reason_codes", vec![reason.to_owned()].into()),
        ("manifest_fingerprint", manifest.to_owned().into()),
        ("pins", envelope::pins(sent).into()),
        ("policy_rev", facts.policy_rev().into()),
        ("actor", facts.actor().into()),
        ("provenance", facts.provenance().into()),
        ("service_release_id", facts.provenance_of("service_release_id").into()),
        ("environment", facts.provenance_of("environment").into()),
        ("envelope", sent.clone().into_owned().into()),
    ]);
    if let Some(path) = raw {
        let evidence = [("kind", Value::from("raw_body")), ("ref", path.to_owned().into())];
        record.push("evidence_refs", vec![Object::from_iter(evidence)]);
    }
    record
}

/// Placeholder for a missing manifest fingerprint.
pub const NO_MANIFEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
