//! Edge devices: acknowledged over WebSocket, gRPC and HTTP alike, and only once stored.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::gate::{Gate, Launch};
use crate::support::grpc::GrpcClient;
use crate::support::skyra::{DOOR, Wire, assert_acked, assert_nacked, envelope, id, inbox, text};
use crate::support::ws::{BINARY, CLOSE, Frame, PING, PONG, Socket, TEXT};
use crate::support::{ledger, sql};

#[test]
fn a_valid_envelope_is_one_row_and_every_copy_gets_the_same_ack() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for (mut wire, n) in Wire::all(&gate).into_iter().zip(1..) {
        let body = text(n);
        assert_acked(&wire.submit(body.as_bytes()), &id(n));
        let rows = inbox(folder.path());
        let row = rows.iter().find(|row| row.event_id == id(n)).expect("there is a row");
        assert_eq!((row.status.as_str(), row.payload.as_str()), ("received", body.as_str()));
        assert_eq!(row.received_at, row.last_updated_at);
        assert_acked(&wire.submit(body.as_bytes()), &id(n));
        assert_eq!(inbox(folder.path()), rows, "{}: a copy touches nothing", wire.name());
        let receipt = gate.client().get(&format!("/v1/receipts/{}?door=skyra", id(n)));
        let copies = (&receipt["verdict"], &receipt["duplicate_count"]);
        assert_eq!(copies, (&json!("fresh"), &json!(1)), "{}", wire.name());
    }
    gate.stop();
}

#[test]
fn a_copy_over_another_connection_or_transport_is_acked_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let body = text(1);
    assert_acked(&Socket::open(gate.address()).submit(body.as_bytes()), &id(1));
    let rows = inbox(folder.path());
    for mut wire in Wire::all(&gate) {
        assert_acked(&wire.submit(body.as_bytes()), &id(1));
    }
    assert_acked(&GrpcClient::to(gate.address()).submit(body.as_bytes()).unwrap(), &id(1));
    assert_eq!(inbox(folder.path()), rows);
    gate.kill();
    let gate = Gate::on(folder.path());
    for mut wire in Wire::all(&gate) {
        assert_acked(&wire.submit(body.as_bytes()), &id(1));
    }
    assert_eq!(inbox(folder.path()), rows, "neither does a restart");
    gate.stop();
}

#[test]
fn sixty_four_concurrent_copies_make_one_row_and_sixty_four_acks() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    thread::scope(|scope| {
        let address = gate.address();
        for at in 0..64 {
            scope.spawn(move || {
                let body = text(1);
                let answer = match at % 2 {
                    0 => Socket::open(address).submit(body.as_bytes()),
                    _ => GrpcClient::to(address).submit(body.as_bytes()).unwrap(),
                };
                assert_acked(&answer, &id(1));
            });
        }
    });
    assert_eq!(inbox(folder.path()).len(), 1);
    gate.stop();
}

#[test]
fn other_content_under_a_known_id_is_acked_the_first_stays_and_the_conflict_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for (mut wire, n) in Wire::all(&gate).into_iter().zip(1..) {
        let body = text(n);
        assert_acked(&wire.submit(body.as_bytes()), &id(n));
        let before = inbox(folder.path());
        let mut other = envelope(n);
        other["payload"]["user_text"] = "something else".into();
        assert_acked(&wire.submit(other.to_string().as_bytes()), &id(n));
        assert_eq!(inbox(folder.path()), before, "{}: the first is kept", wire.name());
        let listed = gate.client().get("/v1/quarantine?door=skyra&verdict=conflict");
        let found = listed["quarantine"].as_array().unwrap().iter();
        let of = |kept: &&Value| kept["facts"]["event_id"] == id(n);
        assert_eq!(found.filter(of).count(), 1, "{}: {listed}", wire.name());
    }
    gate.stop();
}

#[test]
fn a_missing_empty_or_mistyped_member_is_nacked_and_stores_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let members = ["event_id", "type", "ts", "session_id", "device_id", "payload"];
    for mut wire in Wire::all(&gate) {
        for member in members {
            let mut wrong = vec![json!(null), json!(""), json!(7), json!([])];
            if member == "ts" {
                let none = ["yesterday", "2026-02-16T23:10Z", "2026-02-16 23:10:21Z", "2026-02-16"];
                wrong.extend(none.map(|text| json!(text)));
            }
            let mut bodies: Vec<Value> = wrong
                .into_iter()
                .map(|value| {
                    let mut body = envelope(1);
                    body[member] = value;
                    body
                })
                .collect();
            let mut without = envelope(1);
            without.as_object_mut().unwrap().remove(member);
            bodies.push(without);
            for body in bodies {
                let answer = wire.submit(body.to_string().as_bytes());
                let event_id = (member != "event_id").then(|| id(1));
                let message = assert_nacked(&answer, event_id.as_deref(), "invalid_envelope");
                assert!(message.starts_with("invalid envelope: "), "{message}");
                assert!(message.contains(member), "{}: {body} -> {message}", wire.name());
            }
        }
        assert!(inbox(folder.path()).is_empty(), "{}", wire.name());
    }
    gate.stop();
}

#[test]
fn a_missing_schema_version_and_unknown_members_are_accepted_and_stored() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for (mut wire, n) in Wire::all(&gate).into_iter().zip(1..) {
        let mut body = envelope(n);
        body.as_object_mut().unwrap().remove("schema_version");
        body["type"] = "unknown.type".into();
        body["turn_id"] = "turn_7".into();
        // Not equal to 1 for the producer, so a different content.
        body["payload"]["count"] = json!(1.0);
        let body = body.to_string();
        assert_acked(&wire.submit(body.as_bytes()), &id(n));
        assert!(inbox(folder.path()).iter().any(|row| row.payload == body), "{}", wire.name());
    }
    gate.stop();
}

#[test]
fn a_bad_frame_is_nacked_with_a_null_id_and_its_neighbours_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let bad: [&[u8]; 6] =
        [b"not json", b"[1,2]", b"{\"event_id\":\"evt_1\"", b"\xff\xfe{}", b"", b"\"text\""];
    for (mut wire, n) in Wire::all(&gate).into_iter().zip(1..) {
        for body in bad {
            let message = assert_nacked(&wire.submit(body), None, "invalid_envelope");
            assert!(message.starts_with("invalid envelope: "), "{message}");
        }
        assert_acked(&wire.submit(text(n).as_bytes()), &id(n));
    }
    let mut socket = Socket::open(gate.address());
    socket.send(BINARY, text(9).as_bytes()).unwrap();
    assert_nacked(&socket.next_reply().unwrap(), None, "invalid_envelope");
    // Pipelined without waiting: valid events before and after the invalid one are stored.
    socket.send_all(&[text(10), "{".to_owned(), text(11)]).unwrap();
    let answers: Vec<Value> = (0..3).map(|_| socket.next_reply().unwrap()).collect();
    let acked = |n: u64| answers.iter().any(|a| a["event_id"] == id(n) && a["status"] == "stored");
    assert!(acked(10) && acked(11), "{answers:?}");
    assert_eq!(inbox(folder.path()).len(), 5);
    gate.stop();
}

#[test]
fn a_client_that_pipelines_many_events_gets_every_ack_once() {
    const EVENTS: u64 = 3_000;
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path());
    let gate = launch.variable("ADMIT_LIMITS__STREAM_IN_FLIGHT_MAX", "100").start();
    let bodies: Vec<String> = (0..EVENTS).map(text).collect();
    let mut socket = Socket::open(gate.address());
    socket.send_all(&bodies).unwrap();
    let mut acked: Vec<String> = (0..EVENTS)
        .map(|_| socket.next_reply().unwrap()["event_id"].as_str().unwrap().to_owned())
        .collect();
    acked.sort_unstable();
    assert_eq!(acked, (0..EVENTS).map(id).collect::<Vec<_>>());

    let mut caller = GrpcClient::to(gate.address());
    let mut call = caller.open_stream().unwrap();
    for n in EVENTS..2 * EVENTS {
        call.send(text(n).as_bytes());
    }
    call.end();
    let mut acked = Vec::new();
    while let Some(answer) = caller.next_reply(&mut call).unwrap() {
        acked.push(answer["event_id"].as_str().unwrap().to_owned());
    }
    acked.sort_unstable();
    assert_eq!(acked, (EVENTS..2 * EVENTS).map(id).collect::<Vec<_>>());
    assert_eq!(inbox(folder.path()).len() as u64, 2 * EVENTS);
    gate.stop();
}

#[test]
fn an_event_that_is_too_large_is_nacked_and_the_connection_stays_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__BODY_BYTES_MAX", "2000")
        .variable("ADMIT_LIMITS__EXCESS_BYTES_MAX", "100000")
        .start();
    let mut large = envelope(1);
    large["payload"]["user_text"] = "x".repeat(3_000).into();
    let large = large.to_string();
    for (mut wire, n) in Wire::all(&gate).into_iter().zip(1..) {
        assert_nacked(&wire.submit(large.as_bytes()), None, "too_large");
        assert_acked(&wire.submit(text(n).as_bytes()), &id(n));
    }
    // A message that never ends is not read to its end.
    let mut socket = Socket::open(gate.address());
    socket.send(TEXT, &vec![b'x'; 200_000]).unwrap_or_default();
    assert_nacked(&socket.next_reply().unwrap(), None, "too_large");
    let last = socket.read().unwrap();
    assert_eq!((last.first, &last.payload[..2]), (CLOSE, &1009_u16.to_be_bytes()[..]));
    gate.stop();
}

#[test]
fn connections_without_a_key_are_refused_on_every_transport() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("admit.toml");
    let key = "a-key-that-is-long-enough";
    std::fs::write(
        &config,
        format!(
            "[[principals]]\nname = \"pi\"\nkeys = [\"{key}\"]\ndoors = [\"skyra\"]\n\
             [[principals]]\nname = \"reader\"\nkeys = [\"another-key-that-is-long\"]\nrole = \"read\"\n"
        ),
    )
    .unwrap();
    let data = folder.path().join("data");
    let gate = Launch::on(&data).argument("--config").argument(&config).start();
    let answer = Socket::connect(gate.address(), &[]).err().expect("no socket without a key");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let nack = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_nacked(&nack, None, "unauthorized");
    let reader = [("Authorization", "Bearer another-key-that-is-long")];
    let answer = Socket::connect(gate.address(), &reader).err().expect("a reader does not send");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let status = GrpcClient::to(gate.address()).submit(text(1).as_bytes()).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    let status =
        GrpcClient::to(gate.address()).with_key("wrong").open_stream().err().expect("no stream");
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    let post = gate.client().send("POST", DOOR, &[], text(1).as_bytes()).unwrap();
    assert_nacked(&post.json(), None, "unauthorized");
    assert!(inbox(&data).is_empty());

    let mut socket =
        Socket::connect(gate.address(), &[("X-API-Key", key)]).expect("a key opens it");
    assert_acked(&socket.submit(text(1).as_bytes()), &id(1));
    let mut caller = GrpcClient::to(gate.address()).with_key(key);
    assert_acked(&caller.submit(text(1).as_bytes()).unwrap(), &id(1));
    gate.stop();
}

#[test]
fn an_event_over_the_rate_limit_is_nacked_with_its_id_and_accepted_later() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path());
    let gate = launch.variable("ADMIT_LIMITS__REQUESTS_PER_SECOND_MAX", "5").start();
    let mut socket = Socket::open(gate.address());
    let bodies: Vec<String> = (0..50).map(text).collect();
    socket.send_all(&bodies).unwrap();
    let answers: Vec<Value> = (0..50).map(|_| socket.next_reply().unwrap()).collect();
    let (acked, nacked): (Vec<&Value>, Vec<&Value>) =
        answers.iter().partition(|answer| answer["status"] == "stored");
    assert!(!acked.is_empty() && nacked.len() >= 20, "{} acked", acked.len());
    for nack in nacked {
        assert_nacked(nack, nack["event_id"].as_str(), "rate_limited");
        assert!(nack["event_id"].is_string(), "the sender can identify it: {nack}");
    }
    let mut stored = acked.len();
    let mut client = gate.client();
    let mut named = 0;
    for n in 100..150 {
        let answer = client.send("POST", DOOR, &[], text(n).as_bytes()).unwrap().json();
        if answer["status"] == "stored" {
            stored += 1;
            continue;
        }
        assert_nacked(&answer, Some(&id(n)), "rate_limited");
        named += 1;
    }
    assert!(named > 0, "over HTTP it is named too");
    assert_eq!(inbox(folder.path()).len(), stored);
    drop(socket);
    gate.stop();
}

#[test]
fn an_event_delayed_by_a_lock_for_four_seconds_is_acked_after_its_release() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let wires = Wire::all(&gate);
    let held = ledger::LedgerLock::acquire(folder.path());
    thread::scope(|scope| {
        for (mut wire, n) in wires.into_iter().zip(1..) {
            scope.spawn(move || {
                let answer = wire.submit(text(n).as_bytes());
                assert_acked(&answer, &id(n));
            });
        }
        // Longer than the reply timeout of other doors, shorter than the wait for a lock.
        thread::sleep(Duration::from_millis(4_250));
        assert!(inbox(folder.path()).is_empty(), "the lock was held");
        drop(held);
    });
    assert_eq!(inbox(folder.path()).len(), 3);
    gate.stop();
}

#[test]
fn on_shutdown_accepted_events_are_acked_before_a_close_frame_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut socket = Socket::open(gate.address());
    let mut caller = GrpcClient::to(gate.address());
    let mut call = caller.open_stream().unwrap();
    assert_acked(&socket.submit(text(0).as_bytes()), &id(0));
    assert_acked(&caller.submit_on(&mut call, text(1_000).as_bytes()), &id(1_000));
    let bodies: Vec<String> = (1..500).map(text).collect();
    socket.send_all(&bodies).unwrap();
    for n in 1_001..1_500 {
        call.send(text(n).as_bytes());
    }
    gate.terminate();
    let mut acked = vec![id(0), id(1_000)];
    let goodbye = loop {
        let frame = socket.read().expect("the gate says goodbye");
        match frame.first {
            TEXT => {
                let answer: Value = serde_json::from_slice(&frame.payload).unwrap();
                assert_eq!(answer["status"], "stored", "{answer}");
                acked.push(answer["event_id"].as_str().unwrap().to_owned());
            }
            _ => break frame,
        }
    };
    assert_eq!((goodbye.first, &goodbye.payload[..2]), (CLOSE, &1001_u16.to_be_bytes()[..]));
    let status = loop {
        match caller.next_reply(&mut call) {
            Ok(Some(answer)) => acked.push(answer["event_id"].as_str().unwrap().to_owned()),
            Ok(None) => panic!("a stream that ends early says why"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status}");
    drop((socket, call, caller));
    let ended = gate.wait_for_exit();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let mut stored: Vec<String> =
        inbox(folder.path()).into_iter().map(|row| row.event_id).collect();
    stored.sort_unstable();
    acked.sort_unstable();
    assert_eq!(stored, acked, "everything that was taken was acked, nothing else was taken");
}

#[test]
fn a_websocket_replies_to_pings_and_close_frames_and_refuses_plain_requests() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut socket = Socket::open(gate.address());
    socket.send(PING, b"are you there").unwrap();
    let pong = Frame { first: PONG, payload: b"are you there".to_vec() };
    assert_eq!(socket.read().unwrap(), pong);
    socket.send(TEXT, text(1).as_bytes()).unwrap();
    socket.send(CLOSE, &1000_u16.to_be_bytes()).unwrap();
    assert_acked(&socket.next_reply().unwrap(), &id(1));
    assert_eq!(socket.read().unwrap(), Frame { first: CLOSE, payload: vec![0x03, 0xe8] });
    assert!(socket.read().is_err(), "that was the end");

    let mut client = gate.client();
    let plain = client.send("GET", DOOR, &[], b"").unwrap();
    assert_eq!(plain.status, 400);
    assert_nacked(&plain.json(), None, "invalid_request");
    let put = client.send("PUT", DOOR, &[], b"").unwrap();
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, POST")));
    let foreign = Socket::connect(gate.address(), &[("Origin", "http://evil.test")]);
    let refused = foreign.err().expect("no page of others opens a socket");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    gate.stop();
}

#[test]
fn an_idle_peer_is_pinged_and_a_dead_one_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path()).variable("ADMIT_LIMITS__IDLE_MS_MAX", "900");
    let gate = launch.start();
    let mut living = Socket::open(gate.address());
    for _ in 0..5 {
        let ping = living.read().unwrap();
        assert_eq!(ping.first, PING);
        living.send(PONG, &ping.payload).unwrap();
    }
    assert_acked(&living.submit(text(1).as_bytes()), &id(1));
    let mut dead = Socket::open(gate.address());
    assert_eq!(dead.read().unwrap().first, PING);
    let last = dead.read().unwrap();
    assert_eq!((last.first, &last.payload[..2]), (CLOSE, &1001_u16.to_be_bytes()[..]));
    gate.stop();
}

#[test]
fn a_peer_that_reads_no_replies_is_throttled_and_disconnected_without_affecting_others() {
    const PINGS: usize = 1_000_000;
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path()).variable("ADMIT_LIMITS__WRITE_MS_MAX", "500");
    let gate = launch.start();
    let mut deaf = Socket::open(gate.address());
    // Each request gets a reply of its own size, and none is read.
    let cut_off = (0..PINGS).find(|_| deaf.send(PING, &[b'x'; 125]).is_err());
    assert!(cut_off.is_some(), "a peer that never reads is disconnected");
    assert_acked(&Socket::open(gate.address()).submit(text(1).as_bytes()), &id(1));
    gate.stop();
}

#[test]
fn an_endless_message_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path()).variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "300");
    let gate = launch.start();
    let mut socket = Socket::open(gate.address());
    assert_acked(&socket.submit(text(1).as_bytes()), &id(1));
    // The head of a frame without its payload.
    socket.send_bytes(&[TEXT, 0x80 | 100, 0, 0, 0, 0]).unwrap();
    let last = socket.read().unwrap();
    assert_eq!((last.first, &last.payload[..2]), (CLOSE, &1008_u16.to_be_bytes()[..]));
    gate.stop();
}

#[test]
fn the_ddl_of_the_contract_can_be_applied_to_the_ledger_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    assert_acked(&Socket::open(gate.address()).submit(text(1).as_bytes()), &id(1));
    sql::execute(
        folder.path(),
        "CREATE TABLE IF NOT EXISTS event_inbox (
           event_id TEXT PRIMARY KEY, status TEXT NOT NULL, received_at TEXT NOT NULL,
           last_updated_at TEXT NOT NULL, payload TEXT NOT NULL);
         CREATE INDEX IF NOT EXISTS idx_event_inbox_status ON event_inbox(status);
         CREATE INDEX IF NOT EXISTS idx_event_inbox_received_at ON event_inbox(received_at);",
    );
    assert_acked(&Socket::open(gate.address()).submit(text(2).as_bytes()), &id(2));
    assert_eq!(inbox(folder.path()).len(), 2);
    gate.stop();
    ledger::assert_intact(folder.path());
}
