//! Audit check: recomputes facts and documents from the raw body and the outcome.
//!
//! The policy of that time may no longer exist, so its decisions (class, reason, partition) are
//! taken from the facts; everything else is recomputed.

use admit_core::effect::Attribution;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{Document, DocumentKind, Millis};

use super::enums::{Reason, ReceiptDecision};
use super::facts::DeliveryFacts;
use super::receipt::CommitEvidence;
use super::{INVALID_JSON, actor_id, envelope, names, quarantine, receipt};

/// Fields that a copy shares with the first admission under its key; its other fields may differ.
const SHARED: [&str; 10] = [
    "receipt_id",
    "quarantine_id",
    "decision",
    "reason_codes",
    "event_id",
    "event_class",
    "event_type",
    "dedupe_key",
    "payload_hash",
    "eb_ref",
];

/// Returns the names of the facts that do not match the body and the principal.
pub fn mismatched_facts(stored: &Object<'_>, principal: &str, body: &[u8]) -> Vec<&'static str> {
    let facts = DeliveryFacts::new(stored);
    let mut wrong = Vec::new();
    let mut check = |name: &'static str, holds: bool| {
        if !holds {
            wrong.push(name);
        }
    };
    let actor = facts.actor();
    let field = |name: &str| actor.get(name).and_then(Value::as_str);
    let is_actor = field("principal") == Some(principal)
        && field("actor_id") == Some(actor_id(principal).as_str());
    check("actor", is_actor);
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok();
    // A body nested too deeply was not JSON to the gate at that time.
    let value = value.filter(|_| facts.reason() != Some(INVALID_JSON));
    let sent = value.as_ref().and_then(Value::as_object);
    let is_outside = sent.is_none_or(|sent| !envelope::unreceiptable(sent).is_empty());
    let outside = is_outside.then(|| names::unscoped_id(body));
    check("unscoped_id", facts.unscoped_id() == outside.as_deref());
    let Some(sent) = sent else {
        check("envelope", facts.envelope().is_none());
        return wrong;
    };
    let canonical = |object: &Object<'_>| names::canonical(&Value::from(object.clone()));
    let kept_envelope = facts.envelope().map(canonical);
    check("envelope", kept_envelope == Some(canonical(&envelope::without_payload(sent))));
    if !is_outside {
        let text = |name| envelope::text(sent, name).unwrap_or_default();
        let (run, class) = (text("platform_run_id"), facts.class().unwrap_or_default());
        let dedupe_key = names::dedupe_key(run, class, text("event_id"));
        check("dedupe_key", facts.dedupe_key() == Some(dedupe_key.as_str()));
        let hash = names::payload_hash(sent).to_string();
        check("payload_hash", facts.payload_hash() == Some(hash.as_str()));
    }
    wrong
}

/// Inputs that a document was derived from.
#[derive(Clone, Copy, Debug)]
pub struct DocumentOrigin<'a> {
    /// Facts of its delivery; for a copy, those of the first admission under its key.
    pub facts: &'a Object<'a>,
    /// Whether the document is about a copy, whose facts are not stored.
    pub is_copy: bool,
    /// Position on the bus, once admitted.
    pub committed: Option<&'a CommitEvidence>,
    /// Author of the reconciliation, if any.
    pub by: Option<&'a Attribution>,
    /// Issue time.
    pub at: Millis,
}

/// Returns whether a receipt or a quarantine record matches its recomputed form. Governance lines
/// are not checked.
pub fn matches_origin(issued: &Document, origin: &DocumentOrigin<'_>) -> bool {
    let facts = DeliveryFacts::new(origin.facts);
    let (id, reason) = (issued.id.as_str(), issued.reason.as_deref().unwrap_or_default());
    let Ok(Value::Object(stored)) = json::parse(issued.text.as_bytes(), &Limits::default()) else {
        return false;
    };
    // The path of another document's file depends on the layout of that time, so it is taken as it
    // is.
    let reference =
        stored.get("evidence_refs").and_then(|refs| refs.as_array()?.first()?.get("ref"));
    let reference = reference.and_then(Value::as_str);
    let is = |decision: ReceiptDecision| issued.decision == decision.as_str();
    let expected = match (issued.kind, origin.committed) {
        (DocumentKind::Governance, _) => return true,
        (DocumentKind::Quarantine, _) => {
            quarantine::record(facts, id, reason, origin.at, reference)
        }
        (DocumentKind::Receipt, Some(committed)) if is(ReceiptDecision::Admit) => {
            receipt::admit(facts, id, committed, origin.by)
        }
        (DocumentKind::Receipt, Some(committed)) if is(ReceiptDecision::Duplicate) => {
            receipt::duplicate(facts, id, committed, reference)
        }
        (DocumentKind::Receipt, _) if is(ReceiptDecision::Quarantine) => {
            match Reason::parse(reason) {
                Some(reason) => {
                    receipt::quarantine(facts, id, reason, reference.unwrap_or_default())
                }
                None => return false,
            }
        }
        (DocumentKind::Receipt, _) => return false,
    };
    if origin.is_copy {
        let same = |name: &str| match (stored.get(name), expected.get(name)) {
            (Some(stored), Some(expected)) => {
                names::canonical(stored) == names::canonical(expected)
            }
            (stored, expected) => stored.is_none() == expected.is_none(),
        };
        SHARED.into_iter().all(same)
    } else {
        names::canonical(&Value::from(expected)) == issued.text.as_bytes()
    }
}
