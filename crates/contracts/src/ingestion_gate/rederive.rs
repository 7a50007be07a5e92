//! What facts and documents must say, made again from a raw body and what became of it.
//!
//! For whoever checks a ledger later. The policy of that day may be gone, so what it decided (class,
//! reason, partition) is taken from the facts; everything else is recomputed.

use admit_core::effect::By;
use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{Issued, IssuedKind, Millis};

use super::facts::Facts;
use super::receipt::Committed;
use super::words::{Decision, Reason};
use super::{INVALID_JSON, actor_id, envelope, names, quarantine, receipt};

/// What a copy has in common with the first of its name; the rest of its documents is its own.
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

/// Which facts of a delivery its body and its sender do not bear out.
pub fn unborne_facts(kept: &Object<'_>, principal: &str, body: &[u8]) -> Vec<&'static str> {
    let facts = Facts::new(kept);
    let mut wrong = Vec::new();
    let mut check = |name: &'static str, holds: bool| {
        if !holds {
            wrong.push(name);
        }
    };
    let actor = facts.actor();
    let said = |name: &str| actor.get(name).and_then(Value::as_str);
    let is_actor = said("principal") == Some(principal)
        && said("actor_id") == Some(actor_id(principal).as_str());
    check("actor", is_actor);
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok();
    // What was nested too deep then was no JSON to the gate of that day.
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

/// What a document was made from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The facts of its delivery; for a copy, those of the first of its name.
    pub facts: &'a Object<'a>,
    /// Whether it is about a copy, of which nothing else is kept.
    pub is_copy: bool,
    /// Where the event is on the bus, once it is admitted.
    pub committed: Option<&'a Committed>,
    /// Who found out that it is.
    pub by: Option<&'a By>,
    /// When the document was issued.
    pub at: Millis,
}

/// Whether a receipt or a record says what it must. Governance lines are not judged.
pub fn is_borne_out(issued: &Issued, origin: &Origin<'_>) -> bool {
    let facts = Facts::new(origin.facts);
    let (id, reason) = (issued.id.as_str(), issued.reason.as_deref().unwrap_or_default());
    let Ok(Value::Object(kept)) = json::parse(issued.text.as_bytes(), &Limits::default()) else {
        return false;
    };
    // A reference is where the file of another document lies, which the layout of that day says.
    let reference = kept.get("evidence_refs").and_then(|refs| refs.as_array()?.first()?.get("ref"));
    let reference = reference.and_then(Value::as_str);
    let is = |decision: Decision| issued.decision == decision.as_str();
    let must = match (issued.kind, origin.committed) {
        (IssuedKind::Governance, _) => return true,
        (IssuedKind::Quarantine, _) => quarantine::record(facts, id, reason, origin.at, reference),
        (IssuedKind::Receipt, Some(committed)) if is(Decision::Admit) => {
            receipt::admit(facts, id, committed, origin.by)
        }
        (IssuedKind::Receipt, Some(committed)) if is(Decision::Duplicate) => {
            receipt::duplicate(facts, id, committed, reference)
        }
        (IssuedKind::Receipt, _) if is(Decision::Quarantine) => match Reason::parse(reason) {
            Some(reason) => receipt::quarantine(facts, id, reason, reference.unwrap_or_default()),
            None => return false,
        },
        (IssuedKind::Receipt, _) => return false,
    };
    if origin.is_copy {
        let same = |name: &str| match (kept.get(name), must.get(name)) {
            (Some(kept), Some(must)) => names::canonical(kept) == names::canonical(must),
            (kept, must) => kept.is_none() == must.is_none(),
        };
        SHARED.into_iter().all(same)
    } else {
        names::canonical(&Value::from(must)) == issued.text.as_bytes()
    }
}
