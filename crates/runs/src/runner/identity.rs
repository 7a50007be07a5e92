//! Derived identifiers of the runner.

use admit_core::hash::sha256_hex;
use admit_core::json::{self, Form, Object, Value};

/// Run id of a key; also the scenario run id.
pub fn run_id(run_equivalence_key: &str) -> String {
    short_hash(32, &format!("sr_run|{run_equivalence_key}"))
}

/// Id of an attempt to create a run's pack; attempts count from 1.
pub fn attempt_id(run_id: &str, attempt: u32) -> String {
    short_hash(32, &format!("sr_attempt|{run_id}|{attempt}"))
}

/// Id of a set of scenarios, independent of their order.
pub fn scenario_set_id(scenarios: &[String]) -> String {
    let mut sorted: Vec<&str> = scenarios.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    format!("scnset_{}", short_hash(16, &sorted.join("|")))
}

/// Message id of a run's READY. Derived from the evidence, so that a re-emit has the same id.
pub fn ready_message_id(platform_run_id: &str, scenario_run_id: &str, bundle_hash: &str) -> String {
    sha256_hex(format!("ready|{platform_run_id}|{scenario_run_id}|{bundle_hash}").as_bytes())
}

/// Message id of a run that ended without becoming ready.
pub fn terminal_key(run_id: &str, state: &str, status: &Object<'_>) -> String {
    let status = sha256_hex(&compact(status));
    sha256_hex(format!("terminal|{run_id}|{state}|{status}").as_bytes())
}

/// Id of an event in the record of a run; equal events have equal ids.
pub fn record_event_id(event_kind: &str, run_id: &str, details: &Object<'_>) -> String {
    spaced_hash(Object::from_iter([
        ("event_kind", Value::from(event_kind)),
        ("run_id", run_id.into()),
        ("details", details.clone().into()),
    ]))
}

/// Hash of an object in the spaced form.
pub fn spaced_hash(object: Object<'_>) -> String {
    sha256_hex(&spaced(object))
}

/// Hash of an object in the compact form.
pub fn compact_hash(object: &Object<'_>) -> String {
    sha256_hex(&compact(object))
}

fn compact(object: &Object<'_>) -> Vec<u8> {
    json::canonical(&Value::from(object.clone()), Form::Ascii)
        .expect("hashed objects have only finite numbers")
}

/// Canonical form with a space after every comma and colon, as some hashes of the reference system
/// require.
fn spaced(object: Object<'_>) -> Vec<u8> {
    let compact = compact(&object);
    let mut out = Vec::with_capacity(compact.len() + compact.len() / 8);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in compact {
        out.push(byte);
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' if !is_text => out.push(b' '),
            _ => {}
        }
    }
    out
}

fn short_hash(digits: usize, text: &str) -> String {
    let mut hash = sha256_hex(text.as_bytes());
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use admit_core::json::Limits;

    use super::*;

    const VECTORS: &str = include_str!("../../tests/fixtures/vectors.json");

    fn golden(pointer: &str) -> String {
        let vectors = json::parse(VECTORS.as_bytes(), &Limits::default()).expect("vectors");
        vectors.pointer(pointer).and_then(Value::as_str).expect(pointer).to_owned()
    }

    #[test]
    fn the_golden_identities_hold() {
        let run = run_id(&golden("/sr/run_equivalence_key"));
        assert_eq!(run, golden("/sr/run_id"));
        let set = ["stress", "baseline", "stress"].map(str::to_owned);
        assert_eq!(scenario_set_id(&set), golden("/sr/scenario_set_baseline_stress"));
        let platform = golden("/wsp/platform_run_id");
        let message = ready_message_id(&platform, &run, &golden("/sr/bundle_hash"));
        assert_eq!(message, golden("/sr/ready_message_id"));
    }

    #[test]
    fn the_spaced_form_has_spaces_between_values_and_none_inside_texts() {
        let object = Object::from_iter([
            ("b", Value::from("a:b,c\\\"d,e")),
            ("a", vec![1, 2].into()),
            ("é", Value::Null),
        ]);
        let text = String::from_utf8(spaced(object)).expect("ascii");
        assert_eq!(text, r#"{"a": [1, 2], "b": "a:b,c\\\"d,e", "\u00e9": null}"#);
    }

    #[test]
    fn attempts_and_terminal_states_have_distinct_ids() {
        assert_ne!(attempt_id("r", 1), attempt_id("r", 2));
        assert_eq!(attempt_id("r", 1).len(), 32);
        let status = Object::from_iter([("state", Value::from("FAILED"))]);
        let other = Object::from_iter([("state", Value::from("QUARANTINED"))]);
        assert_ne!(terminal_key("r", "FAILED", &status), terminal_key("r", "FAILED", &other));
        let details = Object::new();
        assert_ne!(record_event_id("A", "r", &details), record_event_id("B", "r", &details));
    }
}
