//! The `events` door over HTTP: deduplication, replayed replies, and typed errors.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::http::HttpResponse;

pub(crate) const DOOR: &str = "/v1/events";
const CLOUD: (&str, &str) = ("Content-Type", "application/cloudevents+json");
const BATCH: (&str, &str) = ("Content-Type", "application/cloudevents-batch+json");
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

pub(crate) fn post(gate: &Gate, path: &str, headers: &[(&str, &str)], body: &str) -> HttpResponse {
    gate.client().send("POST", path, headers, body.as_bytes()).expect("response from the gate")
}

/// Returns the receipt id of an accepted event; panics on any other reply.
pub(crate) fn receipt(response: &HttpResponse) -> String {
    assert_eq!(response.status, 201, "{}", String::from_utf8_lossy(&response.body));
    response.json()["receipt_id"].as_str().expect("a receipt id").to_owned()
}

/// Asserts problem details with this code; returns the body.
pub(crate) fn problem(response: &HttpResponse, status: u16, code: &str) -> Value {
    let text = String::from_utf8_lossy(&response.body);
    assert_eq!(response.status, status, "{text}");
    assert_eq!(response.header("content-type"), Some("application/problem+json"), "{text}");
    let body: Value = serde_json::from_slice(&response.body).expect("a JSON body");
    assert_eq!(body["error"]["code"], code, "{text}");
    assert_eq!(body["type"], format!("/problems/{code}"));
    assert_eq!(body["status"], status);
    body
}

pub(crate) fn configured(data: &Path, config: &str) -> Gate {
    let file = data.join("admit.toml");
    std::fs::write(&file, config).unwrap();
    Launch::on(&data.join("data")).argument("--config").argument(&file).start()
}

fn cloud(id: &str, total: u32) -> String {
    json!({
        "specversion": "1.0", "id": id, "source": "/shop", "type": "order.paid",
        "time": "2026-02-19T18:14:02Z", "data": { "total": total },
    })
    .to_string()
}

#[test]
fn a_copy_gets_the_reply_of_the_first_and_other_content_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let key = ("Idempotency-Key", "\"order-1\"");
    let first = post(&gate, DOOR, &[key], r#"{"total":5}"#);
    let id = receipt(&first);
    assert_eq!(first.header("location"), Some(format!("/v1/receipts/{id}").as_str()));
    assert_eq!(first.header("idempotent-replayed"), None);
    let bare = ("Idempotency-Key", "order-1");
    let copy = post(&gate, "/v1/events/default", &[bare], "{ \"total\": 5 }");
    assert_eq!((copy.status, &copy.body), (first.status, &first.body));
    assert_eq!(copy.header("idempotent-replayed"), Some("true"));
    let other = post(&gate, DOOR, &[key], r#"{"total":6}"#);
    let reply = problem(&other, 422, "idempotency_key_reused");
    assert_eq!(reply["first_receipt_id"], *id);
    let evidence = reply["receipt_id"].as_str().expect("a receipt of the conflict");
    assert_eq!(gate.client().get(&format!("/v1/receipts/{evidence}"))["verdict"], "conflict");
    let reply = problem(&post(&gate, DOOR, &[], "{}"), 400, "idempotency_key_missing");
    let refusal = reply["receipt_id"].as_str().expect("a receipt of the refusal");
    assert_eq!(gate.client().get(&format!("/v1/receipts/{refusal}"))["verdict"], "refused");
    let streamed = gate.client().get("/v1/events");
    assert_eq!(streamed["events"].as_array().map(Vec::len), Some(1), "{streamed}");
    gate.kill();
    let gate = Gate::on(folder.path());
    let copy = post(&gate, DOOR, &[key], r#"{"total":5}"#);
    assert_eq!(copy.body, first.body, "the reply must be the same after a crash");
}

#[test]
fn concurrent_copies_are_one_event_with_one_reply() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let key = ("Idempotency-Key", "race");
    let responses: Vec<HttpResponse> = std::thread::scope(|scope| {
        let attempts: Vec<_> =
            (0..16).map(|_| scope.spawn(|| post(&gate, DOOR, &[key], "{\"n\":1}"))).collect();
        attempts.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let replayed = responses.iter().filter(|a| a.header("idempotent-replayed").is_some()).count();
    assert_eq!(replayed, 15);
    assert!(
        responses
            .iter()
            .all(|response| response.body == responses[0].body && response.status == 201)
    );
}

#[test]
fn a_cloudevent_is_the_same_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let first = post(&gate, DOOR, &[CLOUD], &cloud("1", 5));
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/shop"),
        ("ce-type", "order.paid"),
        ("ce-time", "2026-02-19T18:14:02Z"),
    ];
    let copy = post(&gate, DOOR, &binary, "{\"total\": 5}");
    assert_eq!((copy.status, &copy.body), (201, &first.body));
    assert_eq!(copy.header("idempotent-replayed"), Some("true"));
    let batch = format!("[{},{},{{}}]", cloud("1", 5), cloud("2", 6));
    let many = post(&gate, DOOR, &[BATCH], &batch);
    assert_eq!(many.status, 207);
    let results = many.json();
    assert_eq!(results[0]["receipt_id"], *receipt(&first));
    assert_eq!((&results[0]["replayed"], &results[1]["replayed"]), (&json!(true), &json!(false)));
    assert_eq!(results[1]["status"], 201);
    assert_eq!((&results[2]["index"], &results[2]["status"]), (&json!(2), &json!(400)));
    let again = post(&gate, DOOR, &[BATCH], &format!("[{}]", cloud("2", 6)));
    assert_eq!((again.status, &again.json()[0]["replayed"]), (200, &json!(true)));
    assert_eq!(post(&gate, DOOR, &[BATCH], "[]").json(), json!([]));
    let seen = gate.client().get(DOOR);
    let seen = seen["events"].as_array().expect("a page");
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0]["attributes"]["type"], "order.paid");
    assert_eq!(seen[0]["data"], json!({ "total": 5 }));
    problem(&post(&gate, DOOR, &[CLOUD], "{}"), 400, "invalid_envelope");
}

#[test]
fn every_line_gets_its_own_result() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let key = ("Idempotency-Key", "file-7");
    let body = "{\"n\":1}\n\n{oops\n{\"n\":2}\n";
    let response = post(&gate, DOOR, &[LINES, key], body);
    assert_eq!(response.status, 207);
    assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
    let results = |response: &HttpResponse| -> Vec<Value> {
        let text = String::from_utf8_lossy(&response.body).into_owned();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let lines: Vec<_> =
        results(&response).iter().map(|r| (r["line"].clone(), r["status"].clone())).collect();
    let expected =
        [(1, 201), (3, 400), (4, 201)].map(|(line, status)| (json!(line), json!(status)));
    assert_eq!(lines, expected);
    let again = post(&gate, DOOR, &[LINES, key], body);
    let replayed: Vec<_> = results(&again).iter().map(|r| r["replayed"].clone()).collect();
    assert_eq!(replayed, [json!(true), Value::Null, json!(true)]);
    let count = gate.client().get(DOOR)["events"].as_array().map(Vec::len);
    assert_eq!(count, Some(2));
}

#[test]
fn an_invalid_event_is_refused_with_problem_details() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let key = ("Idempotency-Key", "k");
    problem(&post(&gate, DOOR, &[key], "{"), 400, "invalid_json");
    let deep = "[".repeat(100_000);
    problem(&post(&gate, DOOR, &[key], &deep), 400, "invalid_json");
    problem(&post(&gate, DOOR, &[key], "\"\\ud800\""), 400, "invalid_json");
    problem(&post(&gate, DOOR, &[("Idempotency-Key", "a b")], "{}"), 400, "invalid_request");
    let text = ("Content-Type", "text/plain");
    problem(&post(&gate, DOOR, &[key, text], "{}"), 415, "unsupported_media_type");
    let avro = ("Content-Type", "application/cloudevents+avro");
    problem(&post(&gate, DOOR, &[key, avro], "{}"), 415, "unsupported_media_type");
    let large = format!("\"{}\"", "x".repeat(1_100_000));
    problem(&post(&gate, DOOR, &[key], &large), 413, "body_too_large");
    let lines = "1\n".repeat(1_001);
    problem(&post(&gate, DOOR, &[key, LINES], &lines), 413, "body_too_large");
    problem(&post(&gate, "/v1/events/nowhere", &[key], "{}"), 404, "not_found");
    let response = gate.client().send("PUT", DOOR, &[], b"").expect("a response");
    problem(&response, 405, "method_not_allowed");
    assert_eq!(response.header("allow"), Some("GET, HEAD, POST"));
    assert_eq!(gate.client().get(DOOR)["events"], json!([]));
}

#[test]
fn a_declared_stream_applies_its_identity_schema_and_path() {
    let folder = tempfile::tempdir().unwrap();
    let schema = r#"{"required":["total"],"properties":{"total":{"type":"number"}}}"#;
    std::fs::write(folder.path().join("order.json"), schema).unwrap();
    let gate = configured(
        folder.path(),
        "[[doors.events]]\nname = \"orders\"\nidentity = \"fields\"\nfields = [\"order.id\"]\n\
         version_field = \"v\"\nschemas = { 1 = \"order.json\" }\n\
         [[doors.events]]\nname = \"notes\"\npath = \"/hooks/notes\"\nidentity = \"body\"\n\
         accept = \"any\"\n",
    );
    let orders = "/v1/events/orders";
    let first = receipt(&post(&gate, orders, &[], r#"{"v":1,"order":{"id":7},"total":5}"#));
    let other = post(&gate, orders, &[], r#"{"v":1,"order":{"id":7},"total":6}"#);
    assert_eq!(problem(&other, 422, "idempotency_key_reused")["first_receipt_id"], *first);
    let bad = post(&gate, orders, &[], r#"{"v":1,"order":{"id":8},"total":"a lot"}"#);
    let reply = problem(&bad, 400, "invalid_envelope");
    assert_eq!(reply["violations"].as_array().map(Vec::len), Some(1), "{reply}");
    assert!(!reply.to_string().contains("a lot"), "{reply}");
    let newer = post(&gate, orders, &[], r#"{"v":2,"order":{"id":8}}"#);
    problem(&newer, 400, "schema_version_unsupported");
    let xml = ("Content-Type", "text/xml");
    let note = post(&gate, "/hooks/notes", &[xml], "<note/>");
    assert_eq!(note.json()["stream"], "notes");
    assert_eq!(post(&gate, "/hooks/notes", &[xml], "<note/>").body, note.body);
    let seen = gate.client().get("/v1/events/notes");
    assert_eq!(seen["events"][0]["data_base64"], "PG5vdGUvPg==");
    // Without keys, content types that a web page can send cross-origin are refused.
    let form = ("Content-Type", "text/plain");
    problem(&post(&gate, "/hooks/notes", &[form], "x"), 415, "unsupported_media_type");
    problem(&post(&gate, DOOR, &[], "{}"), 404, "not_found");
}

#[test]
fn a_webhook_with_an_invalid_signature_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(
        folder.path(),
        "[[doors.events]]\nname = \"hooks\"\n\
         webhook_secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n",
    );
    let headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    for headers in [&headers[..], &headers[..2], &[]] {
        let response = post(&gate, "/v1/events/hooks", headers, r#"{"test": 2432232314}"#);
        problem(&response, 401, "unauthorized");
    }
    assert_eq!(gate.client().get("/v1/quarantine")["quarantine"], json!([]));
}

#[test]
fn a_signed_webhook_needs_no_key_if_the_stream_names_its_principal() {
    let folder = tempfile::tempdir().unwrap();
    let stream = |more: &str| {
        format!(
            "[[doors.events]]\nname = \"hooks\"\nwebhook_tolerance_seconds = 4294967295\n\
             webhook_secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n{more}\n\
             [[principals]]\nname = \"shop\"\nkeys = [\"a-key-long-enough\"]\nrole = [\"produce\", \"read\"]\n"
        )
    };
    let signed = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let (path, body) = ("/v1/events/hooks", r#"{"test": 2432232314}"#);
    let gate = configured(folder.path(), &stream(""));
    problem(&post(&gate, path, &signed, body), 401, "unauthorized");
    gate.stop();
    let gate = configured(folder.path(), &stream("webhook_principal = \"shop\""));
    receipt(&post(&gate, path, &signed, body));
    problem(&post(&gate, path, &signed, "{}"), 401, "unauthorized");
    problem(&post(&gate, path, &[], body), 401, "unauthorized");
    let wrong = [&signed[..], &[("Authorization", "Bearer wrong")]].concat();
    problem(&post(&gate, path, &wrong, body), 401, "unauthorized");
    let seen = gate.client().with("Authorization", "Bearer a-key-long-enough").get(path);
    assert_eq!(seen["events"][0]["principal"], "shop");
    assert_eq!(seen["events"].as_array().map(Vec::len), Some(1));
}
