//! Intents: kept first, acted on once, answered the same for ever.

use std::thread;

use admit_core::hash::sha256_hex;
use serde_json::json;

use crate::support::gate::Gate;
use crate::support::gateway_stub::{Does, GOOD, GatewayStub, nobody};
use crate::support::intents::{
    INTENTS, admit, executing, gist, history, paste, paste_text, planning, task,
};
use crate::support::ledger::Held;
use crate::support::{SOON, sql, until};

#[test]
fn equivalent_texts_are_one_intent_and_other_numbers_are_not() {
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
fn a_good_packet_is_on_disk_executed_once_and_its_copy_gets_the_same_envelope() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client().with("X-Actor-Id", "ada");
    let mut packet = task("write tests");
    packet["request_id"] = json!("req-7");
    let answer = paste(&mut client, &packet);
    let envelope = answer.json();
    assert_eq!((answer.status, &envelope["status"]), (200, &json!("executed")), "{envelope}");
    assert_eq!(envelope["details"]["notion_task_id"], "page-1");
    assert!(envelope.get("error").is_none(), "error only when failed");
    assert!(envelope["intent_id"].as_str().unwrap().starts_with("int_"));
    assert!(envelope["correlation_id"].as_str().unwrap().starts_with("cor_"));
    for (header, member) in [
        ("x-intent-id", "intent_id"),
        ("x-correlation-id", "correlation_id"),
        ("x-request-id", "request_id"),
        ("x-trace-id", "trace_id"),
    ] {
        assert_eq!(answer.header(header), envelope[member].as_str(), "{header}");
    }
    let calls = stub.calls();
    let [call] = calls.as_slice() else { panic!("one call: {calls:?}") };
    assert_eq!(call.path, "/v1/notion/tasks/create");
    assert_eq!(call.header("authorization"), Some("Bearer gateway-token"));
    assert_eq!(call.header("x-trace-id"), envelope["trace_id"].as_str());
    assert_eq!(call.header("idempotency-key"), call.body["idempotency_key"].as_str());
    assert_eq!(call.body["idempotency_key"], envelope["plan"]["actions"][0]["idempotency_key"]);
    assert_eq!((&call.body["request_id"], &call.body["actor"]), (&json!("req-7"), &json!("ada")));
    assert_eq!(call.body["payload"], json!({ "task": { "title": "write tests" } }));

    let query = "SELECT count(*) FROM intents WHERE status = 'executed'";
    let rows: i64 = sql::one(folder.path(), query);
    assert_eq!(rows, 1, "the row is on disk when the reply is read");
    let copy = paste(&mut client, &packet);
    assert_eq!(copy.body, answer.body, "the original envelope, byte for byte");
    assert_ne!(copy.header("x-trace-id"), answer.header("x-trace-id"), "a trace of its own");
    assert_eq!(stub.calls().len(), 1);
    let receipt = envelope["receipt_id"].as_str().unwrap();
    assert_eq!(history(&gate, receipt), ["received", "planned", "intended", "in_flight", "done"]);
    gate.stop();
}

#[test]
fn sixty_four_equal_packets_at_once_make_one_call_and_equal_envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url()).start();
    let answers: Vec<Vec<u8>> = thread::scope(|scope| {
        let pasting: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| paste(&mut gate.client(), &task("once")).body))
            .collect();
        stub.has(1);
        stub.now(GOOD);
        pasting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "64 equal envelopes");
    assert!(String::from_utf8_lossy(&answers[0]).contains(r#""status":"executed""#));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn what_is_no_packet_is_refused_with_its_reasons() {
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
        let answer = paste_text(&mut client, text);
        let said = answer.json();
        assert_eq!((answer.status, &said["error"]["code"]), (400, &json!(code)), "{text}: {said}");
        assert!(said.get("receipt_id").is_none());
        let told = said["error"]["details"]["errors"].as_array().map_or(0, Vec::len);
        assert_eq!(told > 0, code == "schema_validation_failed", "{said}");
    }
    assert_eq!(stub.calls().len(), 0);
    gate.stop();
}

#[test]
fn what_the_rules_refuse_is_kept_and_answered_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (packet, code) in [
        (json!({ "kind": "intent", "confidence": 0.5 }), "POLICY_LOW_CONFIDENCE"),
        (json!({ "kind": "intent", "intent_type": "create_task" }), "VALIDATION_ERROR"),
        (json!({ "kind": "intent", "intent_type": "update_task" }), "POLICY_MISSING_TASK_ID"),
        (json!({ "kind": "intent", "intent_type": "sing" }), "UNSUPPORTED_INTENT_TYPE"),
    ] {
        let answer = paste(&mut client, &packet);
        let said = answer.json();
        assert_eq!((answer.status, &said["status"]), (422, &json!("failed")), "{said}");
        assert_eq!(said["error"]["code"], code);
        let copy = paste(&mut client, &packet);
        assert_eq!((copy.status, copy.body), (422, answer.body));
        let receipt = said["receipt_id"].as_str().unwrap();
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
fn whatever_the_gateway_answers_is_told_and_never_asked_for_twice() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    let table = [
        (Does::Answers(500, r#"{"error":{"code":"boom"}}"#), "gateway_refused", json!(500)),
        (Does::Answers(429, "slow down"), "gateway_refused", json!(429)),
        (Does::Answers(302, ""), "gateway_refused", json!(302)),
        (Does::Answers(200, r#"{"error":{"code":"no"}}"#), "gateway_refused", json!(200)),
        (Does::Answers(200, r#"{"status":"error"}"#), "gateway_refused", json!(200)),
        (Does::CutsTheAnswer, "outcome_unknown", json!(200)),
        (Does::Cuts, "outcome_unknown", json!(null)),
    ];
    for (n, (does, code, status_code)) in table.into_iter().enumerate() {
        stub.now(does.clone());
        let packet = task(&format!("case {n}"));
        let answer = paste(&mut client, &packet);
        let said = answer.json();
        assert_eq!((answer.status, &said["status"]), (502, &json!("failed")), "{does:?}: {said}");
        assert_eq!(said["error"]["code"], code, "{does:?}");
        assert_eq!(said["error"]["details"]["status_code"], status_code, "{does:?}");
        stub.now(GOOD);
        let copy = paste(&mut client, &packet);
        assert_eq!((copy.status, copy.body), (502, answer.body), "{does:?}: failed stays failed");
        assert_eq!(stub.calls().len(), n + 1, "{does:?}: one call");
    }
    gate.stop();
}

#[test]
fn a_gateway_that_is_not_there_was_definitely_not_called() {
    let folder = tempfile::tempdir().unwrap();
    let gate = executing(folder.path(), &nobody()).start();
    let answer = paste(&mut gate.client(), &task("t"));
    let said = answer.json();
    assert_eq!((answer.status, &said["error"]["code"]), (502, &json!("gateway_unreachable")));
    let receipt = said["receipt_id"].as_str().unwrap();
    assert_eq!(history(&gate, receipt).last().unwrap(), "refused");
    gate.stop();
}

#[test]
fn a_gateway_that_closes_or_talks_too_much_does_not_spoil_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::AnswersAndCloses);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    for (n, does) in
        [Does::AnswersAndCloses, Does::AnswersTwice, GOOD, GOOD].into_iter().enumerate()
    {
        stub.now(does.clone());
        let (status, word, _) = gist(&paste(&mut client, &task(&format!("t{n}"))));
        assert_eq!((status, word.as_str()), (200, "executed"), "{does:?}");
        assert_eq!(stub.calls().len(), n + 1);
    }
    gate.stop();
}

#[test]
fn calls_share_their_connections() {
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
fn an_answer_that_comes_too_late_is_kept_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__GATEWAY_TIMEOUT_MS", "300")
        .start();
    let (status, word, receipt) = gist(&paste(&mut gate.client(), &task("late")));
    assert_eq!((status, word.as_str()), (502, "failed"));
    stub.now(GOOD);
    until("the late answer is evidence", SOON, || {
        (history(&gate, &receipt).last().unwrap() == "evidence").then_some(())
    });
    let intent = gate.client().get(&format!("{INTENTS}/{receipt}"));
    assert_eq!(
        (&intent["status"], &intent["effect"]["state"]),
        (&json!("failed"), &json!("ambiguous"))
    );
    let last = intent["history"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["evidence"]["status_code"], 200, "{last}");
    let (status, word, _) = gist(&paste(&mut gate.client(), &task("late")));
    assert_eq!((status, word.as_str()), (502, "failed"), "sticky");
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
fn a_copy_that_comes_while_the_first_is_in_work_is_told_how_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(Does::Holds);
    let gate = executing(folder.path(), &stub.url())
        .variable("ADMIT_DOORS__INTENTS__IN_WORK_WAIT_MS", "100")
        .start();
    let first = thread::scope(|scope| {
        let first = scope.spawn(|| gist(&paste(&mut gate.client(), &task("slow"))));
        stub.has(1);
        let (status, word, receipt) = gist(&paste(&mut gate.client(), &task("slow")));
        assert_eq!((status, word.as_str()), (200, "planned"));
        let path = format!("{INTENTS}/{receipt}/replay");
        let body = br#"{"reason":"too slow"}"#;
        let replay = gate.client().send("POST", &path, &[], body).unwrap();
        assert_eq!((replay.status, &replay.json()["error"]["code"]), (409, &json!("in_work")));
        stub.now(GOOD);
        first.join().unwrap()
    });
    assert_eq!((first.0, first.1.as_str()), (200, "executed"));
    assert_eq!(gist(&paste(&mut gate.client(), &task("slow"))), first);
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn a_replay_runs_once_more_under_the_same_key_and_keeps_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let stub = GatewayStub::start(Does::Answers(500, "{}"));
    let gate = executing(folder.path(), &stub.url()).start();
    let failed = paste(&mut gate.client(), &task("again"));
    let (_, _, receipt) = gist(&failed);
    stub.now(GOOD);
    let listen = gate.address().to_string();
    let replay =
        ["replay", &receipt, "--reason", "it is back", "--listen", &listen, "--data", data];
    let (went_well, said) = admit(&replay);
    assert!(went_well && said.contains("executed"), "{said}");
    let calls = stub.calls();
    assert_eq!(calls.len(), 2, "once more");
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    assert_ne!(calls[0].header("x-trace-id"), calls[1].header("x-trace-id"));

    let intent = gate.client().get(&format!("{INTENTS}/{receipt}"));
    assert_eq!((&intent["status"], &intent["effect"]["attempt"]), (&json!("executed"), &json!(2)));
    let asked = intent["history"].as_array().unwrap().iter().find(|line| line["by"].is_string());
    let asked = asked.expect("who asked is written down");
    assert_eq!((&asked["by"], &asked["reason"]), (&json!("local"), &json!("it is back")));
    let copy = paste(&mut gate.client(), &task("again"));
    assert_eq!((copy.status, copy.body), (502, failed.body), "a copy gets the original for ever");
    let (_, shown) = admit(&["intents", "show", &receipt, "--data", data]);
    assert!(shown.contains("it is back") && shown.contains("executed"), "{shown}");
    let (went_well, said) =
        admit(&["replay", "rcp-00000001-1", "--reason", "x", "--listen", &listen, "--data", data]);
    assert!(!went_well && said.contains("not_found"), "{said}");
    gate.stop();
}

#[test]
fn without_execution_the_plan_is_kept_and_a_replay_executes_it() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let launch = planning(folder.path()).variable("EXECUTE_ACTIONS", "false");
    let gate = launch.variable("ADMIT_DOORS__INTENTS__GATEWAY_BASE_URL", &stub.url()).start();
    let planned = paste(&mut gate.client(), &task("later"));
    let (status, word, receipt) = gist(&planned);
    assert_eq!((status, word.as_str()), (200, "planned"));
    let action = planned.json()["plan"]["actions"][0].clone();
    assert_eq!(action["action"], "notion.tasks.create");
    assert_eq!(history(&gate, &receipt), ["received", "planned", "withheld"]);
    gate.stop();

    let gate = executing(folder.path(), &stub.url()).start();
    assert_eq!(stub.calls().len(), 0, "turning execution on executes nothing that was planned");
    let path = format!("{INTENTS}/{receipt}/replay");
    let replayed = gate.client().send("POST", &path, &[], br#"{"reason":"now"}"#).unwrap();
    assert_eq!(gist(&replayed), (200, "executed".to_owned(), receipt.clone()));
    assert_eq!(stub.calls().len(), 1);
    let copy = paste(&mut gate.client(), &task("later"));
    assert_eq!(copy.body, planned.body, "what was told is told again");
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn a_ledger_that_cannot_be_written_to_is_said_and_nothing_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let stub = GatewayStub::start(GOOD);
    let gate = executing(folder.path(), &stub.url()).start();
    let mut client = gate.client();
    let held = Held::take(folder.path());
    let answer = paste(&mut client, &task("t"));
    let said = answer.json();
    assert_eq!((answer.status, &said["error"]["code"]), (503, &json!("storage_unavailable")));
    assert!(answer.header("retry-after").is_some());
    assert!(said.get("receipt_id").is_none());
    assert_eq!(stub.calls().len(), 0);
    drop(held);
    until("the gate heals", SOON, || gate.is_ready().then_some(()));
    let (status, word, _) = gist(&paste(&mut client, &task("t")));
    assert_eq!((status, word.as_str()), (200, "executed"));
    assert_eq!(stub.calls().len(), 1);
    gate.stop();
}

#[test]
fn only_an_operator_may_replay_and_only_with_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let principals = r#"[{ name = "paste", keys = ["paste-key-long-enough"] },
            { name = "ops", keys = ["ops-key-long-enough"], role = "operate" }]"#;
    let gate = planning(folder.path()).variable("ADMIT_PRINCIPALS", principals).start();
    assert_eq!(paste(&mut gate.client(), &task("t")).status, 401);
    let mut paster = gate.client().with("Authorization", "Bearer paste-key-long-enough");
    let (status, _, receipt) = gist(&paste(&mut paster, &task("t")));
    assert_eq!(status, 200);
    let path = format!("{INTENTS}/{receipt}/replay");
    assert_eq!(paster.send("POST", &path, &[], b"{}").unwrap().status, 403);
    assert_eq!(gate.client().send("POST", &path, &[], b"{}").unwrap().status, 401);
    let mut operator = gate.client().with("Authorization", "Bearer ops-key-long-enough");
    let answer = operator.send("POST", &path, &[], br#"{"reason":"now"}"#).unwrap();
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (409, &json!("not_replayable")));
    gate.stop();
}

#[test]
fn a_gateway_over_tls_is_called_if_its_certificate_is_trusted_and_not_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let (stub, pem) = GatewayStub::start_tls(GOOD);
    let trusted = folder.path().join("trusted.pem");
    std::fs::write(&trusted, pem).unwrap();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, GatewayStub::start_tls(GOOD).1).unwrap();

    let launch = executing(&folder.path().join("data"), &stub.url());
    let gate = launch.variable("SSL_CERT_FILE", other.to_str().unwrap()).start();
    let said = paste(&mut gate.client(), &task("untrusted")).json();
    assert_eq!(said["error"]["code"], "gateway_unreachable", "nothing was sent: {said}");
    assert_eq!(stub.calls().len(), 0);
    gate.stop();

    let launch = executing(&folder.path().join("data"), &stub.url());
    let gate = launch.variable("SSL_CERT_FILE", trusted.to_str().unwrap()).start();
    for title in ["trusted", "trusted again"] {
        let (status, word, _) = gist(&paste(&mut gate.client(), &task(title)));
        assert_eq!((status, word.as_str()), (200, "executed"));
    }
    assert_eq!(stub.calls().len(), 2);
    gate.stop();
}
