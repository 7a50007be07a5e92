//! The skyra contract: validation, identity, content and replies.

use admit_contracts::skyra::{DOOR, Settings, Skyra, nack_code, recompute};
use admit_contracts::{Contract as _, RefusalContext};
use admit_core::{
    Code, Digest, Door, Entry, Event, Millis, Principal, PriorAdmission, RecordedEntry,
    RefusedSubmission, Seq, Submission, Verdict,
};
use bytes::Bytes;
use serde_json::{Value, json};

/// Envelope from the contract's own text.
const SAMPLE: &str = r#"{
  "schema_version": 1,
  "event_id": "evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG",
  "type": "proposal.task",
  "ts": "2026-02-16T23:10:21Z",
  "session_id": "sess_01JZ4J1M9V52K8GSRP8YQ0N2YA",
  "device_id": "pi-livingroom-01",
  "payload": {
    "intent": "server.log_summary",
    "confidence": 0.84,
    "user_text": "summarize last night crash logs"
  }
}"#;

const ID: &str = "evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG";

/// Time of the ACK in the contract's own text.
const NOW: Millis = Millis(1_771_283_422_999);

fn vet(principal: &str, body: &str) -> Entry {
    let submission = Submission {
        principal: Principal::new(principal),
        received_at: Millis(7),
        body: Bytes::copy_from_slice(body.as_bytes()),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    Skyra::default().vet(&Door::new(DOOR), submission)
}

fn event(body: &str) -> Event {
    match vet("pi", body) {
        Entry::Event(event) => event,
        Entry::Refused(refused) => panic!("{body}: {}", refused.message),
    }
}

fn refused(body: &str) -> RefusedSubmission {
    match vet("pi", body) {
        Entry::Event(_) => panic!("{body} is no envelope"),
        Entry::Refused(refused) => refused,
    }
}

fn with(member: &str, value: Value) -> String {
    let mut envelope: Value = serde_json::from_str(SAMPLE).unwrap();
    envelope[member] = value;
    envelope.to_string()
}

#[test]
fn the_contracts_own_envelope_is_an_event_of_the_inbox() {
    let event = event(SAMPLE);
    assert_eq!(event.inbox.as_deref(), Some(ID));
    assert_eq!(event.body, SAMPLE.as_bytes(), "it is kept as it came");
    assert_eq!(event.happened_at, None, "it is never too old");
    assert_eq!(recompute(DOOR, SAMPLE.as_bytes()), Some((event.key, event.digest)));
}

#[test]
fn the_event_id_alone_identifies_an_event() {
    let first = event(SAMPLE);
    let Entry::Event(other) = vet("another-pi", &with("turn_id", json!("t"))) else {
        panic!("it is an envelope")
    };
    assert_eq!(other.key, first.key);
    assert_ne!(other.digest, first.digest);
    assert_ne!(event(&with("event_id", json!("evt_2"))).key, first.key);
}

#[test]
fn formatting_does_not_change_the_content() {
    let first = event(SAMPLE).digest;
    let compact: Value = serde_json::from_str(SAMPLE).unwrap();
    assert_eq!(event(&compact.to_string()).digest, first, "white space and order");
    assert_ne!(event(&SAMPLE.replace("0.84", "0.85")).digest, first);
    assert_ne!(event(&SAMPLE.replace(": 1,", ": 1.0,")).digest, first, "1 is not 1.0");
}

#[test]
fn each_violation_is_named_and_the_id_is_included_if_readable() {
    for member in ["event_id", "type", "ts", "session_id", "device_id", "payload"] {
        for wrong in [json!(null), json!(""), json!(3), json!(false), json!([])] {
            let refused = refused(&with(member, wrong));
            assert_eq!(refused.code, Code::InvalidEnvelope);
            assert!(refused.message.starts_with(member), "{}", refused.message);
            let has_id = refused.facts.get("event_id").is_some();
            assert_eq!(has_id, member != "event_id");
        }
    }
    for ts in ["yesterday", "2026-02-16", "23:10:21Z", "2026-13-16T23:10:21Z"] {
        assert!(refused(&with("ts", json!(ts))).message.starts_with("ts must be"));
    }
    for ts in ["2026-02-16T23:10Z", "2026-02-16 23:10:21Z", "2026-02-16T23:10:21"] {
        assert!(refused(&with("ts", json!(ts))).message.contains("with seconds"));
    }
    for ts in ["2026-02-16T23:10:21.5Z", "2026-02-17T00:10:21+01:00"] {
        event(&with("ts", json!(ts)));
    }
    for id in ["a\u{0}b", "line\nbreak", &"x".repeat(256)] {
        refused(&with("event_id", json!(id)));
    }
    event(&with("event_id", json!("ü".repeat(255))));
    for body in ["", "nonsense", "[]", "7", "\"text\"", "{"] {
        refused(body);
    }
}

#[test]
fn nesting_has_a_limit() {
    let skyra = Skyra::new(Settings { json_depth_max: 3, ..Settings::default() });
    let deep = with("payload", json!({ "a": { "b": { "c": 1 } } }));
    let submission = Submission {
        principal: Principal::new("pi"),
        received_at: Millis(0),
        body: deep.into(),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    assert!(matches!(skyra.vet(&Door::new(DOOR), submission), Entry::Refused(_)));
}

fn render(entry: Entry, verdict: Verdict) -> String {
    let reply =
        Skyra::default().reply_at(&RecordedEntry { entry, verdict, ledger: 1, outcome: None }, NOW);
    format!("{} {}", reply.status, String::from_utf8(reply.body).unwrap())
}

#[test]
fn every_verdict_on_an_event_is_the_same_ack() {
    let ack = r#"200 {"event_id":"evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG","ack_ts":"2026-02-16T23:10:22Z","status":"stored"}"#;
    let first = PriorAdmission {
        seq: Seq(1),
        digest: Digest::of(b""),
        received_at: Millis(0),
        principal: Principal::new("pi"),
        facts: Bytes::from_static(b"{}"),
    };
    for verdict in [
        Verdict::Fresh { seq: Seq(1) },
        Verdict::Duplicate { seq: Seq(2), first: first.clone() },
        Verdict::Conflict { seq: Seq(3), first },
    ] {
        assert_eq!(render(vet("pi", SAMPLE), verdict), ack);
    }
}

#[test]
fn where_ids_are_owned_other_content_of_another_principal_is_nacked() {
    let skyra = Skyra::new(Settings { owned_ids: true, ..Settings::default() });
    let door = Door::new(DOOR);
    let submission = |principal: &str| Submission {
        principal: Principal::new(principal),
        received_at: Millis(0),
        body: SAMPLE.into(),
        headers: Vec::new(),
        nonce: [0; 16],
    };
    let first = PriorAdmission {
        seq: Seq(1),
        digest: Digest::of(b""),
        received_at: Millis(0),
        principal: Principal::new("pi"),
        facts: Bytes::from_static(b"{}"),
    };
    let reply = |principal: &str| {
        let entry = skyra.vet(&door, submission(principal));
        let verdict = Verdict::Conflict { seq: Seq(3), first: first.clone() };
        skyra.reply_at(&RecordedEntry { entry, verdict, ledger: 1, outcome: None }, NOW)
    };
    assert_eq!(reply("pi").status, 200, "the owner gets an ACK");
    let taken = reply("another-pi");
    assert_eq!(taken.status, 409);
    let body: Value = serde_json::from_slice(&taken.body).unwrap();
    assert_eq!((&body["event_id"], &body["status"]), (&json!(ID), &json!("rejected")));
    let error = (&body["error"]["code"], &body["error"]["retryable"]);
    assert_eq!(error, (&json!("event_id_taken"), &json!(false)));
}

#[test]
fn a_nack_carries_the_id_the_reason_and_a_retry_flag() {
    let broken = with("payload", json!(7));
    let nack = render(vet("pi", &broken), Verdict::Refused { seq: Some(Seq(1)) });
    assert_eq!(
        nack,
        r#"400 {"event_id":"evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG","nack_ts":"2026-02-16T23:10:22Z","status":"rejected","error":{"code":"invalid_envelope","message":"invalid envelope: payload must be an object, is integer","retryable":false}}"#
    );
    let about = RefusalContext { body: SAMPLE.as_bytes(), now: NOW };
    let full = Skyra::default().refuse_about(about, Code::LedgerUnavailable, "the disk is full", 7);
    assert_eq!(
        String::from_utf8(full.body).unwrap(),
        r#"{"event_id":"evt_01JZ4J1NZ0A1G8R4J8X3P4H2WG","nack_ts":"2026-02-16T23:10:22Z","status":"rejected","error":{"code":"storage_unavailable","message":"the disk is full","retryable":true}}"#
    );
    let unreadable = RefusalContext { body: b"\xff", now: NOW };
    let bad = Skyra::default().refuse_about(unreadable, Code::InvalidJson, "", 0);
    let bad: Value = serde_json::from_slice(&bad.body).unwrap();
    assert_eq!(
        (&bad["event_id"], &bad["error"]["message"]),
        (&Value::Null, &json!("invalid envelope"))
    );
}

#[test]
fn six_nack_codes_concern_envelopes() {
    let word = |code| nack_code(code);
    assert_eq!(word(Code::InvalidJson), "invalid_envelope");
    assert_eq!(word(Code::EventIdTaken), "event_id_taken");
    assert_eq!(word(Code::BodyTooLarge), "too_large");
    assert_eq!((word(Code::Unauthorized), word(Code::Forbidden)), ("unauthorized", "unauthorized"));
    assert_eq!((word(Code::RateLimited), word(Code::Overloaded)), ("rate_limited", "rate_limited"));
    for code in [Code::LedgerUnavailable, Code::OutcomeUnknown, Code::Draining] {
        assert_eq!(word(code), "storage_unavailable");
    }
}
