//! Derived names and ids of this contract. All of them are SHA-256 in lower-case hex.

use admit_core::hash::{hex, sha256_hex};
use admit_core::json::{self, Form, Object, Value};
use admit_core::{Digest, Door, Key};

use super::enums::ReceiptDecision;

/// `H(platform_run_id:event_class:event_id)`: the identity of an event.
pub fn dedupe_key(run: &str, class: &str, event_id: &str) -> String {
    sha256_hex(format!("{run}:{class}:{event_id}").as_bytes())
}

/// Returns the ledger key of the event with this dedupe key.
pub fn key(door: &Door, dedupe_key: &str) -> Key {
    Key::derive(door.as_str(), &[dedupe_key.as_bytes()])
}

/// Returns the canonical JSON form of this contract.
pub fn canonical(value: &Value<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    canonical_into(value, &mut out);
    out
}

fn canonical_into(value: &Value<'_>, out: &mut Vec<u8>) {
    json::canonical_into(value, Form::Ascii, out)
        .expect("what was read from json can be written in this form");
}

/// `H(C({event_type, schema_version, payload}))`: the content of an event. Times, producer, trace
/// and pins may differ between copies.
pub fn payload_hash(envelope: &Object<'_>) -> Digest {
    let mut out = Vec::with_capacity(1024);
    let mut before = b'{';
    // In the key order of the canonical form.
    for name in ["event_type", "payload", "schema_version"] {
        out.push(before);
        before = b',';
        canonical_into(&Value::from(name), &mut out);
        out.push(b':');
        canonical_into(envelope.get(name).unwrap_or(&Value::Null), &mut out);
    }
    out.push(b'}');
    Digest::of(&out)
}

/// `H(str(value))`: the partition key of an event.
pub fn partition_key(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => sha256_hex(text.as_bytes()),
        Value::Bool(value) => sha256_hex(if *value { b"True" } else { b"False" }),
        Value::Null | Value::Int(_) | Value::Float(_) | Value::Array(_) | Value::Object(_) => {
            sha256_hex(&canonical(value))
        }
    }
}

/// Identity of an artifact within its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtifactName<'a> {
    /// Decision.
    pub decision: ReceiptDecision,
    /// Event id.
    pub event_id: &'a str,
    /// Event class.
    pub class: &'a str,
    /// Reason code; empty for an admission.
    pub reason: &'a str,
    /// Payload hash, in hex.
    pub payload_hash: &'a str,
}

impl ArtifactName<'_> {
    /// First 32 hex digits of `H(decision:event_id)`; the reference implementation distinguishes no
    /// more.
    pub fn short(&self) -> String {
        let Self { decision, event_id, .. } = self;
        first_32(&format!("{}:{event_id}", decision.as_str()))
    }

    /// First 32 hex digits of `H(decision:event_id:class:reason:payload_hash)`. Two artifacts are
    /// the same exactly if these are equal.
    pub fn long(&self) -> String {
        let Self { decision, event_id, class, reason, payload_hash } = self;
        first_32(&format!("{}:{event_id}:{class}:{reason}:{payload_hash}", decision.as_str()))
    }

    /// Returns the id of this artifact: the short name, or the long one if another artifact of the
    /// run already has the short one. `holder` is the [long](Self::long) name of the artifact with
    /// the short name.
    pub fn id(&self, holder: Option<&str>) -> String {
        let long = self.long();
        if holder.is_none_or(|holder| holder == long) { self.short() } else { long }
    }
}

/// Id of the quarantine record of a body that names no run; equal bodies have equal ids.
pub fn unscoped_id(body: &[u8]) -> String {
    first_32(&format!("QUARANTINE:{}", sha256_hex(body)))
}

/// Id of the quarantine record of an event refused by a closed run. The record is stored outside of
/// every run, so the id includes the run through the dedupe key.
pub fn outside_id(dedupe_key: &str, reason: &str, payload_hash: &str) -> String {
    first_32(&format!("QUARANTINE:{dedupe_key}:{reason}:{payload_hash}"))
}

/// `H(family|run|scenario run or nothing|component|dedupe key)`.
pub fn governance_event_id(
    family: &str,
    run: &str,
    scenario_run: Option<&str>,
    component: &str,
    dedupe_key: &str,
) -> String {
    let scenario_run = scenario_run.unwrap_or_default();
    sha256_hex(format!("{family}|{run}|{scenario_run}|{component}|{dedupe_key}").as_bytes())
}

/// `H(C([{path, content: C(data)} …]))`, each path once, sorted as text.
pub fn policy_digest<'a>(files: impl IntoIterator<Item = (&'a str, &'a Value<'a>)>) -> String {
    let mut files: Vec<(&str, &Value<'_>)> = files.into_iter().collect();
    files.sort_by_key(|(path, _)| *path);
    files.dedup_by_key(|(path, _)| *path);
    let listed: Value<'_> = files
        .into_iter()
        .map(|(path, data)| {
            let content = String::from_utf8(canonical(data)).expect("this form is ascii");
            Object::from_iter([("path", Value::from(path)), ("content", content.into())])
        })
        .collect();
    sha256_hex(&canonical(&listed))
}

/// Placeholder id of a receipt that is built only for validation.
pub(super) const DRAFT_ID: &str = "00000000000000000000000000000000";

fn first_32(text: &str) -> String {
    hex(&Digest::of(text.as_bytes()).as_bytes()[..16])
}
