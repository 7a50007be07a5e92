//! Facts of a delivery, fixed when it is vetted; every document about it is derived from them.
//!
//! Invariant: every fact can be written to a receipt unchanged. The ledger stores the facts, so a
//! receipt issued years later by a manual reconciliation equals the one that would have been issued
//! at once.

use admit_core::json::{Object, Value};
use admit_core::{Digest, Principal};

use super::IngestionGate;
use super::envelope;

const ENVELOPE: &str = "envelope";
const CLASS: &str = "event_class";
const PAYLOAD_HASH: &str = "payload_hash";
const DEDUPE_KEY: &str = "dedupe_key";
const PROFILE: &str = "partitioning_profile_id";
const PARTITION_KEY: &str = "partition_key";
const REASON: &str = "reason";
const UNSCOPED_ID: &str = "unscoped_id";
const POLICY_REV: &str = "policy_rev";
const ACTOR: &str = "actor";
const PROVENANCE: &str = "provenance";

/// Placeholder for a missing event type.
const NO_TYPE: &str = "unknown";

/// Builder of facts, filled in the order in which vetting determines them.
#[derive(Debug)]
pub(super) struct FactsBuilder(Object<'static>);

impl FactsBuilder {
    /// Facts that every delivery has.
    pub(super) fn of(gate: &IngestionGate, principal: &Principal) -> Self {
        Self(Object::from_iter([
            (POLICY_REV, Value::from(gate.policy_rev().to_object())),
            (ACTOR, gate.settings.auth_mode.actor(principal.as_str()).into()),
            (PROVENANCE, gate.provenance().into()),
        ]))
    }

    /// Adds the envelope without its payload.
    pub(super) fn set_envelope(&mut self, sent: &Object<'_>) {
        self.0.push(ENVELOPE, envelope::without_payload(sent));
    }

    /// Adds the class from the policy, the payload hash and the dedupe key.
    pub(super) fn set_identity(&mut self, class: &str, payload_hash: &Digest, dedupe_key: &str) {
        self.0.push(CLASS, class.to_owned());
        self.0.push(PAYLOAD_HASH, payload_hash.to_string());
        self.0.push(DEDUPE_KEY, dedupe_key.to_owned());
    }

    /// Adds the placement on the bus.
    pub(super) fn set_placement(&mut self, profile_id: &str, partition_key: &str) {
        self.0.push(PROFILE, profile_id.to_owned());
        self.0.push(PARTITION_KEY, partition_key.to_owned());
    }

    /// Adds the reason why it is not admitted.
    pub(super) fn set_reason(&mut self, reason: &str) {
        self.0.push(REASON, reason.to_owned());
    }

    /// Marks the delivery as naming no run that could hold a receipt.
    pub(super) fn set_unscoped_id(&mut self, id: String) {
        self.0.push(UNSCOPED_ID, id);
    }

    /// Calls `read` with the facts collected so far.
    pub(super) fn with_facts<T>(&self, read: impl FnOnce(DeliveryFacts<'_>) -> T) -> T {
        read(DeliveryFacts(&self.0))
    }

    /// Returns the finished facts.
    pub(super) fn into_facts(self) -> Object<'static> {
        self.0
    }
}

/// Read access to stored facts.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryFacts<'f>(&'f Object<'f>);

impl<'f> DeliveryFacts<'f> {
    /// Wraps facts from the ledger.
    pub fn new(facts: &'f Object<'f>) -> Self {
        Self(facts)
    }

    fn fact(&self, name: &str) -> Option<&'f str> {
        self.0.get(name)?.as_str()
    }

    /// Envelope without its payload; `None` if the body held none.
    pub fn envelope(&self) -> Option<&'f Object<'f>> {
        self.0.get(ENVELOPE)?.as_object()
    }

    fn envelope_text(&self, name: &str) -> Option<&'f str> {
        envelope::text(self.envelope()?, name)
    }

    /// Run that the event names, if documents about it belong there.
    pub fn run(&self) -> Option<&'f str> {
        if self.unscoped_id().is_some() { None } else { self.envelope_text("platform_run_id") }
    }

    /// Scenario run, or else the engine run.
    pub fn scenario_run(&self) -> Option<&'f str> {
        self.envelope_text("scenario_run_id").or_else(|| self.envelope_text("run_id"))
    }

    /// Producer's event id.
    pub fn event_id(&self) -> Option<&'f str> {
        self.envelope_text("event_id")
    }

    /// Event type.
    pub fn event_type(&self) -> &'f str {
        self.envelope_text("event_type").unwrap_or(NO_TYPE)
    }

    /// Class assigned by the policy.
    pub fn class(&self) -> Option<&'f str> {
        self.fact(CLASS)
    }

    /// Payload hash, in hex.
    pub fn payload_hash(&self) -> Option<&'f str> {
        self.fact(PAYLOAD_HASH)
    }

    /// Identity of the event.
    pub fn dedupe_key(&self) -> Option<&'f str> {
        self.fact(DEDUPE_KEY)
    }

    /// Partitioning profile and the resulting partition key.
    pub fn partition(&self) -> Option<(&'f str, &'f str)> {
        Some((self.fact(PROFILE)?, self.fact(PARTITION_KEY)?))
    }

    /// Reason of the refusal at vetting.
    pub fn reason(&self) -> Option<&'f str> {
        self.fact(REASON)
    }

    /// Id under which an envelope without a run is stored.
    pub fn unscoped_id(&self) -> Option<&'f str> {
        self.fact(UNSCOPED_ID)
    }

    /// Policy revision that decided.
    pub fn policy_rev(&self) -> Object<'static> {
        self.object(POLICY_REV)
    }

    /// Sender.
    pub fn actor(&self) -> Object<'static> {
        self.object(ACTOR)
    }

    /// Release and configuration that decided.
    pub fn provenance(&self) -> Object<'static> {
        self.object(PROVENANCE)
    }

    /// One field of the provenance.
    pub fn provenance_of(&self, name: &str) -> String {
        let found = self.0.get(PROVENANCE).and_then(|provenance| provenance.get(name)?.as_str());
        found.unwrap_or_default().to_owned()
    }

    fn object(&self, name: &str) -> Object<'static> {
        let found = self.0.get(name).and_then(Value::as_object);
        found.cloned().unwrap_or_default().into_owned()
    }
}
