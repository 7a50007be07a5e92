//! Receipts, quarantine and documents of an event, at every door and through every interface.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::events::{match_begin, sample};
use crate::support::gate::{Gate, Launch};
use crate::support::ingest::{PUSH, document, envelope, outcome, push, push_bytes, read_decision};
use crate::support::intents::admit;
use crate::support::machine::text;
use crate::support::sql;

/// Receipts in quarantine, in ledger order.
fn quarantined(gate: &Gate) -> Vec<Value> {
    let page = gate.client().get("/v1/quarantine");
    page["quarantine"].as_array().expect("a list").clone()
}

fn of(gate: &Gate, id: &Value) -> Value {
    gate.client().get(&format!("/v1/receipts/{}", id.as_str().expect("an id")))
}

/// The newest receipt in the ledger.
fn newest(gate: &Gate, verdict: &str) -> Value {
    let page = gate.client().get(&format!("/v1/admissions?verdict={verdict}"));
    page["admissions"].as_array().and_then(|all| all.last()).expect("a receipt")["id"].clone()
}

/// Makes the outcome of the last publish unknown, as a crash between publish and commit does.
fn lose_the_last_outcome(data: &Path) {
    const LAST: &str = "(SELECT max(seq) FROM effect)";
    let script = format!(
        "DELETE FROM issued WHERE of = {LAST};
         UPDATE effect SET state = 'in_flight', evidence = NULL, epoch = 1 WHERE seq = {LAST};
         UPDATE run SET admit = admit - 1, in_flight = in_flight + 1;"
    );
    sql::execute(data, &script);
}

#[test]
fn a_receipt_by_ledger_id_shows_state_decision_and_bus_position() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let (_, first) = read_decision(&push(&mut gate.client(), &envelope(1)));
    let id = newest(&gate, "fresh");
    let receipt = of(&gate, &id);
    assert_eq!((&receipt["state"], &receipt["decision"]), (&json!("ADMITTED"), &json!("ADMIT")));
    assert_eq!(receipt["eb_ref"], first["eb_ref"], "{receipt}");
    assert_eq!(receipt["document"]["id"], first["receipt_id"]);
    gate.stop();

    lose_the_last_outcome(folder.path());
    let gate = Gate::on(folder.path());
    let receipt = of(&gate, &id);
    assert_eq!(receipt["state"], "PUBLISH_AMBIGUOUS", "{receipt}");
    assert_eq!(receipt["decision"], "QUARANTINE", "{receipt}");
    assert_eq!(receipt["eb_ref"], Value::Null);
    assert_eq!(receipt["quarantine"]["stands"], "open", "{receipt}");
    let words = ["receipts", "get", id.as_str().unwrap(), "--json", "--data", text(gate.data())];
    let (ok, shown) = admit(&words);
    assert!(ok, "{shown}");
    assert_eq!(
        serde_json::from_str::<Value>(&shown).unwrap(),
        receipt,
        "the command shows the same"
    );

    let listen = gate.address().to_string();
    let found =
        ["reconcile", "--all", "--found", "--yes", "--reason", "there", "--listen", &listen];
    let (ok, printed) = admit(&found);
    assert!(ok, "{printed}");
    let receipt = of(&gate, &id);
    assert_eq!((&receipt["state"], &receipt["decision"]), (&json!("ADMITTED"), &json!("ADMIT")));
    assert_eq!(receipt["eb_ref"]["offset"], first["eb_ref"]["offset"], "{receipt}");
    assert_eq!(receipt["quarantine"]["stands"], "reconciled", "{receipt}");
    gate.stop();

    // An operator resolves it as absent.
    sql::execute(folder.path(), "UPDATE effect SET state = 'refused', evidence = '{}'");
    let gate = Gate::on(folder.path());
    let receipt = of(&gate, &id);
    assert_eq!((&receipt["state"], &receipt["eb_ref"]), (&json!("RELEASED"), &Value::Null));
    gate.kill();
}

#[test]
fn the_document_of_a_receipt_is_the_issued_one() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let admitted = push(&mut client, &envelope(1)).json();
    let fresh = newest(&gate, "fresh");
    let mut invalid = envelope(2);
    invalid["payload"]["amount"] = "much".into();
    let refused = push(&mut client, &invalid).json();
    let other = {
        let mut other = envelope(1);
        other["payload"]["amount"] = 99.into();
        push(&mut client, &other).json()
    };
    let unscoped = push_bytes(&mut client, b"not json").json();
    let ids: Vec<Value> = quarantined(&gate).iter().map(|one| one["id"].clone()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    let mut cases = vec![(fresh, admitted["receipt"].clone())];
    cases.push((ids[0].clone(), refused["receipt"].clone()));
    cases.push((ids[1].clone(), other["receipt"].clone()));
    let reference = unscoped["quarantine_ref"].as_str().expect("a record");
    cases.push((ids[2].clone(), document(gate.data(), reference)));
    for (id, expected) in cases {
        let id = id.as_str().unwrap();
        let answer = client.send("GET", &format!("/v1/receipts/{id}/document"), &[], b"").unwrap();
        assert_eq!(answer.status, 200, "{id}: {}", answer.json());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert_eq!(answer.json(), expected, "{id}");
        let words = ["receipts", "get", id, "--document", "--data", text(gate.data())];
        let (ok, shown) = admit(&words);
        assert!(ok, "{shown}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), expected, "{id}");
    }
    // A door without documents, and an unknown id.
    client.submit(&sample()).processed();
    let pixel = newest(&gate, "fresh");
    let tag = pixel.as_str().unwrap().rsplit_once('-').unwrap().0;
    for (id, why) in [
        (pixel.as_str().unwrap().to_owned(), "issues no documents"),
        (format!("{tag}-999"), "unknown receipt"),
    ] {
        let answer = client.send("GET", &format!("/v1/receipts/{id}/document"), &[], b"").unwrap();
        let reply = answer.json();
        assert_eq!((answer.status, &reply["error"]["code"]), (404, &json!("not_found")), "{reply}");
        assert!(reply["error"]["message"].as_str().unwrap().contains(why), "{reply}");
    }
    gate.stop();
}

#[test]
fn the_ids_of_quarantine_list_can_be_shown_and_released() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut invalid = envelope(1);
    invalid["ts_utc"] = "yesterday".into();
    let (_, receipt) = read_decision(&push(&mut client, &invalid));
    client.submit_bytes(b"{}").rejected();
    let (data, listen) = (text(gate.data()).to_owned(), gate.address().to_string());
    let (_, listed) = admit(&["quarantine", "list", "--json", "--data", &data]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = |n: usize| listed["quarantine"][n]["id"].as_str().expect("an id");
    let (own, pixel) = (id(0), id(1));
    let (ok, shown) = admit(&["quarantine", "show", own, "--json", "--data", &data]);
    assert!(ok, "{shown}");
    let record: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(record["quarantine_id"], receipt["receipt_id"], "{record}");
    let (ok, shown) = admit(&["quarantine", "show", pixel, "--data", &data]);
    assert!(ok && shown.contains("pixel-control") && shown.contains("--body"), "{shown}");

    let release = |id: &str| {
        let words = ["quarantine", "release", id, "--how", "dismissed", "--reason", "a test"];
        admit(&[&words[..], &["--listen", &listen]].concat())
    };
    let (ok, printed) = release(pixel);
    assert!(!ok && printed.contains("ingestion-gate") && printed.contains("send the"), "{printed}");
    let (ok, printed) = release(own);
    assert!(ok, "{printed}");
    let (ok, printed) = release(own);
    assert!(!ok && printed.contains("not open any more"), "{printed}");
    assert_eq!(of(&gate, &json!(own))["quarantine"]["stands"], "dismissed");
    gate.stop();
}

#[test]
fn a_conflict_has_a_reason_in_every_list() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let other = match_begin(1, "a").set("/envelope/payload/variant", "match.end");
    client.submit(&other).duplicate();
    push(&mut client, &envelope(1));
    let mut other = envelope(1);
    other["payload"]["amount"] = 99.into();
    assert_eq!(outcome(&push(&mut client, &other)), "QUARANTINE PAYLOAD_HASH_MISMATCH");
    let key = [("Idempotency-Key", "one"), ("content-type", "application/json")];
    for body in ["{\"n\":1}", "{\"n\":2}"] {
        client.send("POST", "/v1/events", &key, body.as_bytes()).unwrap();
    }
    let listed = quarantined(&gate);
    let replied = [Value::Null, json!("PAYLOAD_HASH_MISMATCH"), json!("idempotency_key_reused")];
    assert_eq!(listed.len(), replied.len(), "{listed:?}");
    for (conflict, replied) in listed.iter().zip(replied) {
        assert_eq!(conflict["verdict"], "conflict");
        let reason = &conflict["reason"];
        assert_eq!(reason["code"], "idempotency_key_reused", "{conflict}");
        assert_eq!(reason["reply_code"], replied, "{conflict}");
        let message = reason["message"].as_str().expect("a message");
        assert!(message.contains(conflict["first"].as_str().unwrap()), "{message}");
        assert_eq!(&of(&gate, &conflict["id"])["reason"], reason);
    }
    let (_, table) = admit(&["quarantine", "list", "--data", text(gate.data())]);
    assert_eq!(table.matches("idempotency_key_reused").count(), 3, "{table}");
    gate.stop();
}

#[test]
fn a_stored_refusal_has_the_code_that_the_producer_received() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut replied: Vec<Value> = Vec::new();
    let json_type = ("content-type", "application/json");
    for (path, body) in [
        ("/plugin/events", "not json"),
        ("/plugin/events", r#"{"envelope":{}}"#),
        ("/v1/ingress", "not json"),
        ("/v1/ingress", "{}"),
        ("/v1/intents", "not json"),
        ("/v1/intents", "{}"),
        (PUSH, "not json"),
        (PUSH, "{}"),
        ("/v1/events", "not json"),
    ] {
        let key = ("Idempotency-Key", "k");
        // Some contracts reply with problem details.
        let answer = client.send("POST", path, &[json_type, key], body.as_bytes()).unwrap();
        let reply: Value = serde_json::from_slice(&answer.body).expect("json");
        let code = [&reply["error"]["code"], &reply["ack"]["code"], &reply["error"]];
        let code = code.into_iter().find(|code| code.is_string());
        replied.push(code.unwrap_or_else(|| panic!("{path}: {reply}")).clone());
    }
    let mut invalid = envelope(3);
    invalid["payload"]["amount"] = "much".into();
    let (_, receipt) = read_decision(&push(&mut client, &invalid));
    replied.push(receipt["reason_codes"][0].clone());
    let kept: Vec<Value> =
        quarantined(&gate).iter().map(|one| one["reason"]["reply_code"].clone()).collect();
    assert_eq!(kept, replied);
    let (_, table) = admit(&["quarantine", "list", "--data", text(gate.data())]);
    assert!(table.contains("SCHEMA_FAIL (invalid_envelope)"), "{table}");
    gate.stop();
}

#[test]
fn every_error_of_the_ingestion_gate_has_one_shape() {
    type Case<'c> = (&'c str, &'c str, &'c [(&'c str, &'c str)], &'c [u8], u16, &'c str);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("admit.toml");
    let principals = "[[principals]]\nname = \"p\"\nkeys = [\"0123456789abcdef\"]\n\
                      doors = [\"ingestion-gate\"]\n[limits]\nbody_bytes_max = 2000\n";
    std::fs::write(&config, principals).unwrap();
    let gate =
        Launch::on(&folder.path().join("data")).argument("--config").argument(&config).start();
    let key = ("X-IG-Api-Key", "0123456789abcdef");
    let large = vec![b'x'; 3_000];
    let cases: [Case<'_>; 12] = [
        ("GET", PUSH, &[key], b"", 405, "METHOD_NOT_ALLOWED"),
        ("POST", PUSH, &[], b"{}", 401, "UNAUTHORIZED"),
        ("POST", PUSH, &[key], b"{", 400, "INVALID_JSON"),
        ("POST", PUSH, &[key], b"{}", 422, "ENVELOPE_INVALID"),
        ("POST", PUSH, &[key], &large, 413, "PAYLOAD_TOO_LARGE"),
        ("POST", PUSH, &[key, ("content-encoding", "gzip")], b"x", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("GET", "/v1/ops/lookup", &[key], b"", 400, "MISSING_QUERY"),
        ("GET", "/v1/ops/lookup?event_id=x", &[], b"", 401, "UNAUTHORIZED"),
        ("POST", "/v1/ops/lookup", &[key], b"", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/v1/ops/lookup", &[], b"", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/ops/health", &[], b"", 401, "UNAUTHORIZED"),
        ("POST", "/v1/ops/health", &[key], b"{}", 405, "METHOD_NOT_ALLOWED"),
    ];
    for (method, path, headers, body, status, code) in cases {
        let answer = gate.client().send(method, path, headers, body).unwrap();
        let reply = answer.json();
        assert_eq!((answer.status, &reply["error"]), (status, &json!(code)), "{method} {path}");
        assert!(reply["detail"].is_string() && reply["retryable"].is_boolean(), "{path}: {reply}");
    }
    gate.stop();
}
