//! Intents: rules of the contract over HTTP.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::gate::Gate;
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction};
use crate::support::intents::{INTENTS, admit, executing, history, outcome, paste, planning, task};
use crate::support::python;

const VECTORS: &str = include_str!("fixtures/intents/vectors.json");
const PRINCIPALS: &str = r#"[{ name = "paste", keys = ["paste-key-long-enough"] },
    { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;

#[test]
fn the_test_vectors_match_the_current_cpython() {
    let Some(python) = python::program("python") else { return };
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/python/intent_vectors.py");
    let output = Command::new(python).arg(program).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let computed = String::from_utf8(output.stdout).unwrap();
    let different = VECTORS.lines().zip(computed.lines()).find(|(stored, now)| stored != now);
    assert_eq!(different, None, "outdated vectors; run tests/python/intent_vectors.py");
    assert_eq!(VECTORS.lines().count(), computed.lines().count());
}

#[test]
fn with_a_key_a_packet_is_accepted_with_any_content_type() {
    let folder = tempfile::tempdir().unwrap();
    let gate = planning(folder.path()).variable("ADMIT_PRINCIPALS", PRINCIPALS).start();
    let key = ("Authorization", "Bearer paste-key-long-enough");
    for (n, kind) in ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""]
        .into_iter()
        .enumerate()
    {
        let body = task(&format!("typed {n}")).to_string();
        let headers = [key, ("Content-Type", kind)];
        let response = gate.client().send("POST", INTENTS, &headers, body.as_bytes()).unwrap();
        assert_eq!(outcome(&response).1, "planned", "{kind}: {response:?}");
        let broken = gate.client().send("POST", INTENTS, &headers, b"title=x").unwrap();
        assert_eq!((broken.status, &broken.json()["error"]["code"]), (400, &json!("bad_json")));
    }
    gate.stop();
}

#[test]
fn without_principals_cross_origin_content_types_are_refused_with_the_required_header() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let body = task("from a web page").to_string();
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x/y", ""]
    {
        let headers = [("Content-Type", kind)];
        let response = gate.client().send("POST", INTENTS, &headers, body.as_bytes()).unwrap();
        let reply = response.json();
        assert_eq!(
            (response.status, &reply["error"]["code"]),
            (415, &json!("unsupported_media_type"))
        );
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains("Content-Type: application/json"), "{message}");
    }
    let headers = [("Content-Type", "application/json; charset=utf-8")];
    let response = gate.client().send("POST", INTENTS, &headers, body.as_bytes()).unwrap();
    assert_eq!(outcome(&response).1, "planned");
    gate.stop();
}

#[test]
fn a_request_id_of_any_type_is_stored_and_its_header_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    for (n, (id, header)) in [
        (json!(7), "7".to_owned()),
        (json!({"a": [1.5]}), r#"{"a":[1.5]}"#.to_owned()),
        (json!(false), "false".to_owned()),
        (json!("r".repeat(1_000)), "r".repeat(256)),
        (json!("short"), "short".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let mut packet = task("with an id");
        packet["request_id"] = id.clone();
        let response = paste(&mut gate.client(), &packet);
        assert_eq!(response.json()["request_id"], id);
        assert_eq!(response.header("x-request-id"), Some(header.as_str()));
        assert_eq!(stub.calls()[n].body["request_id"], id);
        let copy = paste(&mut gate.client(), &packet);
        assert_eq!(copy.header("x-request-id"), Some(header.as_str()));
        assert_eq!(copy.body, response.body);
    }
    gate.stop();
}

#[test]
fn a_success_without_a_json_object_is_a_success_with_its_body_as_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    for (n, (status, body)) in
        [(200, ""), (204, ""), (200, "<html>done</html>"), (201, "[1]"), (200, r#"{"error":{}}"#)]
            .into_iter()
            .enumerate()
    {
        stub.set_action(StubAction::Reply(status, body));
        let response = paste(&mut gate.client(), &task(&format!("success {n}")));
        let (http, word, receipt) = outcome(&response);
        assert_eq!((http, word.as_str()), (200, "executed"), "{status} {body:?}: {response:?}");
        let intent = gate.client().get(&format!("{INTENTS}/{receipt}"));
        assert_eq!(intent["effect"]["evidence"]["body"], body, "{intent}");
    }
    gate.stop();
}

#[test]
fn an_executed_intent_is_replayed_only_with_again_and_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let (_, _, receipt) = outcome(&paste(&mut gate.client(), &task("once")));
    let path = format!("{INTENTS}/{receipt}/replay");
    let replay_over_http = |body: Value| {
        let response = gate.client().send("POST", &path, &[], body.to_string().as_bytes()).unwrap();
        (response.status, response.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    for body in [json!({}), json!({"again": true}), json!({"reason": " ", "again": true})] {
        assert_eq!(replay_over_http(body), (400, "invalid_request".to_owned()));
    }
    assert_eq!(replay_over_http(json!({"reason": "why not"})), (409, "not_replayable".to_owned()));
    assert_eq!(
        replay_over_http(json!({"reason": "no", "again": false})),
        (409, "not_replayable".to_owned())
    );
    assert_eq!(stub.calls().len(), 1, "a refused replay must not call the gateway");
    assert_eq!(replay_over_http(json!({"reason": "the page was lost", "again": true})).0, 200);
    assert_eq!(stub.calls().len(), 2);

    let listen = gate.address().to_string();
    let replay = |more: &[&str]| {
        let arguments = ["replay", &receipt, "--listen", &listen, "--data", data];
        admit(&[&arguments[..], more].concat())
    };
    let (succeeded, output) = replay(&["--reason", "again"]);
    assert!(!succeeded && output.contains("--again"), "{output}");
    assert!(!replay(&["--again"]).0, "a reason is required");
    let (succeeded, output) = replay(&["--reason", "lost once more", "--again"]);
    assert!(succeeded && output.contains("executed"), "{output}");
    assert_eq!(stub.calls().len(), 3);
    let done = history(&gate, &receipt).into_iter().filter(|what| what == "done").count();
    assert_eq!(done, 3);
    gate.stop();
}

#[test]
fn a_failed_intent_is_replayed_without_again() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Reply(500, "{}"));
    let gate = executing(folder.path(), &stub.url()).start();
    let (_, _, receipt) = outcome(&paste(&mut gate.client(), &task("failed")));
    stub.set_action(GOOD);
    let path = format!("{INTENTS}/{receipt}/replay");
    let replayed = gate.client().send("POST", &path, &[], br#"{"reason":"mended"}"#).unwrap();
    assert_eq!(outcome(&replayed), (200, "executed".to_owned(), receipt));
    gate.stop();
}
