//! Readers, consumers and operators that ask for what cannot be: each gets a typed refusal, the ledger
//! stays ready and no producer's event is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::routes::{ROUTES, Route, document, operation, path};
use crate::events::{DOOR, post, receipt};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, admit};
use crate::support::http::{Answer, Client};

/// Numbers beyond what a ledger can count.
const BEYOND: [&str; 3] = ["18446744073709551615", "9223372036854775808", "18446744073709551616"];

/// The tag of the gate's ledger, as its receipts show it.
fn tag(gate: &Gate) -> String {
    let id = receipt(&post(gate, DOOR, &[("Idempotency-Key", "tag")], "{}"));
    id.split('-').nth(1).expect("a receipt id has a tag").to_owned()
}

/// A producer that sends one event after the other until it is told to stop; each must be taken.
fn produce(gate: &Gate, producer: u64, stop: &AtomicBool) -> u64 {
    let mut client = gate.client();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let event = match_begin(producer * 1_000_000 + sent, "neighbour");
        let said = client.say(&event);
        assert!(said.is_processed(), "a neighbour's event is refused: {said:?}");
        sent += 1;
    }
    sent
}

/// Runs `attack` while two producers send, and holds that none of their events was refused, that the
/// gate stayed ready and that it logged no error.
fn beside_producers(gate: &Gate, attack: impl FnOnce()) {
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
            assert!(producer.join().expect("no event is refused") > 0, "a neighbour was starved");
        }
        if let Err(panic) = attacked {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(gate.is_ready(), "the gate stays ready");
    let log = gate.stderr();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "nothing a peer asks for is an error of the gate: {errors:#?}");
}

fn send(client: &mut Client, route: &Route, path: &str, body: &[u8]) -> Answer {
    let answer = client.send(route.method, path, &[], body);
    answer.unwrap_or_else(|error| panic!("{} {path}: {error}", route.method))
}

#[test]
fn a_place_that_no_ledger_has_is_refused_and_costs_no_producer_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let change = json!({ "status": "done", "lease": "0".repeat(32) }).to_string();
    beside_producers(&gate, || {
        let attack = |number: &str| {
            let mut client = gate.client();
            for _ in 0..20 {
                let path = format!("{DOOR}/default/rcp-{tag}-{number}");
                let answer = client.send("POST", &path, &[], change.as_bytes()).unwrap();
                assert_eq!(answer.status, 404, "{path}: {}", answer.json());
            }
        };
        thread::scope(|scope| BEYOND.map(|number| scope.spawn(move || attack(number))).map(drop));
    });
    gate.stop();
}

#[test]
fn every_route_refuses_numbers_beyond_the_ledger_in_typed_words() {
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
            let answer = client.send("GET", &path, &[], b"").unwrap();
            assert_eq!(answer.status, status, "{path}: {}", answer.json());
            assert!(answer.json()["error"]["code"].is_string(), "{path}");
        }
        let watch = [("Accept", "text/event-stream"), ("Last-Event-ID", number)];
        let answer = client.send("GET", DOOR, &watch, b"").unwrap();
        assert_eq!(answer.status, 400, "{}", answer.json());
    }
    assert!(!gate.stderr().contains("ERROR"), "{}", gate.stderr());
    gate.stop();
}

#[test]
fn a_command_refuses_a_place_that_no_ledger_has_before_it_asks() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let data = folder.path().to_str().expect("a path of text");
    for number in BEYOND {
        let id = format!("rcp-{tag}-{number}");
        for words in [
            &["receipts", "get", &id][..],
            &["receipts", "list", "--after", &id],
            &["quarantine", "list", "--after", &id],
            &["intents", "show", &id],
            &["intents", "list", "--after", &id],
            &["replay", &id],
            &["inbox", "list", "--after", number],
            &["rounds", "unlinked", "--after", &id],
        ] {
            let output = admit(words.iter().copied().chain(["--data", data])).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        }
    }
    assert!(!gate.stderr().contains("ERROR"), "{}", gate.stderr());
    gate.stop();
}

/// What no well-meaning client puts into a path or a query.
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

/// What no well-meaning client puts into a body.
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

/// The names of the parameters that a route reads from its query.
fn query_names(document: &Value, route: &Route) -> Vec<String> {
    let parameters = operation(document, route)["parameters"].as_array().cloned();
    let resolved = parameters.unwrap_or_default().into_iter().filter_map(|parameter| {
        let pointer = parameter["$ref"].as_str().and_then(|link| link.strip_prefix('#'));
        pointer.map_or(Some(parameter.clone()), |pointer| document.pointer(pointer).cloned())
    });
    let in_query = resolved.filter(|parameter| parameter["in"] == "query");
    in_query.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
}

/// Sends everything hostile to one route; returns how many requests that were.
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
        let answer = send(&mut client, route, path, body);
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let shown: String = path.chars().take(120).collect();
        assert!(answer.status < 500, "{} {shown}: {} {said}", route.method, answer.status);
        // Messages are the gate's own words, not those of a library it reads with.
        for foreign in ["deserialize", "expected one of", "invalid type", "at line 1"] {
            assert!(!said.contains(foreign), "{} {shown}: {said}", route.method);
        }
    }
    requests.len()
}

#[test]
fn nothing_that_any_route_is_asked_for_disturbs_a_producer_or_is_an_error_of_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let tag = tag(&gate);
    let document = document(&gate);
    beside_producers(&gate, || {
        let sent: usize = ROUTES.iter().map(|route| assault(&gate, &document, route, &tag)).sum();
        assert!(sent > 1_000, "only {sent} requests: the table is not what it was");
    });
    gate.stop();
}

#[test]
fn a_claim_is_a_json_object_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    receipt(&post(&gate, DOOR, &[("Idempotency-Key", "one")], "{}"));
    for path in ["/v1/events/default/claim", "/v1/inbox/claim"] {
        for body in [r#"["taker",1,60]"#, "[]", r#"{"consumer":"taker","what":1}"#, "taker"] {
            let answer = post(&gate, path, &[], body);
            let said = answer.json();
            assert_eq!(answer.status, 400, "{path} {body}: {said}");
            let message = said["error"]["message"].as_str().expect("a message");
            assert!(message.contains("a claim is a JSON object"), "{message}");
        }
    }
    let held = gate.client().get("/v1/events/default");
    assert_eq!(held["events"].as_array().map(Vec::len), Some(1));
    let claimed = post(&gate, "/v1/events/default/claim", &[], r#"{"consumer":"taker"}"#).json();
    assert_eq!(claimed["events"][0]["attempt"], 1, "no array claimed it before: {claimed}");
    gate.stop();
}

#[test]
fn a_wrong_query_is_told_which_parameter_is_wrong() {
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
        let answer = client.send(method, path, &[], b"").unwrap();
        let said = answer.json();
        assert_eq!(answer.status, 400, "{path}: {said}");
        let message = said["error"]["message"].as_str().expect("a message");
        assert_eq!(message, format!("the query cannot be read: {wanted}"), "{path}");
    }
    gate.stop();
}
