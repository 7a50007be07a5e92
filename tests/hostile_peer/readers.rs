//! Invalid requests of readers, consumers and operators: each gets a typed error, the ledger stays ready
//! and no producer's event is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::routes::{ROUTES, Route, document, operation, path};
use crate::events::{DOOR, post, receipt};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, admit};
use crate::support::http::{Client, HttpResponse};

/// Sequence numbers greater than any ledger can have.
const BEYOND: [&str; 3] = ["18446744073709551615", "9223372036854775808", "18446744073709551616"];

/// Returns the ledger tag from a receipt id of the gate.
fn tag(gate: &Gate) -> String {
    let id = receipt(&post(gate, DOOR, &[("Idempotency-Key", "tag")], "{}"));
    id.split('-').nth(1).expect("a receipt id has a tag").to_owned()
}

/// Sends events until `stop` is set, and asserts that each is accepted; returns their number.
fn produce(gate: &Gate, producer: u64, stop: &AtomicBool) -> u64 {
    let mut client = gate.client();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let event = match_begin(producer * 1_000_000 + sent, "arena");
        let reply = client.submit(&event);
        assert!(reply.is_processed(), "an event of another producer is refused: {reply:?}");
        sent += 1;
    }
    sent
}

/// Runs `attack` while two producers send, and asserts that none of their events was refused, that the
/// gate stayed ready and that it logged no error.
fn with_producers(gate: &Gate, attack: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let producers = [1, 2].map(|producer| {
            scope.spawn({
                let stop = &stop;
                move || produce(gate, producer, stop)
            })
        });
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
        stop.store(true, Ordering::Relaxed);
        for producer in producers {
            assert!(producer.join().expect("no event is refused") > 0, "a producer was starved");
        }
        if let Err(panic) = attacked {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(gate.is_ready(), "the gate is not ready");
    let log = gate.stderr();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(
        errors.is_empty(),
        "a request of a peer was logged as an error of the gate: {errors:#?}"
    );
}

fn send(client: &mut Client, route: &Route, path: &str, body: &[u8]) -> HttpResponse {
    let response = client.send(route.method, path, &[], body);
    response.unwrap_or_else(|error| panic!("{} {path}: {error}", route.method))
}

#[test]
fn a_sequence_number_out_of_range_is_refused_and_no_event_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let change = json!({ "status": "done", "lease": "0".repeat(32) }).to_string();
    with_producers(&gate, || {
        let attack = |number: &str| {
            let mut client = gate.client();
            for _ in 0..20 {
                let path = format!("{DOOR}/default/rcp-{tag}-{number}");
                let response = client.send("POST", &path, &[], change.as_bytes()).unwrap();
                assert_eq!(response.status, 404, "{path}: {}", response.json());
            }
        };
        thread::scope(|scope| BEYOND.map(|number| scope.spawn(move || attack(number))).map(drop));
    });
    gate.stop();
}

#[test]
fn every_route_refuses_numbers_out_of_range_with_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let mut client = gate.client();
    for number in BEYOND {
        for (path, status) in [
            (format!("/v1/receipts/rcp-{tag}-{number}"), 400),
            (format!("/v1/intents/rcp-{tag}-{number}"), 400),
            (format!("/v1/admissions?after={number}"), 400),
            (format!("/v1/admissions?after=rcp-{tag}-{number}"), 400),
            (format!("/v1/quarantine?after={number}"), 400),
            (format!("/v1/quarantine?after=rcp-{tag}-{number}"), 400),
            (format!("/v1/reconcile?after={number}"), 400),
            (format!("/v1/events/default?after={number}"), 400),
            (format!("/v1/events/default?after=rcp-{tag}-{number}"), 400),
            (format!("/v1/inbox?after={number}"), 400),
            (format!("/v1/inbox/rcp-{tag}-{number}"), 404),
            (format!("/v1/rounds?after={number}:rnd-1"), 400),
            (format!("/v1/receipts/{number}?door=skyra"), 404),
        ] {
            let response = client.send("GET", &path, &[], b"").unwrap();
            assert_eq!(response.status, status, "{path}: {}", response.json());
            assert!(response.json()["error"]["code"].is_string(), "{path}");
        }
        let watch = [("Accept", "text/event-stream"), ("Last-Event-ID", number)];
        let response = client.send("GET", DOOR, &watch, b"").unwrap();
        assert_eq!(response.status, 400, "{}", response.json());
    }
    assert!(!gate.stderr().contains("ERROR"), "{}", gate.stderr());
    gate.stop();
}

#[test]
fn a_command_refuses_a_sequence_number_out_of_range_before_any_request() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let data = folder.path().to_str().expect("a path of text");
    for number in BEYOND {
        let id = format!("rcp-{tag}-{number}");
        for arguments in [
            &["receipts", "get", &id][..],
            &["receipts", "list", "--after", &id],
            &["quarantine", "list", "--after", &id],
            &["intents", "show", &id],
            &["intents", "list", "--after", &id],
            &["replay", &id],
            &["inbox", "list", "--after", number],
            &["rounds", "unlinked", "--after", &id],
        ] {
            let output = admit(arguments.iter().copied().chain(["--data", data])).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        }
    }
    assert!(!gate.stderr().contains("ERROR"), "{}", gate.stderr());
    gate.stop();
}

/// Hostile values for path and query parameters.
fn values(tag: &str) -> Vec<String> {
    let mut values: Vec<String> = [
        "-1",
        "0",
        "1e400",
        "%00",
        "%FF%FE",
        "..%2F..%2Fetc",
        "%2E%2E",
        "'%22;--",
        "%F0%9F%A6%80",
        "%7B%7D",
        "null",
        "rnd-0",
        "claim",
    ]
    .map(str::to_owned)
    .to_vec();
    for number in BEYOND.into_iter().chain(["9223372036854775807", "-9223372036854775808"]) {
        values.push(number.to_owned());
        values.push(format!("rcp-{tag}-{number}"));
        values.push(format!("{number}:rnd-{number}"));
    }
    values.push("a".repeat(4_000));
    values.push("0".repeat(64));
    values
}

/// Hostile request bodies.
fn bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "{",
        "[]",
        "null",
        "5",
        "\"x\"",
        "[\"hostile\",5]",
        "{\"consumer\":5}",
        "{\"consumer\":\"x\",\"max\":18446744073709551616}",
        "{\"consumer\":\"x\",\"max\":-1}",
        "{\"consumer\":\"x\",\"lease_seconds\":18446744073709551615}",
        "{\"consumer\":\"\\u0000\"}",
        "{\"status\":\"extended\",\"lease\":\"zz\"}",
        "{\"status\":[],\"lease\":{}}",
        "{\"reason\":1e400}",
        "{\"how\":[],\"reason\":\"x\"}",
        "{\"manifest\":{\"x\":18446744073709551616},\"reason\":\"x\"}",
        "{\"resolution\":\"found\",\"partition\":-1,\"offset\":{},\"reason\":\"x\"}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    bodies.push(vec![0xff, 0xfe, 0]);
    bodies.push("[".repeat(20_000).into_bytes());
    bodies
}

/// Returns the names of a route's query parameters.
fn query_names(document: &Value, route: &Route) -> Vec<String> {
    let parameters = operation(document, route)["parameters"].as_array().cloned();
    let resolved = parameters.unwrap_or_default().into_iter().filter_map(|parameter| {
        let pointer = parameter["$ref"].as_str().and_then(|link| link.strip_prefix('#'));
        pointer.map_or(Some(parameter.clone()), |pointer| document.pointer(pointer).cloned())
    });
    let in_query = resolved.filter(|parameter| parameter["in"] == "query");
    in_query.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
}

/// Sends all hostile requests to one route; returns their number.
fn assault(gate: &Gate, document: &Value, route: &Route, tag: &str) -> usize {
    let mut client = gate.client();
    let mut requests: Vec<(String, Vec<u8>)> = Vec::new();
    let values = values(tag);
    let parameters = route.path.matches('{').count();
    for value in values.iter().filter(|_| parameters > 0) {
        requests.push((path(route, &[value, value]), route.body.into()));
        if parameters > 1 {
            requests.push((path(route, &["default", value]), route.body.into()));
        }
    }
    let plain = path(route, &["default", "x"]);
    for name in query_names(document, route) {
        for value in &values {
            requests.push((format!("{plain}?{name}={value}"), route.body.into()));
        }
        requests.push((format!("{plain}?{name}=1&{name}=1"), route.body.into()));
    }
    requests.push((format!("{plain}?nonsense=%FF"), route.body.into()));
    if route.method == "POST" {
        requests.extend(bodies().into_iter().map(|body| (plain.clone(), body)));
    }
    for (path, body) in &requests {
        let response = send(&mut client, route, path, body);
        let text = String::from_utf8_lossy(&response.body).into_owned();
        let shown: String = path.chars().take(120).collect();
        assert!(response.status < 500, "{} {shown}: {} {text}", route.method, response.status);
        // Messages must be the gate's own, not those of a parser library.
        for foreign in ["deserialize", "expected one of", "invalid type", "at line 1"] {
            assert!(!text.contains(foreign), "{} {shown}: {text}", route.method);
        }
    }
    requests.len()
}

#[test]
fn no_hostile_request_to_any_route_disturbs_producers_or_is_logged_as_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let document = document(&gate);
    with_producers(&gate, || {
        let sent: usize = ROUTES.iter().map(|route| assault(&gate, &document, route, &tag)).sum();
        assert!(sent > 1_000, "only {sent} requests: routes are missing in the table");
    });
    gate.stop();
}

#[test]
fn a_claim_must_be_a_json_object() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    receipt(&post(&gate, DOOR, &[("Idempotency-Key", "one")], "{}"));
    for path in ["/v1/events/default/claim", "/v1/inbox/claim"] {
        for body in [r#"["taker",1,60]"#, "[]", r#"{"consumer":"taker","what":1}"#, "taker"] {
            let response = post(&gate, path, &[], body);
            let reply = response.json();
            assert_eq!(response.status, 400, "{path} {body}: {reply}");
            let message = reply["error"]["message"].as_str().expect("a message");
            assert!(message.contains("a claim is a JSON object"), "{message}");
        }
    }
    let held = gate.client().get("/v1/events/default");
    assert_eq!(held["events"].as_array().map(Vec::len), Some(1));
    let claimed = post(&gate, "/v1/events/default/claim", &[], r#"{"consumer":"taker"}"#).json();
    assert_eq!(claimed["events"][0]["attempt"], 1, "an invalid claim took the event: {claimed}");
    gate.stop();
}

#[test]
fn an_invalid_query_is_refused_with_the_name_of_the_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    for (path, wanted) in [
        ("/v1/admissions?limit=many", "limit cannot be \"many\""),
        ("/v1/admissions?colour=red", "there is no parameter \"colour\" here"),
        ("/v1/inbox?limit=1&limit=2", "a parameter is given more than once"),
        ("/v1/rounds/relink?dry_run=perhaps", "dry_run cannot be \"perhaps\""),
    ] {
        let method = if path.contains("relink") { "POST" } else { "GET" };
        let response = client.send(method, path, &[], b"").unwrap();
        let reply = response.json();
        assert_eq!(response.status, 400, "{path}: {reply}");
        let message = reply["error"]["message"].as_str().expect("a message");
        assert_eq!(message, format!("the query cannot be read: {wanted}"), "{path}");
    }
    gate.stop();
}
