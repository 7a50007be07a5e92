//! The inbox: consumers claim, finish, lose leases and take over; copies of events have no effect.

use std::thread;

use serde_json::{Value, json};

use crate::support::gate::{self, Gate};
use crate::support::http::Client;
use crate::support::skyra::{assert_acked, id, inbox, text};
use crate::support::ws::Socket;
use crate::support::{TIMEOUT, wait_for};

fn post(client: &mut Client, path: &str, body: &Value) -> (u16, Value) {
    let answer = client.send("POST", path, &[], body.to_string().as_bytes()).unwrap();
    (answer.status, answer.json())
}

fn claim(client: &mut Client, consumer: &str, max: u64, lease_seconds: u64) -> Vec<Value> {
    let request = json!({ "consumer": consumer, "max": max, "lease_seconds": lease_seconds });
    let (status, body) = post(client, "/v1/inbox/claim", &request);
    assert_eq!(status, 200, "{body}");
    body["events"].as_array().unwrap().clone()
}

fn settle(client: &mut Client, event: &Value, status: &str) -> (u16, Value) {
    let path = format!("/v1/inbox/{}", event["event_id"].as_str().unwrap());
    post(client, &path, &json!({ "status": status, "lease": event["lease"] }))
}

fn put(gate: &Gate, events: std::ops::Range<u64>) {
    let mut socket = Socket::open(gate.address());
    for n in events {
        assert_acked(&socket.submit(text(n).as_bytes()), &id(n));
    }
}

#[test]
fn an_event_is_claimed_by_one_consumer_finished_once_and_no_copy_moves_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    put(&gate, 0..5);
    let mut client = gate.client();
    let mine = claim(&mut client, "planner-1", 3, 60);
    let theirs = claim(&mut client, "planner-2", 10, 60);
    assert_eq!((mine.len(), theirs.len()), (3, 2), "no event has two holders");
    assert_eq!(mine[0]["event_id"], id(0), "the oldest first");
    assert_eq!(mine[0]["payload"]["payload"]["intent"], "server.log_summary");
    assert_eq!(settle(&mut client, &mine[0], "done").0, 200);
    assert_eq!(settle(&mut client, &mine[1], "failed").0, 200);
    assert_eq!(settle(&mut client, &mine[2], "released").0, 200);
    let (status, again) = settle(&mut client, &mine[0], "done");
    assert_eq!((status, &again["finished_before"]), (200, &json!(true)));
    assert_eq!(settle(&mut client, &mine[0], "failed").1["error"]["code"], "lease_lost");

    let rows = inbox(folder.path());
    put(&gate, 0..5);
    assert_eq!(inbox(folder.path()), rows, "copies touch nothing, whatever the status is");
    for (status, n) in [("done", 1), ("failed", 1), ("received", 1), ("claimed", 2)] {
        let page = client.get(&format!("/v1/inbox?status={status}"));
        assert_eq!(page["events"].as_array().unwrap().len(), n, "{status}: {page}");
    }
    let one = client.get(&format!("/v1/inbox/{}", id(0)));
    assert_eq!((&one["status"], &one["payload"]["event_id"]), (&json!("done"), &json!(id(0))));
    let first = client.get("/v1/inbox?limit=2");
    let rest = client.get(&format!("/v1/inbox?after={}", first["next_after"]));
    assert_eq!(rest["events"].as_array().unwrap().len(), 3, "{first} {rest}");
    let wrong = client.send("GET", "/v1/inbox?status=lost", &[], b"").unwrap();
    assert_eq!(wrong.status, 400);
    let lost = post(
        &mut client,
        "/v1/inbox/evt_none",
        &json!({ "status": "done", "lease": "0".repeat(32) }),
    );
    assert_eq!(lost.0, 404);
    gate.stop();
}

#[test]
fn an_expired_lease_is_taken_over_and_cannot_finish() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    put(&gate, 0..1);
    let mut client = gate.client();
    let first = claim(&mut client, "slow", 1, 1).remove(0);
    let second =
        wait_for("the lease expires", TIMEOUT, || claim(&mut client, "quick", 1, 60).pop());
    assert_eq!((&second["event_id"], &second["attempt"]), (&first["event_id"], &json!(2)));
    let (status, refused) = settle(&mut client, &first, "done");
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("lease_lost")));
    assert_eq!(inbox(folder.path())[0].status, "claimed", "a stale lease changed nothing");
    assert_eq!(settle(&mut client, &second, "done").0, 200);
    assert_eq!(inbox(folder.path())[0].status, "done");
    gate.stop();
}

#[test]
fn concurrent_consumers_never_lease_the_same_event() {
    const EVENTS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    put(&gate, 0..EVENTS);
    let address = gate.address();
    let finished: Vec<String> = thread::scope(|scope| {
        let consumers: Vec<_> = (0..6)
            .map(|at| {
                scope.spawn(move || {
                    let mut client = Client::to(address);
                    let mut finished = Vec::new();
                    loop {
                        let held = claim(&mut client, &format!("c{at}"), 7, 60);
                        if held.is_empty() {
                            return finished;
                        }
                        for event in held {
                            assert_eq!(event["attempt"], 1, "{event}");
                            assert_eq!(settle(&mut client, &event, "done").0, 200);
                            finished.push(event["event_id"].as_str().unwrap().to_owned());
                        }
                    }
                })
            })
            .collect();
        consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect()
    });
    let mut finished = finished;
    finished.sort_unstable();
    assert_eq!(finished, (0..EVENTS).map(id).collect::<Vec<_>>());
    assert!(inbox(folder.path()).iter().all(|row| row.status == "done"));
    gate.stop();
}

/// Runs `admit inbox …`, which must succeed, and returns its output.
fn admit(gate: &Gate, words: &[&str]) -> String {
    let data = gate.data().to_str().unwrap();
    let words = [&["inbox"], words, &["--data", data]].concat();
    let output = gate::admit(&words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_inbox_commands_list_claim_and_finish() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    put(&gate, 0..2);
    let listen = gate.address().to_string();
    let shown = admit(&gate, &["list", "--status", "received"]);
    assert!(shown.contains(&id(0)) && shown.contains("pi-livingroom-01"), "{shown}");
    let claimed = admit(&gate, &["claim", "--consumer", "me", "--listen", &listen, "--json"]);
    let claimed: Value = serde_json::from_str(&claimed).unwrap();
    let lease = claimed["events"][0]["lease"].as_str().unwrap();
    let done = admit(&gate, &["done", &id(0), "--lease", lease, "--listen", &listen]);
    assert_eq!(done, format!("{} done\n", id(0)));
    let listed: Value =
        serde_json::from_str(&admit(&gate, &["list", "--status", "done", "--json"])).unwrap();
    assert_eq!(listed["events"][0]["event_id"], id(0));
    gate.stop();
}
