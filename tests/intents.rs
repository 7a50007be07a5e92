//! Intents: stored before execution, executed once, with the same envelope for every copy.

use std::thread;

use admit_core::hash::sha256_hex;
use serde_json::json;

use crate::support::gate::Gate;
use crate::support::gateway_stub::{GOOD, GatewayStub, StubAction, unused_url};
use crate::support::intents::{
    INTENTS, admit, executing, history, outcome, paste, paste_text, planning, task,
};
use crate::support::ledger::LedgerLock;
use crate::support::{TIMEOUT, sql, wait_for};

#[test]
fn equivalent_json_texts_are_one_intent_and_different_numbers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let texts = [
        r#"{"kind":"intent","intent_type":"create_task","fields":{"title":"A é"}}"#,
        r#"{ "fields" : { "title" : "A é" }, "intent_type":"create_task", "kind":"intent" }"#,
        r#"{"kind":"intent","intent_type":"create_task","fields":{"title":"\u0041 \u00e9"}}"#,
        r#"{"kind":"x","intent_type":"create_task","kind":"intent","fields":{"title":"A é"}}"#,
    ];
    let first = paste_text(&mut client, texts[0]).json();
    let canonical = r#"{"fields":{"title":"A é"},"intent_type":"create_task","kind":"intent"}"#;
    assert_eq!(first["idempotency_key"], sha256_hex(canonical.as_bytes()));
    for text in texts {
        assert_eq!(paste_text(&mut client, text).json(), first, "{text}");
    }
    let number = |n: &str| {
        format!(
            r#"{{"kind":"intent","intent_type":"create_task","fields":{{"title":"t"}},"x":{n}}}"#
        )
    };
    let one = paste_text(&mut client, &number("1")).json();
    let float = paste_text(&mut client, &number("1.0")).json();
    assert_ne!(one["idempotency_key"], float["idempotency_key"]);
    assert_ne!(one["receipt_id"], float["receipt_id"]);
    gate.stop();
}

#[test]
fn a_valid_packet_is_stored_and_executed_once_and_a_copy_gets_the_same_envelope() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client().with("X-Actor-Id", "ada");
    let mut packet = task("write tests");
    packet["request_id"] = json!("req-7");
    let response = paste(&mut client, &packet);
    let envelope = response.json();
    assert_eq!((response.status, &envelope["status"]), (200, &json!("executed")), "{envelope}");
    assert_eq!(envelope["details"]["notion_task_id"], "page-1");
    assert!(envelope.get("error").is_none(), "an executed intent must not have an error");
    assert!(envelope["intent_id"].as_str().unwrap().starts_with("int_"));
    assert!(envelope["correlation_id"].as_str().unwrap().starts_with("cor_"));
    for (header, member) in [
        ("x-intent-id", "intent_id"),
        ("x-correlation-id", "correlation_id"),
        ("x-request-id", "request_id"),
        ("x-trace-id", "trace_id"),
    ] {
        assert_eq!(response.header(header), envelope[member].as_str(), "{header}");
    }
    let calls = stub.calls();
    let [call] = calls.as_slice() else { panic!("expected one call: {calls:?}") };
    assert_eq!(call.path, "/v1/notion/tasks/create");
    assert_eq!(call.header("authorization"), Some("Bearer gateway-token"));
    assert_eq!(call.header("x-trace-id"), envelope["trace_id"].as_str());
    assert_eq!(call.header("idempotency-key"), call.body["idempotency_key"].as_str());
    assert_eq!(call.body["idempotency_key"], envelope["plan"]["actions"][0]["idempotency_key"]);
    assert_eq!((&call.body["request_id"], &call.body["actor"]), (&json!("req-7"), &json!("ada")));
    assert_eq!(call.body["payload"], json!({ "task": { "title": "write tests" } }));

    let query = "SELECT count(*) FROM intents WHERE status = 'executed'";
    let rows: i64 = sql::query_one(folder.path(), query);
    assert_eq!(rows, 1, "the row must be committed before the reply");
    let copy = paste(&mut client, &packet);
    assert_eq!(copy.body, response.body, "a copy must get the original envelope");
    assert_ne!(
        copy.header("x-trace-id"),
        response.header("x-trace-id"),
        "a copy needs its own trace id"
    );
    assert_eq!(stub.calls().len(), 1);
    let receipt = envelope["receipt_id"].as_str().unwrap();
    assert_eq!(history(&gate, receipt), ["received", "planned", "intended", "in_flight", "done"]);
    gate.stop();
}

#[test]
fn sixty_four_concurrent_copies_make_one_call_and_get_equal_envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url()).start();
    let responses: Vec<Vec<u8>> = thread::scope(|scope| {
        let pasting: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| paste(&mut gate.client(), &task("once")).body))
            .collect();
        stub.wait_for_calls(1);
        stub.set_action(GOOD);
        pasting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(responses.iter().all(|response| *response == responses[0]), "envelopes differ");
    assert!(String::from_utf8_lossy(&responses[0]).contains(r#""status":"executed""#));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn an_invalid_packet_is_refused_with_its_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    for (text, code) in [
        ("{", "bad_json"),
        (r#"{"kind":"intent","x":NaN}"#, "bad_json"),
        (r#"{"kind":"intent","x":1e400}"#, "bad_json"),
        (r#"{"kind":"intent","x":"\ud800"}"#, "bad_json"),
        ("[]", "schema_validation_failed"),
        ("{}", "schema_validation_failed"),
        (r#"{"kind":"intent","confidence":[1]}"#, "schema_validation_failed"),
        (r#"{"kind":"intent","schema_version":"v2"}"#, "unsupported_schema_version"),
        (r#"{"kind":"intent","schema_version":1}"#, "unsupported_schema_version"),
    ] {
        let response = paste_text(&mut client, text);
        let reply = response.json();
        assert_eq!(
            (response.status, &reply["error"]["code"]),
            (400, &json!(code)),
            "{text}: {reply}"
        );
        assert!(reply.get("receipt_id").is_none());
        let errors = reply["error"]["details"]["errors"].as_array().map_or(0, Vec::len);
        assert_eq!(errors > 0, code == "schema_validation_failed", "{reply}");
    }
    assert_eq!(stub.calls().len(), 0);
    gate.stop();
}

#[test]
fn a_packet_refused_by_policy_is_stored_and_a_copy_gets_the_same_reply() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (packet, code) in [
        (json!({ "kind": "intent", "confidence": 0.5 }), "POLICY_LOW_CONFIDENCE"),
        (json!({ "kind": "intent", "intent_type": "create_task" }), "VALIDATION_ERROR"),
        (json!({ "kind": "intent", "intent_type": "update_task" }), "POLICY_MISSING_TASK_ID"),
        (json!({ "kind": "intent", "intent_type": "sing" }), "UNSUPPORTED_INTENT_TYPE"),
    ] {
        let response = paste(&mut client, &packet);
        let reply = response.json();
        assert_eq!((response.status, &reply["status"]), (422, &json!("failed")), "{reply}");
        assert_eq!(reply["error"]["code"], code);
        let copy = paste(&mut client, &packet);
        assert_eq!((copy.status, copy.body), (422, response.body));
        let receipt = reply["receipt_id"].as_str().unwrap();
        assert_eq!(history(&gate, receipt), ["received", "failed"]);
        let path = format!("{INTENTS}/{receipt}/replay");
        let replay = client.send("POST", &path, &[], br#"{"reason":"again"}"#).unwrap();
        assert_eq!(
            (replay.status, &replay.json()["error"]["code"]),
            (409, &json!("not_replayable"))
        );
    }
    gate.stop();
}

#[test]
fn every_gateway_outcome_is_reported_and_the_call_never_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    let table = [
        (StubAction::Reply(500, r#"{"error":{"code":"boom"}}"#), "gateway_refused", json!(500)),
        (StubAction::Reply(429, "slow down"), "gateway_refused", json!(429)),
        (StubAction::Reply(302, ""), "gateway_refused", json!(302)),
        (StubAction::Reply(200, r#"{"error":{"code":"no"}}"#), "gateway_refused", json!(200)),
        (StubAction::Reply(200, r#"{"status":"error"}"#), "gateway_refused", json!(200)),
        (StubAction::CloseMidReply, "outcome_unknown", json!(200)),
        (StubAction::Close, "outcome_unknown", json!(null)),
    ];
    for (n, (action, code, status_code)) in table.into_iter().enumerate() {
        stub.set_action(action.clone());
        let packet = task(&format!("case {n}"));
        let response = paste(&mut client, &packet);
        let reply = response.json();
        assert_eq!(
            (response.status, &reply["status"]),
            (502, &json!("failed")),
            "{action:?}: {reply}"
        );
        assert_eq!(reply["error"]["code"], code, "{action:?}");
        assert_eq!(reply["error"]["details"]["status_code"], status_code, "{action:?}");
        stub.set_action(GOOD);
        let copy = paste(&mut client, &packet);
        assert_eq!(
            (copy.status, copy.body),
            (502, response.body),
            "{action:?}: a failed intent must stay failed"
        );
        assert_eq!(stub.calls().len(), n + 1, "{action:?}: expected one call");
    }
    gate.stop();
}

#[test]
fn an_unreachable_gateway_is_reported_as_not_called() {
    let folder = tempfile::tempdir().unwrap();
    let gate = executing(folder.path(), &unused_url()).start();
    let response = paste(&mut gate.client(), &task("t"));
    let reply = response.json();
    assert_eq!((response.status, &reply["error"]["code"]), (502, &json!("gateway_unreachable")));
    let receipt = reply["receipt_id"].as_str().unwrap();
    assert_eq!(history(&gate, receipt).last().unwrap(), "refused");
    gate.stop();
}

#[test]
fn a_gateway_that_closes_or_replies_twice_does_not_affect_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::ReplyAndClose);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    for (n, action) in
        [StubAction::ReplyAndClose, StubAction::ReplyTwice, GOOD, GOOD].into_iter().enumerate()
    {
        stub.set_action(action.clone());
        let (status, word, _) = outcome(&paste(&mut client, &task(&format!("t{n}"))));
        assert_eq!((status, word.as_str()), (200, "executed"), "{action:?}");
        assert_eq!(stub.calls().len(), n + 1);
    }
    gate.stop();
}

#[test]
fn gateway_calls_share_connections() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    for n in 0..10 {
        assert_eq!(paste(&mut client, &task(&format!("t{n}"))).status, 200);
    }
    assert_eq!(stub.calls().len(), 10);
    assert!(stub.connections() < 10, "{} connections for 10 calls", stub.connections());
    gate.stop();
}

#[test]
fn a_late_gateway_reply_is_recorded_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "300")
        .start();
    let (status, word, receipt) = outcome(&paste(&mut gate.client(), &task("late")));
    assert_eq!((status, word.as_str()), (502, "failed"));
    stub.set_action(GOOD);
    wait_for("the late reply is recorded as evidence", TIMEOUT, || {
        (history(&gate, &receipt).last().unwrap() == "evidence").then_some(())
    });
    let intent = gate.client().get(&format!("{INTENTS}/{receipt}"));
    assert_eq!(
        (&intent["status"], &intent["effect"]["state"]),
        (&json!("failed"), &json!("ambiguous"))
    );
    let last = intent["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["evidence"]["status_code"], 200, "{last}");
    let (status, word, _) = outcome(&paste(&mut gate.client(), &task("late")));
    assert_eq!((status, word.as_str()), (502, "failed"), "a failed intent must stay failed");
    assert_eq!(stub.calls().len(), 1);
    let listed = admit(&[
        "intents",
        "list",
        "--status",
        "ambiguous",
        "--data",
        folder.path().to_str().unwrap(),
    ]);
    assert!(listed.0 && listed.1.contains(&receipt), "{}", listed.1);
    gate.stop();
}

#[test]
fn a_copy_during_the_execution_gets_the_current_state() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(StubAction::Hold);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "100")
        .start();
    let first = thread::scope(|scope| {
        let first = scope.spawn(|| outcome(&paste(&mut gate.client(), &task("slow"))));
        stub.wait_for_calls(1);
        let (status, word, receipt) = outcome(&paste(&mut gate.client(), &task("slow")));
        assert_eq!((status, word.as_str()), (200, "planned"));
        let path = format!("{INTENTS}/{receipt}/replay");
        let body = br#"{"reason":"too slow"}"#;
        let replay = gate.client().send("POST", &path, &[], body).unwrap();
        assert_eq!((replay.status, &replay.json()["error"]["code"]), (409, &json!("in_work")));
        stub.set_action(GOOD);
        first.join().unwrap()
    });
    assert_eq!((first.0, first.1.as_str()), (200, "executed"));
    assert_eq!(outcome(&paste(&mut gate.client(), &task("slow"))), first);
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn a_replay_executes_again_under_the_same_key_and_keeps_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let stub = GatewayStub::start(StubAction::Reply(500, "{}"));
    let gate = executing(folder.path(), &stub.url()).start();
    let failed = paste(&mut gate.client(), &task("again"));
    let (_, _, receipt) = outcome(&failed);
    stub.set_action(GOOD);
    let listen = gate.address().to_string();
    let replay =
        ["replay", &receipt, "--reason", "it is back", "--listen", &listen, "--data", data];
    let (succeeded, output) = admit(&replay);
    assert!(succeeded && output.contains("executed"), "{output}");
    let calls = stub.calls();
    assert_eq!(calls.len(), 2, "expected one more call");
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    assert_ne!(calls[0].header("x-trace-id"), calls[1].header("x-trace-id"));

    let intent = gate.client().get(&format!("{INTENTS}/{receipt}"));
    assert_eq!((&intent["status"], &intent["effect"]["attempt"]), (&json!("executed"), &json!(2)));
    let replay_line =
        intent["history"].as_array().unwrap().iter().find(|line| line["by"].is_string());
    let replay_line = replay_line.expect("the principal of the replay is recorded");
    assert_eq!(
        (&replay_line["by"], &replay_line["reason"]),
        (&json!("local"), &json!("it is back"))
    );
    let copy = paste(&mut gate.client(), &task("again"));
    assert_eq!(
        (copy.status, copy.body),
        (502, failed.body),
        "a copy must get the original envelope"
    );
    let (_, shown) = admit(&["intents", "show", &receipt, "--data", data]);
    assert!(shown.contains("it is back") && shown.contains("executed"), "{shown}");
    let (succeeded, output) =
        admit(&["replay", "rcp-00000001-1", "--reason", "x", "--listen", &listen, "--data", data]);
    assert!(!succeeded && output.contains("not_found"), "{output}");
    gate.stop();
}

#[test]
fn with_execution_disabled_the_plan_is_stored_and_a_replay_executes_it() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let launch = planning(folder.path()).variable("EXECUTE_ACTIONS", "false");
    let gate = launch.variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", &stub.url()).start();
    let planned = paste(&mut gate.client(), &task("later"));
    let (status, word, receipt) = outcome(&planned);
    assert_eq!((status, word.as_str()), (200, "planned"));
    let action = planned.json()["plan"]["actions"][0].clone();
    assert_eq!(action["action"], "notion.tasks.create");
    assert_eq!(history(&gate, &receipt), ["received", "planned", "withheld"]);
    gate.stop();

    let gate = executing(folder.path(), &stub.url()).start();
    assert_eq!(stub.calls().len(), 0, "enabling execution must not execute planned intents");
    let path = format!("{INTENTS}/{receipt}/replay");
    let replayed = gate.client().send("POST", &path, &[], br#"{"reason":"now"}"#).unwrap();
    assert_eq!(outcome(&replayed), (200, "executed".to_owned(), receipt.clone()));
    assert_eq!(stub.calls().len(), 1);
    let copy = paste(&mut gate.client(), &task("later"));
    assert_eq!(copy.body, planned.body, "a copy must get the original envelope");
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn with_an_unwritable_ledger_intents_are_refused_and_the_gateway_is_not_called() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    let lock = LedgerLock::acquire(folder.path());
    let response = paste(&mut client, &task("t"));
    let reply = response.json();
    assert_eq!((response.status, &reply["error"]["code"]), (503, &json!("storage_unavailable")));
    assert!(response.header("retry-after").is_some());
    assert!(reply.get("receipt_id").is_none());
    assert_eq!(stub.calls().len(), 0);
    drop(lock);
    wait_for("the gate recovers", TIMEOUT, || gate.is_ready().then_some(()));
    let (status, word, _) = outcome(&paste(&mut client, &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn only_an_operator_may_replay() {
    let folder = tempfile::tempdir().unwrap();
    let principals = r#"[{ name = "paste", keys = ["paste-key-long-enough"] },
            { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;
    let gate = planning(folder.path()).variable("ADMIT_PRINCIPALS", principals).start();
    assert_eq!(paste(&mut gate.client(), &task("t")).status, 401);
    let mut paster = gate.client().with("Authorization", "Bearer paste-key-long-enough");
    let (status, _, receipt) = outcome(&paste(&mut paster, &task("t")));
    assert_eq!(status, 200);
    let path = format!("{INTENTS}/{receipt}/replay");
    assert_eq!(paster.send("POST", &path, &[], b"{}").unwrap().status, 403);
    assert_eq!(gate.client().send("POST", &path, &[], b"{}").unwrap().status, 401);
    let mut operator = gate.client().with("Authorization", "Bearer ops-key-long-enough");
    let response = operator.send("POST", &path, &[], br#"{"reason":"now"}"#).unwrap();
    assert_eq!(
        (response.status, &response.json()["error"]["code"]),
        (409, &json!("not_replayable"))
    );
    gate.stop();
}

#[test]
fn a_gateway_over_tls_is_called_only_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (stub, pem) = GatewayStub::start_tls(GOOD);
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, pem).unwrap();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, GatewayStub::start_tls(GOOD).1).unwrap();

    let launch = executing(&folder.path().join("data"), &stub.url());
    let gate = launch.variable("SSL_CERT_FILE", other.to_str().unwrap()).start();
    let reply = paste(&mut gate.client(), &task("untrusted")).json();
    assert_eq!(
        reply["error"]["code"], "gateway_unreachable",
        "sent without a trusted certificate: {reply}"
    );
    assert_eq!(stub.calls().len(), 0);
    gate.stop();

    let launch = executing(&folder.path().join("data"), &stub.url());
    let gate = launch.variable("SSL_CERT_FILE", trusted.to_str().unwrap()).start();
    for title in ["trusted", "trusted again"] {
        let (status, word, _) = outcome(&paste(&mut gate.client(), &task(title)));
        assert_eq!((status, word.as_str()), (200, "executed"));
    }
    assert_eq!(stub.calls().len(), 2);
    gate.stop();
}
