//! Receipts: what was decided about one delivery, as a closed document.

use admit_core::Millis;
use admit_core::effect::{By, Evidence};
use admit_core::json::{self, Limits, Object, Value};

use super::eb_ref::EbRef;
use super::envelope;
use super::facts::Facts;
use super::time;
use super::words::{DUPLICATE, Decision, Reason};

/// The longest reference, in characters.
const REF_CHARS_MAX: usize = 2_048;

/// That an event is on the bus, and since when. It is the evidence of a publish that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Where.
    pub eb_ref: EbRef,
    /// When it was known to be there, as receipts write it.
    pub admitted_at_utc: String,
}

impl Committed {
    /// It was known at `at` that the event is there.
    pub fn at(eb_ref: EbRef, at: Millis) -> Self {
        Self { eb_ref, admitted_at_utc: time::utc(at) }
    }

    /// As the ledger keeps it.
    pub fn to_evidence(&self) -> Evidence {
        Evidence::of(&Object::from_iter([
            ("eb_ref", Value::from(self.eb_ref.to_object())),
            ("admitted_at_utc", self.admitted_at_utc.as_str().into()),
        ]))
    }

    /// Reads what [`to_evidence`](Self::to_evidence) wrote.
    pub fn read(evidence: &Evidence) -> Option<Self> {
        let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
        let value = json::parse(evidence.as_bytes(), &limits).ok()?;
        Some(Self {
            eb_ref: EbRef::read(value.get("eb_ref")?)?,
            admitted_at_utc: value.get("admitted_at_utc")?.as_str()?.to_owned(),
        })
    }
}

/// The receipt of an admission. `by` is who found out that it was one, where that was not known.
pub fn admit(
    facts: Facts<'_>,
    id: &str,
    committed: &Committed,
    by: Option<&By>,
) -> Object<'static> {
    let mut receipt = base(facts, id, Decision::Admit);
    place(&mut receipt, committed);
    if let Some((profile, key)) = facts.partition() {
        receipt.push("partitioning_profile_id", profile.to_owned());
        receipt.push("partition_key", key.to_owned());
    }
    if let Some(by) = by {
        let why = by.why.as_deref().unwrap_or("no reason was given");
        let said = format!("{}: {why}", by.who);
        receipt.push("evidence_refs", vec![evidence_ref("reconciled", &said)]);
    }
    receipt
}

/// The receipt of a copy: where the first one is, and the receipt of it.
pub fn duplicate(
    facts: Facts<'_>,
    id: &str,
    committed: &Committed,
    first_receipt: Option<&str>,
) -> Object<'static> {
    let mut receipt = base(facts, id, Decision::Duplicate);
    place(&mut receipt, committed);
    receipt.push("reason_codes", vec![DUPLICATE]);
    if let Some(path) = first_receipt {
        receipt.push("evidence_refs", vec![evidence_ref("receipt_ref", path)]);
    }
    receipt
}

/// The receipt of what is in quarantine, with where its record is.
pub fn quarantine(facts: Facts<'_>, id: &str, reason: Reason, record: &str) -> Object<'static> {
    let mut receipt = base(facts, id, Decision::Quarantine);
    receipt.push("reason_codes", vec![reason.as_str()]);
    receipt.push("evidence_refs", vec![evidence_ref("quarantine_record", record)]);
    receipt
}

fn place(receipt: &mut Object<'static>, committed: &Committed) {
    receipt.push("eb_ref", committed.eb_ref.to_object());
    receipt.push("admitted_at_utc", committed.admitted_at_utc.clone());
}

fn evidence_ref(kind: &'static str, reference: &str) -> Object<'static> {
    let reference: String = reference.chars().take(REF_CHARS_MAX).collect();
    Object::from_iter([("kind", Value::from(kind)), ("ref", reference.into())])
}

/// What every receipt has. What the envelope does not hold, or holds in another form than a receipt
/// takes, is left out.
fn base(facts: Facts<'_>, id: &str, decision: Decision) -> Object<'static> {
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
    // A time off its pattern is why it is here, and can stand here.
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

/// The pins as receipts take them: sound ones only, and a scenario is a text.
fn pins(sent: &Object<'_>) -> Object<'static> {
    let takes = |name: &str, value: &Value<'_>| {
        envelope::is_sound(sent, name) && (name != "scenario_id" || value.as_str().is_some())
    };
    envelope::pins(sent).into_iter().filter(|(name, value)| takes(name, value)).collect()
}
