//! Turns a submission into an event with its placement on the bus, or into a refusal with its
//! reason.
//!
//! The order is fixed by the contract: envelope, pins, schema policy, name, partition. The ledger
//! decides whether the event is already known. Before an event may be published, its future receipt
//! is built and validated: nothing is published that no receipt could describe.

use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, InitialState, Intent, Key, Millis, OnOtherContent,
    RefusedSubmission, Submission,
};

use super::eb_ref::{EbRef, WireOffsetKind};
use super::enums::Reason;
use super::facts::{DeliveryFacts, FactsBuilder};
use super::receipt::{self, CommitEvidence};
use super::{IngestionGate, envelope, names, policy, publication};
use crate::schema::meter::{Budget, within};

/// Effect kind of these publishes.
pub const KIND: &str = "bus";

/// Reason code for a body that is not JSON.
pub const INVALID_JSON: &str = "INVALID_JSON";

/// Reason why a submission is not an event.
struct EnvelopeRefusal {
    code: Code,
    message: String,
}

/// Result of vetting, besides the submission itself.
struct EnvelopeParts {
    key: Key,
    digest: Digest,
    plan: Object<'static>,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(gate: &IngestionGate, door: &Door, submission: Submission) -> Entry {
    let mut builder = FactsBuilder::of(gate, &submission.principal);
    let vetted = read(gate, door, &submission.body, &mut builder);
    entry(door, submission, builder, vetted)
}

/// See [`Contract::vet_within`](crate::Contract::vet_within).
pub(super) fn vet_within(
    gate: &IngestionGate,
    door: &Door,
    submission: Submission,
    budget: &mut Budget,
) -> Result<Entry, Submission> {
    let mut builder = FactsBuilder::of(gate, &submission.principal);
    match within(budget, || read(gate, door, &submission.body, &mut builder)) {
        Some(vetted) => Ok(entry(door, submission, builder, vetted)),
        None => Err(submission),
    }
}

fn entry(
    door: &Door,
    submission: Submission,
    builder: FactsBuilder,
    vetted: Result<EnvelopeParts, EnvelopeRefusal>,
) -> Entry {
    let Submission { principal, received_at, body, .. } = submission;
    let (door, facts, attempt) = (door.clone(), builder.into_facts(), None);
    match vetted {
        Ok(EnvelopeParts { key, digest, plan }) => Entry::Event(Event {
            door,
            key,
            digest,
            principal,
            received_at,
            happened_at: None,
            body,
            attempt,
            facts,
            on_other_content: OnOtherContent::Conflict,
            projections: Vec::new(),
            effect: Some(Intent { kind: KIND, plan, starts: InitialState::InFlight }),
            record: None,
            inbox: None,
        }),
        Err(EnvelopeRefusal { code, message }) => Entry::Refused(RefusedSubmission {
            door,
            principal,
            received_at,
            body,
            attempt,
            code,
            message,
            facts,
        }),
    }
}

fn read(
    gate: &IngestionGate,
    door: &Door,
    body: &[u8],
    builder: &mut FactsBuilder,
) -> Result<EnvelopeParts, EnvelopeRefusal> {
    // The server has already limited the body size.
    let limits = Limits { depth_max: gate.settings.json_depth_max, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).map_err(|error| {
        builder.set_unscoped_id(names::unscoped_id(body));
        builder.set_reason(INVALID_JSON);
        EnvelopeRefusal {
            code: Code::InvalidJson,
            message: format!("the body is not json: {error}"),
        }
    })?;
    let Value::Object(sent) = &value else {
        builder.set_unscoped_id(names::unscoped_id(body));
        let message = format!("an envelope must be an object, is {}", value.kind());
        return Err(refuse(builder, Reason::EnvelopeInvalid, message));
    };
    builder.set_envelope(sent);
    let violations = envelope::violations(sent);
    let unreceiptable = envelope::unreceiptable(sent);
    if !unreceiptable.is_empty() {
        builder.set_unscoped_id(names::unscoped_id(body));
        let reason =
            if violations.is_empty() { Reason::PinsMissing } else { Reason::EnvelopeInvalid };
        let message = format!("no receipt can be written for it: {}", unreceiptable.join("; "));
        return Err(refuse(builder, reason, message));
    }
    let text = |name| envelope::text(sent, name).unwrap_or_default();
    let class = gate.policy.class_of(text("event_type"));
    let digest = names::payload_hash(sent);
    let dedupe_key = names::dedupe_key(text("platform_run_id"), class, text("event_id"));
    builder.set_identity(class, &digest, &dedupe_key);
    if !violations.is_empty() {
        return Err(refuse(builder, Reason::EnvelopeInvalid, violations.join("; ")));
    }
    let place =
        apply_policy(gate, sent, class).map_err(|(reason, why)| refuse(builder, reason, why))?;
    builder.set_placement(place.profile_id, &place.partition_key);
    let plan = publication::plan_facts(&place, &dedupe_key);
    if let Some(why) = builder.with_facts(|facts| receipt_violation(gate, facts)) {
        return Err(refuse(builder, Reason::InternalError, why));
    }
    Ok(EnvelopeParts { key: names::key(door, &dedupe_key), digest, plan })
}

/// Applies the policy to a valid envelope.
fn apply_policy<'g>(
    gate: &'g IngestionGate,
    sent: &Object<'_>,
    class: &str,
) -> Result<policy::BusPlacement<'g>, (Reason, String)> {
    if matches!(sent.get("scenario_id"), Some(Value::Int(_) | Value::Float(_))) {
        let message = "scenario_id must be a string: no receipt can hold a number there".to_owned();
        return Err((Reason::EnvelopeInvalid, message));
    }
    let pins = gate.policy.required_pins(class).iter().map(String::as_str);
    let mut missing: Vec<&str> = pins.filter(|pin| envelope::is_missing(sent, pin)).collect();
    if missing.is_empty()
        && envelope::is_missing(sent, "scenario_run_id")
        && envelope::is_missing(sent, "run_id")
    {
        // Required for every class: the receipt of an admission names one of them.
        missing.push("scenario_run_id");
    }
    if !missing.is_empty() {
        let message = format!("class {class} requires {}", missing.join(", "));
        return Err((Reason::PinsMissing, message));
    }
    gate.policy.check_payload(sent)?;
    gate.policy.place(class, sent)
}

/// Returns why the receipt of this admission would be invalid, if so.
fn receipt_violation(gate: &IngestionGate, facts: DeliveryFacts<'_>) -> Option<String> {
    let eb_ref = EbRef {
        topic: "draft".to_owned(),
        partition: 0,
        offset: "0".to_owned(),
        offset_kind: WireOffsetKind::FileLine,
        published_at: None,
    };
    let committed = CommitEvidence::at(eb_ref, Millis(0));
    let draft = receipt::admit(facts, names::DRAFT_ID, &committed, None);
    gate.receipts.violation(draft).map(|why| format!("no receipt can be written for it: {why}"))
}

fn refuse(builder: &mut FactsBuilder, reason: Reason, message: String) -> EnvelopeRefusal {
    builder.set_reason(reason.as_str());
    EnvelopeRefusal { code: reason.code(), message }
}

/// Recomputes key and digest of a body admitted in `class`, independent of the current policy.
/// `None` if the body cannot have been admitted.
pub fn recompute(door: &Door, class: &str, body: &[u8]) -> Option<(Key, Digest)> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok()?;
    let sent = value.as_object()?;
    let (run, id) = (envelope::text(sent, "platform_run_id")?, envelope::text(sent, "event_id")?);
    let key = names::key(door, &names::dedupe_key(run, class, id));
    Some((key, names::payload_hash(sent)))
}
