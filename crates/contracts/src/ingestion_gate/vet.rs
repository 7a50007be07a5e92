//! Turns a submission into an event with its place on the bus, or into a refusal with its reason.
//!
//! The order is the contract's: envelope, pins, schema policy, name, partition. Whether the event is
//! known already is for the ledger to say. Before an event may be published, the receipt it would
//! get is written and checked: nothing goes on the bus that no receipt could tell of.

use admit_core::json::{self, DEPTH_CEILING, Limits, Object, Value};
use admit_core::{
    Code, Digest, Door, Entry, Event, Intent, Key, Millis, OnOtherContent, Refused, Starts,
    Submission,
};

use super::eb_ref::{EbRef, OffsetKind};
use super::facts::{Facts, Gathered};
use super::receipt::{self, Committed};
use super::words::Reason;
use super::{IngestionGate, envelope, names, policy, publication};
use crate::schema::meter::{Budget, within};

/// Names the performer of these effects.
pub const KIND: &str = "bus";

/// The word for a body that is not JSON.
pub const INVALID_JSON: &str = "INVALID_JSON";

/// Why a submission is not an event.
struct Refusal {
    code: Code,
    message: String,
}

/// What an event is made of, beside what the submission already holds.
struct Vetted {
    key: Key,
    digest: Digest,
    plan: Object<'static>,
}

/// See [`Contract::vet`](crate::Contract::vet).
pub(super) fn vet(gate: &IngestionGate, door: &Door, submission: Submission) -> Entry {
    let mut gathered = Gathered::of(gate, &submission.principal);
    let vetted = read(gate, door, &submission.body, &mut gathered);
    entry(door, submission, gathered, vetted)
}

/// See [`Contract::vet_within`](crate::Contract::vet_within).
pub(super) fn vet_within(
    gate: &IngestionGate,
    door: &Door,
    submission: Submission,
    budget: &mut Budget,
) -> Result<Entry, Submission> {
    let mut gathered = Gathered::of(gate, &submission.principal);
    match within(budget, || read(gate, door, &submission.body, &mut gathered)) {
        Some(vetted) => Ok(entry(door, submission, gathered, vetted)),
        None => Err(submission),
    }
}

fn entry(
    door: &Door,
    submission: Submission,
    gathered: Gathered,
    vetted: Result<Vetted, Refusal>,
) -> Entry {
    let Submission { principal, received_at, body, .. } = submission;
    let (door, facts, attempt) = (door.clone(), gathered.into_facts(), None);
    match vetted {
        Ok(Vetted { key, digest, plan }) => Entry::Event(Event {
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
            effect: Some(Intent { kind: KIND, plan, starts: Starts::InFlight }),
            record: None,
            inbox: None,
        }),
        Err(Refusal { code, message }) => Entry::Refused(Refused {
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
    gathered: &mut Gathered,
) -> Result<Vetted, Refusal> {
    // The gate has bounded the body before it got here.
    let limits = Limits { depth_max: gate.settings.json_depth_max, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).map_err(|error| {
        gathered.unscoped(names::unscoped_id(body));
        gathered.refused(INVALID_JSON);
        Refusal { code: Code::InvalidJson, message: format!("the body is not json: {error}") }
    })?;
    let Value::Object(sent) = &value else {
        gathered.unscoped(names::unscoped_id(body));
        let message = format!("an envelope is an object, this is {}", value.kind());
        return Err(refuse(gathered, Reason::EnvelopeInvalid, message));
    };
    gathered.envelope(sent);
    let violations = envelope::violations(sent);
    let unreceiptable = envelope::unreceiptable(sent);
    if !unreceiptable.is_empty() {
        gathered.unscoped(names::unscoped_id(body));
        let reason =
            if violations.is_empty() { Reason::PinsMissing } else { Reason::EnvelopeInvalid };
        let message = format!("no receipt can be written for it: {}", unreceiptable.join("; "));
        return Err(refuse(gathered, reason, message));
    }
    let text = |name| envelope::text(sent, name).unwrap_or_default();
    let class = gate.policy.class_of(text("event_type"));
    let digest = names::payload_hash(sent);
    let dedupe_key = names::dedupe_key(text("platform_run_id"), class, text("event_id"));
    gathered.named(class, &digest, &dedupe_key);
    if !violations.is_empty() {
        return Err(refuse(gathered, Reason::EnvelopeInvalid, violations.join("; ")));
    }
    let place = judge(gate, sent, class).map_err(|(reason, why)| refuse(gathered, reason, why))?;
    gathered.placed(place.profile_id, &place.partition_key);
    let plan = publication::planned(&place, &dedupe_key);
    if let Some(why) = gathered.as_facts(|facts| no_receipt(gate, facts)) {
        return Err(refuse(gathered, Reason::InternalError, why));
    }
    Ok(Vetted { key: names::key(door, &dedupe_key), digest, plan })
}

/// Everything the policy has to say about a sound envelope.
fn judge<'g>(
    gate: &'g IngestionGate,
    sent: &Object<'_>,
    class: &str,
) -> Result<policy::Place<'g>, (Reason, String)> {
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
        // Whatever the class wants: the receipt of an admission names one of them.
        missing.push("scenario_run_id");
    }
    if !missing.is_empty() {
        let message = format!("class {class} wants {}", missing.join(", "));
        return Err((Reason::PinsMissing, message));
    }
    gate.policy.check_payload(sent)?;
    gate.policy.place(class, sent)
}

/// Why the receipt of this admission could not be written, if that is so.
fn no_receipt(gate: &IngestionGate, facts: Facts<'_>) -> Option<String> {
    let eb_ref = EbRef {
        topic: "draft".to_owned(),
        partition: 0,
        offset: "0".to_owned(),
        offset_kind: OffsetKind::FileLine,
        published_at: None,
    };
    let committed = Committed::at(eb_ref, Millis(0));
    let draft = receipt::admit(facts, names::DRAFT_ID, &committed, None);
    gate.receipts.violation(draft).map(|why| format!("no receipt can be written for it: {why}"))
}

fn refuse(gathered: &mut Gathered, reason: Reason, message: String) -> Refusal {
    gathered.refused(reason.as_str());
    Refusal { code: reason.code(), message }
}

/// Key and digest of a body that was admitted in `class`, whatever the policy says about it today.
/// `None` if it cannot have been.
pub fn recompute(door: &Door, class: &str, body: &[u8]) -> Option<(Key, Digest)> {
    let limits = Limits { depth_max: DEPTH_CEILING, bytes_max: usize::MAX };
    let value = json::parse(body, &limits).ok()?;
    let sent = value.as_object()?;
    let (run, id) = (envelope::text(sent, "platform_run_id")?, envelope::text(sent, "event_id")?);
    let key = names::key(door, &names::dedupe_key(run, class, id));
    Some((key, names::payload_hash(sent)))
}
