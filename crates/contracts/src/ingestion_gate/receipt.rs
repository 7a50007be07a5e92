//! Receipts: the decision about one delivery, as a document with a closed schema.

use admit_core::Millis;
use admit_core::effect::{Attribution, Evidence};
use admit_core::json::{self, Limits, Object, Value};

use super::eb_ref::EbRef;
use super::enums::{DUPLICATE, Reason, ReceiptDecision};
use super::envelope;
use super::facts::DeliveryFacts;
use super::time;

/// Longest reference, in characters.
const REF_CHARS_MAX: usize = 2_048;

/// Position of an event on the bus and the time it was confirmed: the evidence of a completed
/// publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitEvidence {
    /// Position.
    pub eb_ref: EbRef,
    /// Time of the confirmation, as receipts write it.
    pub admitted_at_utc: String,
}

impl CommitEvidence {
    /// Builds the evidence for an event confirmed at `at`.
    pub fn at(eb_ref: EbRef, at: Millis) -> Self {
        Self { eb_ref, admitted_at_utc: time::utc(at) }
    }

    /// Form stored by the ledger.
    pub fn to_evidence(&self) -> Evidence {
        Evidence::of(&Object::from_iter([
            ("eb_ref", Value::from(self.eb_ref.to_object())),
            ("admitted_at_utc", self.admitted_at_utc.as_str().into()),
        ]))
    }

    /// Parses the output of [`to_evidence`](Self::to_evidence).
    pub fn read(evidence: &Evidence) -> Option<Self> {
        let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
        let value = json::parse(evidence.as_bytes(), &limits).ok()?;
        Some(Self {
            eb_ref: EbRef::read(value.get("eb_ref")?)?,
            admitted_at_utc: value.get("admitted_at_utc")?.as_str()?.to_owned(),
        })
    }
}

/// Builds the receipt of an admission. `by` is set if a reconciliation confirmed an unknown
/// outcome.
pub fn admit(
    facts: DeliveryFacts<'_>,
    id: &str,
    committed: &CommitEvidence,
    by: Option<&Attribution>,
) -> Object<'static> {
    let mut receipt = base(facts, id, ReceiptDecision::Admit);
    push_position(&mut receipt, committed);
    if let Some((profile, key)) = facts.partition() {
        receipt.push("partitioning_profile_id", profile.to_owned());
        receipt.push("partition_key", key.to_owned());
    }
    if let Some(by) = by {
        let why = by.why.as_deref().unwrap_or("no reason was given");
        let reconciled_by = format!("{}: {why}", by.who);
        receipt.push("evidence_refs", vec![evidence_ref("reconciled", &reconciled_by)]);
    }
    receipt
}

/// Builds the receipt of a copy, with the position of the first admission and the path of its
/// receipt.
pub fn duplicate(
    facts: DeliveryFacts<'_>,
    id: &str,
    committed: &CommitEvidence,
    first_receipt: Option<&str>,
) -> Object<'static> {
    let mut receipt = base(facts, id, ReceiptDecision::Duplicate);
    push_position(&mut receipt, committed);
    receipt.push("reason_codes", vec![DUPLICATE]);
    if let Some(path) = first_receipt {
        receipt.push("evidence_refs", vec![evidence_ref("receipt_ref", path)]);
    }
    receipt
}

/// Builds the receipt of a quarantined delivery, with the path of its record.
pub fn quarantine(
    facts: DeliveryFacts<'_>,
    id: &str,
    reason: Reason,
    record: &str,
) -> Object<'static> {
    let mut receipt = base(facts, id, ReceiptDecision::Quarantine);
    receipt.push("reason_codes", vec![reason.as_str()]);
    receipt.push("evidence_refs", vec![evidence_ref("quarantine_record", record)]);
    receipt
}

fn push_position(receipt: &mut Object<'static>, committed: &CommitEvidence) {
    receipt.push("eb_ref", committed.eb_ref.to_object());
    receipt.push("admitted_at_utc", committed.admitted_at_utc.clone());
}

fn evidence_ref(kind: &'static str, reference: &str) -> Object<'static> {
    let reference: String = reference.chars().take(REF_CHARS_MAX).collect();
    Object::from_iter([("kind", Value::from(kind)), ("ref", reference.into())])
}

/// Fields common to all receipts. Fields that are missing or not in the form a receipt takes are
/// left out.
fn base(facts: DeliveryFacts<'_>, id: &str, decision: ReceiptDecision) -> Object<'static> {
    let sent = Object::new();
    let sent = facts.envelope().unwrap_or(&sent);
    let mut receipt = Object::from_iter([
        ("receipt_id", Value::from(id.to_owned())),
        ("decision", decision.as_str().into()),
        ("event_type", facts.event_type().to_owned().into()),
        ("run_config_digest", facts.provenance_of("run_config_digest").into()),
        ("policy_rev", facts.policy_rev().into()),
        ("pins", pins(sent).into()),
        ("actor", facts.actor().into()),
        ("provenance", facts.provenance().into()),
        ("service_release_id", facts.provenance_of("service_release_id").into()),
        ("environment", facts.provenance_of("environment").into()),
    ]);
    let mut add = |name: &'static str, value: Option<&str>| {
        if let Some(value) = value {
            receipt.push(name, value.to_owned());
        }
    };
    add("event_id", facts.event_id());
    add("event_class", facts.class());
    // A malformed timestamp is the reason of the quarantine and is copied as it is.
    add("ts_utc", sent.get("ts_utc").and_then(Value::as_str));
    add("manifest_fingerprint", envelope::text(sent, "manifest_fingerprint"));
    add("platform_run_id", envelope::text(sent, "platform_run_id"));
    add("scenario_run_id", facts.scenario_run());
    add("schema_version", envelope::text(sent, "schema_version"));
    add("producer", envelope::text(sent, "producer"));
    add("dedupe_key", facts.dedupe_key());
    if let Some(hex) = facts.payload_hash() {
        let hash = [("algo", Value::from("sha256")), ("hex", hex.to_owned().into())];
        receipt.push("payload_hash", Object::from_iter(hash));
    }
    receipt
}

/// Pins for a receipt: valid ones only, and `scenario_id` only as text.
fn pins(sent: &Object<'_>) -> Object<'static> {
    let takes = |name: &str, value: &Value<'_>| {
        envelope::is_sound(sent, name) && (name != "scenario_id" || value.as_str().is_some())
    };
    envelope::pins(sent).into_iter().filter(|(name, value)| takes(name, value)).collect()
}
