//! Rules of the intents door, compared with vectors computed by an independent program.

use admit_contracts::Contract as _;
use admit_contracts::intents::{Intents, Settings};
use admit_core::{Door, Entry, Millis, Principal, Submission};
use serde_json::Value;

/// Output of `tests/python/intent_vectors.py`.
const VECTORS: &str = include_str!("../../../../tests/fixtures/intents/vectors.json");

/// Result of vetting a packet: its key, and its plan or the code of its refusal.
fn facts(packet: &str, now: i64, zone: &str) -> Value {
    let settings = Settings { time_zone: zone.to_owned(), ..Settings::default() };
    let submission = Submission {
        principal: Principal::new("p"),
        received_at: Millis(now),
        body: packet.to_owned().into(),
        headers: Vec::new(),
        nonce: [7; 16],
    };
    let entry = Intents::new(settings).unwrap().vet(&Door::new("intents"), submission);
    let Entry::Event(event) = entry else { panic!("{packet} is refused: {entry:?}") };
    let mut text = Vec::new();
    admit_core::json::write_object(&event.facts, &mut text);
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn without_principals_only_json_is_accepted() {
    let intents = Intents::new(Settings::default()).unwrap();
    for kind in ["application/json", "application/json; charset=utf-8"] {
        assert!(intents.accepts_unkeyed(Some(kind)) && intents.accepts(Some(kind)), "{kind}");
    }
    // A web page can send these, or none, to another origin without a preflight request.
    for kind in [None, Some(""), Some("text/plain"), Some("multipart/form-data"), Some("x/y")] {
        assert!(!intents.accepts_unkeyed(kind) && intents.accepts(kind), "{kind:?}");
    }
}

#[test]
fn every_vector_has_the_plan_and_the_action_key_of_the_reference() {
    let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    assert!(vectors.len() > 800, "{} vectors", vectors.len());
    let mut wrong = Vec::new();
    for vector in &vectors {
        let text = |name: &str| vector[name].as_str().unwrap_or_default();
        let found = facts(text("packet"), vector["now_ms"].as_i64().unwrap(), text("zone"));
        let action = &found["plan"]["actions"][0];
        let payload: Value = serde_json::from_str(text("payload")).unwrap_or_default();
        let is_right = found["idempotency_key"] == vector["key"]
            && found["error"]["code"] == vector["code"]
            && action["action"] == vector["action"]
            && action["payload"] == payload
            && action["idempotency_key"] == vector["action_key"];
        if !is_right {
            wrong.push(format!("{vector}\n  is {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} are different:\n{}", wrong.len(), wrong.join("\n"));
}
