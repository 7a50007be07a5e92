//! What is fixed of a delivery when it is vetted; every document about it is made from this.
//!
//! Invariant: whatever stands here can be put on a receipt as it is. The ledger keeps it, so a
//! receipt that is written years later, by a person who reconciles, is the one that would have been
//! written then.

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

/// Stands for an event type that an envelope does not have.
const NO_TYPE: &str = "unknown";

/// Puts facts together, in the order they become known.
#[derive(Debug)]
pub(super) struct Gathered(Object<'static>);

impl Gathered {
    /// What is known of any delivery.
    pub(super) fn of(gate: &IngestionGate, principal: &Principal) -> Self {
        Self(Object::from_iter([
            (POLICY_REV, Value::from(gate.policy_rev().to_object())),
            (ACTOR, gate.settings.auth_mode.actor(principal.as_str()).into()),
            (PROVENANCE, gate.provenance().into()),
        ]))
    }

    /// The envelope, as far as it is one.
    pub(super) fn envelope(&mut self, sent: &Object<'_>) {
        self.0.push(ENVELOPE, envelope::without_payload(sent));
    }

    /// Its place in the policy, and what it says.
    pub(super) fn named(&mut self, class: &str, payload_hash: &Digest, dedupe_key: &str) {
        self.0.push(CLASS, class.to_owned());
        self.0.push(PAYLOAD_HASH, payload_hash.to_string());
        self.0.push(DEDUPE_KEY, dedupe_key.to_owned());
    }

    /// Where on the bus it belongs.
    pub(super) fn placed(&mut self, profile_id: &str, partition_key: &str) {
        self.0.push(PROFILE, profile_id.to_owned());
        self.0.push(PARTITION_KEY, partition_key.to_owned());
    }

    /// Why it is not admitted.
    pub(super) fn refused(&mut self, reason: &str) {
        self.0.push(REASON, reason.to_owned());
    }

    /// It names no run that could hold a receipt.
    pub(super) fn unscoped(&mut self, id: String) {
        self.0.push(UNSCOPED_ID, id);
    }

    /// Looks at what is known so far.
    pub(super) fn as_facts<T>(&self, look: impl FnOnce(Facts<'_>) -> T) -> T {
        look(Facts(&self.0))
    }

    /// All of it.
    pub(super) fn into_facts(self) -> Object<'static> {
        self.0
    }
}

/// Facts, read back.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f>(&'f Object<'f>);

impl<'f> Facts<'f> {
    /// Facts as a ledger hands them out.
    pub fn new(facts: &'f Object<'f>) -> Self {
        Self(facts)
    }

    fn own(&self, name: &str) -> Option<&'f str> {
        self.0.get(name)?.as_str()
    }

    /// The envelope without its payload; nothing if the body held none.
    pub fn envelope(&self) -> Option<&'f Object<'f>> {
        self.0.get(ENVELOPE)?.as_object()
    }

    fn sent(&self, name: &str) -> Option<&'f str> {
        envelope::text(self.envelope()?, name)
    }

    /// The run that the event names, if documents about it belong there.
    pub fn run(&self) -> Option<&'f str> {
        if self.unscoped_id().is_some() { None } else { self.sent("platform_run_id") }
    }

    /// The scenario run, or the run of the engine where that is all there is.
    pub fn scenario_run(&self) -> Option<&'f str> {
        self.sent("scenario_run_id").or_else(|| self.sent("run_id"))
    }

    /// The producer's id of the event.
    pub fn event_id(&self) -> Option<&'f str> {
        self.sent("event_id")
    }

    /// The type of the event.
    pub fn event_type(&self) -> &'f str {
        self.sent("event_type").unwrap_or(NO_TYPE)
    }

    /// The class that the policy puts it in.
    pub fn class(&self) -> Option<&'f str> {
        self.own(CLASS)
    }

    /// The payload hash, in hex.
    pub fn payload_hash(&self) -> Option<&'f str> {
        self.own(PAYLOAD_HASH)
    }

    /// Who the event is.
    pub fn dedupe_key(&self) -> Option<&'f str> {
        self.own(DEDUPE_KEY)
    }

    /// The partitioning profile, and the key that came out of it.
    pub fn partition(&self) -> Option<(&'f str, &'f str)> {
        Some((self.own(PROFILE)?, self.own(PARTITION_KEY)?))
    }

    /// Why it was refused when it was vetted.
    pub fn reason(&self) -> Option<&'f str> {
        self.own(REASON)
    }

    /// The id under which an envelope without a run is kept.
    pub fn unscoped_id(&self) -> Option<&'f str> {
        self.own(UNSCOPED_ID)
    }

    /// The policy that decided.
    pub fn policy_rev(&self) -> Object<'static> {
        self.object(POLICY_REV)
    }

    /// Who sent it.
    pub fn actor(&self) -> Object<'static> {
        self.object(ACTOR)
    }

    /// Which release and configuration decided.
    pub fn provenance(&self) -> Object<'static> {
        self.object(PROVENANCE)
    }

    /// One of the texts of the provenance.
    pub fn provenance_of(&self, name: &str) -> String {
        let found = self.0.get(PROVENANCE).and_then(|provenance| provenance.get(name)?.as_str());
        found.unwrap_or_default().to_owned()
    }

    fn object(&self, name: &str) -> Object<'static> {
        let found = self.0.get(name).and_then(Value::as_object);
        found.cloned().unwrap_or_default().into_owned()
    }
}
