//! Every name the runner derives, by formula.

use admit_core::hash::sha256_hex;
use admit_core::json::{self, Form, Object, Value};

/// The id of the run that a key stands for; it is the scenario run's id too.
pub fn run_id(run_equivalence_key: &str) -> String {
    first(32, &format!("sr_run|{run_equivalence_key}"))
}

/// The id of the nth attempt to make a run's pack, from 1.
pub fn attempt_id(run_id: &str, attempt: u32) -> String {
    first(32, &format!("sr_attempt|{run_id}|{attempt}"))
}

/// The id of a set of scenarios, whatever their order.
pub fn scenario_set_id(scenarios: &[String]) -> String {
    let mut sorted: Vec<&str> = scenarios.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    format!("scnset_{}", first(16, &sorted.join("|")))
}

/// The id of the READY of a run. It hangs on what the run is made of, so that saying it again says
/// the same.
pub fn ready_message_id(platform_run_id: &str, scenario_run_id: &str, bundle_hash: &str) -> String {
    sha256_hex(format!("ready|{platform_run_id}|{scenario_run_id}|{bundle_hash}").as_bytes())
}

/// The id of the message that a run has ended otherwise.
pub fn terminal_key(run_id: &str, state: &str, status: &Object<'_>) -> String {
    let status = sha256_hex(&compact(status));
    sha256_hex(format!("terminal|{run_id}|{state}|{status}").as_bytes())
}

/// The id of an event in the record of a run: the same event is the same id.
pub fn record_event_id(event_kind: &str, run_id: &str, details: &Object<'_>) -> String {
    spaced_hash(Object::from_iter([
        ("event_kind", Value::from(event_kind)),
        ("run_id", run_id.into()),
        ("details", details.clone().into()),
    ]))
}

/// The hash of an object in the spaced form.
pub fn spaced_hash(object: Object<'_>) -> String {
    sha256_hex(&spaced(object))
}

/// The hash of an object in the compact form.
pub fn compact_hash(object: &Object<'_>) -> String {
    sha256_hex(&compact(object))
}

fn compact(object: &Object<'_>) -> Vec<u8> {
    json::canonical(&Value::from(object.clone()), Form::Ascii)
        .expect("what the runner hashes has no number that is not finite")
}

/// The canonical form with a space after every comma and colon, as some of the reference's hashes
/// are taken over.
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

fn first(digits: usize, text: &str) -> String {
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
    fn the_spaced_form_has_spaces_between_things_and_none_inside_texts() {
        let object = Object::from_iter([
            ("b", Value::from("a:b,c\\\"d,e")),
            ("a", vec![1, 2].into()),
            ("é", Value::Null),
        ]);
        let written = String::from_utf8(spaced(object)).expect("ascii");
        assert_eq!(written, r#"{"a": [1, 2], "b": "a:b,c\\\"d,e", "\u00e9": null}"#);
    }

    #[test]
    fn attempts_and_ends_have_names_of_their_own() {
        assert_ne!(attempt_id("r", 1), attempt_id("r", 2));
        assert_eq!(attempt_id("r", 1).len(), 32);
        let status = Object::from_iter([("state", Value::from("FAILED"))]);
        let other = Object::from_iter([("state", Value::from("QUARANTINED"))]);
        assert_ne!(terminal_key("r", "FAILED", &status), terminal_key("r", "FAILED", &other));
        let details = Object::new();
        assert_ne!(record_event_id("A", "r", &details), record_event_id("B", "r", &details));
    }
}
