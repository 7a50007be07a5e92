//! Reading streams: pagination, long polling, server-sent events, and exclusive claims.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::events::{DOOR, configured, post, receipt};
use crate::support::TIMEOUT;
use crate::support::gate::{Gate, Launch};
use crate::support::http::HttpResponse;

fn send(gate: &Gate, number: u32) -> String {
    let key = format!("n-{number}");
    receipt(&post(gate, DOOR, &[("Idempotency-Key", &key)], &format!("{{\"n\":{number}}}")))
}

fn numbers(page: &Value) -> Vec<u64> {
    let events = page["events"].as_array().expect("a page");
    events.iter().map(|event| event["data"]["n"].as_u64().expect("a number")).collect()
}

fn refused(response: &HttpResponse, status: u16, code: &str) {
    let body = response.json();
    assert_eq!((response.status, &body["error"]["code"]), (status, &json!(code)), "{body}");
}

#[test]
fn a_reader_resumes_at_its_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let ids: Vec<String> = (0..5).map(|number| send(&gate, number)).collect();
    let mut client = gate.client();
    let page = client.get("/v1/events/default?limit=2");
    assert_eq!((numbers(&page), &page["more"]), (vec![0, 1], &json!(true)));
    let after = page["next_after"].as_u64().expect("a cursor");
    let page = client.get(&format!("{DOOR}?after={after}"));
    assert_eq!((numbers(&page), &page["more"]), (vec![2, 3, 4], &json!(false)));
    let page = client.get(&format!("{DOOR}?after={}", ids[3]));
    assert_eq!(numbers(&page), [4]);
    let event = &page["events"][0];
    assert_eq!(event["receipt_id"], *ids[4]);
    assert_eq!((&event["principal"], &event["idempotency_key"]), (&json!("local"), &json!("n-4")));
    let end = page["next_after"].as_u64().expect("a cursor");
    let page = client.get(&format!("{DOOR}?after={end}"));
    assert_eq!((numbers(&page), page["next_after"].as_u64()), (vec![], Some(end)));
    for query in ["after=yesterday", "limit=0", "wait_ms=30001", "x=1"] {
        let response = client.send("GET", &format!("{DOOR}?{query}"), &[], b"").unwrap();
        refused(&response, 400, "invalid_request");
    }
    let response = client.send("GET", "/v1/events/nowhere", &[], b"").unwrap();
    refused(&response, 404, "not_found");
}

#[test]
fn a_long_poll_returns_as_soon_as_an_event_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let begun = Instant::now();
    assert!(numbers(&gate.client().get(&format!("{DOOR}?wait_ms=50"))).is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(50));
    let page = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.client().get(&format!("{DOOR}?wait_ms=9000")));
        send(&gate, 7);
        waiting.join().unwrap()
    });
    assert_eq!(numbers(&page), [7]);
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let waiting = scope.spawn(|| {
            gate.client().send("GET", &format!("{DOOR}?after=99&wait_ms=9000"), &[], b"")
        });
        gate.terminate();
        // Either the poll was cut short, or the gate had closed the port before it.
        drop(waiting.join().unwrap());
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "a shutdown must not wait for long polls"
        );
    });
    assert!(gate.wait_for_exit().status.success());
}

/// Client of a server-sent event stream.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    fn on(gate: &Gate, query: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(gate.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "GET {DOOR}{query} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{headers}\r\n",
            gate.address()
        );
        stream.write_all(head.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).unwrap();
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Reads the next event: its id and data.
    fn event(&mut self) -> (u64, Value) {
        let mut id = None;
        loop {
            let line = self.line().expect("the stream ended");
            if let Some(text) = line.strip_prefix("id: ") {
                id = text.parse().ok();
            } else if let Some(text) = line.strip_prefix("data: ") {
                return (id.expect("no id before the data"), serde_json::from_str(text).unwrap());
            }
        }
    }
}

#[test]
fn a_watcher_gets_events_live_and_resumes_at_its_last_id() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    send(&gate, 0);
    let mut watcher = Watcher::on(&gate, "", "");
    let (first, event) = watcher.event();
    assert_eq!(event["data"]["n"], 0);
    for number in 1..4 {
        send(&gate, number);
        assert_eq!(watcher.event().1["data"]["n"], number);
    }
    let mut again = Watcher::on(&gate, "?after=0", &format!("Last-Event-ID: {first}\r\n"));
    assert_eq!(again.event().1["data"]["n"], 1);
    gate.terminate();
    while watcher.line().is_some() {}
    assert!(gate.wait_for_exit().status.success(), "a shutdown must end its watchers");
}

#[test]
fn a_watch_ends_at_its_time_limit_and_the_gate_keeps_running() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).variable("ADMIT_LIMITS__WATCH_MS_MAX", "200").start();
    send(&gate, 0);
    let mut watcher = Watcher::on(&gate, "", "Connection: close\r\n");
    assert_eq!(watcher.event().1["data"]["n"], 0);
    let begun = Instant::now();
    while watcher.line().is_some() {}
    assert!(begun.elapsed() < TIMEOUT, "the gate must end the watch");
    assert!(gate.is_ready());
}

fn claim(gate: &Gate, body: &Value) -> Value {
    let path = "/v1/events/default/claim";
    let body = body.to_string();
    let response = gate.client().send("POST", path, &[], body.as_bytes()).expect("a response");
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    response.json()
}

fn set_status(gate: &Gate, event: &Value, status: &str) -> HttpResponse {
    let path = format!("/v1/events/default/{}", event["receipt_id"].as_str().expect("an id"));
    let body = json!({ "status": status, "lease": event["lease"] }).to_string();
    gate.client().send("POST", &path, &[], body.as_bytes()).expect("a response")
}

#[test]
fn claimed_events_have_one_consumer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    (0..4).for_each(|number| drop(send(&gate, number)));
    let one = claim(&gate, &json!({ "consumer": "a", "max": 2, "lease_seconds": 60 }));
    assert_eq!(numbers(&one), [0, 1]);
    let two = claim(&gate, &json!({ "consumer": "b", "max": 9 }));
    assert_eq!(numbers(&two), [2, 3], "claimed events must not be claimed again");
    assert!(numbers(&claim(&gate, &json!({ "consumer": "c" }))).is_empty());
    let (first, second) = (&one["events"][0], &one["events"][1]);
    let done = set_status(&gate, first, "done");
    assert_eq!((done.status, done.json()["status"].clone()), (200, json!("done")));
    let again = set_status(&gate, first, "done");
    assert_eq!((again.status, again.json()["finished_before"].clone()), (200, json!(true)));
    assert_eq!(again.json()["status"], "done");
    for other in ["failed", "released", "extended"] {
        let response = set_status(&gate, first, other);
        refused(&response, 409, "lease_lost");
        let detail = response.json().to_string();
        assert!(detail.contains("finished before as done"), "{detail}");
    }
    let extended = set_status(&gate, second, "extended");
    assert_eq!(extended.status, 200);
    let until = extended.json()["lease_expires_at"].as_str().expect("a time").to_owned();
    assert!(until.as_str() > second["lease_expires_at"].as_str().unwrap(), "{until}");
    assert_eq!(set_status(&gate, second, "released").status, 200);
    refused(&set_status(&gate, second, "done"), 409, "lease_lost");
    let back = claim(&gate, &json!({ "consumer": "c", "max": 9 }));
    assert_eq!(numbers(&back), [1]);
    assert_eq!(back["events"][0]["attempt"], 2);
    assert_eq!(set_status(&gate, &back["events"][0], "failed").status, 200);
    let again = set_status(&gate, &back["events"][0], "failed").json();
    assert_eq!((&again["status"], &again["finished_before"]), (&json!("failed"), &json!(true)));
    let mut stranger = back["events"][0].clone();
    stranger["lease"] = json!("0".repeat(32));
    let response = set_status(&gate, &stranger, "done");
    refused(&response, 409, "lease_lost");
    let detail = response.json().to_string();
    assert!(detail.contains("finished before as failed"), "{detail}");
    stranger["receipt_id"] = json!("rcp-00000000-1");
    refused(&set_status(&gate, &stranger, "done"), 404, "not_found");
    for body in ["{}", "{\"consumer\":\"\"}", "{\"consumer\":\"a\",\"max\":0}", "nonsense"] {
        let path = "/v1/events/default/claim";
        let response = gate.client().send("POST", path, &[], body.as_bytes()).unwrap();
        refused(&response, 400, "invalid_request");
    }
}

#[test]
fn a_consumer_needs_the_role_read_and_has_access_only_to_its_doors() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(
        folder.path(),
        "[[doors.events]]\n[[doors.events]]\nname = \"other\"\n\
         [[principals]]\nname = \"sender\"\nkeys = [\"sender-key-long-enough\"]\n\
         [[principals]]\nname = \"reader\"\nkeys = [\"reader-key-long-enough\"]\nrole = \"read\"\n\
         doors = [\"events/default\"]\n",
    );
    let bearer = |key: &'static str| ("Authorization", format!("Bearer {key}"));
    let get = |key, path: &str| {
        let (name, value) = bearer(key);
        gate.client().send("GET", path, &[(name, &value)], b"").expect("a response").status
    };
    assert_eq!(get("reader-key-long-enough", DOOR), 200);
    assert_eq!(get("reader-key-long-enough", "/v1/events/other"), 403);
    assert_eq!(get("sender-key-long-enough", DOOR), 403);
    assert_eq!(get("x", DOOR), 401);
    let (name, value) = bearer("reader-key-long-enough");
    let response = post(&gate, DOOR, &[(name, &value), ("Idempotency-Key", "k")], "{}");
    assert_eq!(response.status, 403);
}
