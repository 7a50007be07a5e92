//! Crashes of the gate, disconnects and disk errors between an envelope and its ACK.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::support::disks::SmallDisk;
use crate::support::gate::{Gate, Launch};
use crate::support::ledger::{LedgerLock, assert_intact};
use crate::support::skyra::{DOOR, Wire, assert_acked, assert_nacked, id, inbox, text};
use crate::support::strace::{self, Trace};
use crate::support::ws::{Socket, TEXT};
use crate::support::{TIMEOUT, machine, wait_for};

#[test]
fn killed_before_the_commit_nothing_is_stored_and_the_retry_is() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut socket = Socket::open(gate.address());
    assert_acked(&socket.submit(text(1).as_bytes()), &id(1));
    // The writer has the event and waits for the lock, so it is neither inserted nor committed.
    let held = LedgerLock::acquire(folder.path());
    socket.send(TEXT, text(2).as_bytes()).unwrap();
    wait_for("the event is at the ledger", TIMEOUT, || {
        let waits = gate.client().get("/healthz?verbose=1").to_string();
        waits.contains("\"events_in_flight\":1").then_some(())
    });
    gate.kill();
    assert!(socket.next_reply().is_err(), "no ACK was seen");
    drop(held);
    assert_eq!(inbox(folder.path()).len(), 1);

    let gate = Gate::on(folder.path());
    assert_eq!(inbox(folder.path()).len(), 1, "after the restart there is nothing of it");
    assert_acked(&Socket::open(gate.address()).submit(text(2).as_bytes()), &id(2));
    assert_eq!(inbox(folder.path()).len(), 2);
    gate.stop();
}

#[test]
fn killed_or_cut_off_after_the_commit_the_retry_is_acked_and_the_row_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::on(folder.path());
    for (n, killed) in [(1, true), (2, false)] {
        let mut socket = Socket::open(gate.address());
        socket.send(TEXT, text(n).as_bytes()).unwrap();
        let stored = || inbox(folder.path()).into_iter().find(|row| row.event_id == id(n));
        let row = wait_for("the event is committed", TIMEOUT, stored);
        // An ACK may have been sent, but it is not read.
        if killed {
            gate.kill();
            gate = Gate::on(folder.path());
        }
        drop(socket);
        assert_eq!(stored().as_ref(), Some(&row), "it is still there");
        for mut wire in Wire::all(&gate) {
            assert_acked(&wire.submit(text(n).as_bytes()), &id(n));
        }
        assert_eq!(stored(), Some(row), "and still the same");
    }
    assert_eq!(inbox(folder.path()).len(), 2);
    gate.stop();
}

#[test]
fn a_full_disk_is_nacked_on_every_transport_and_recovers() {
    let Some(disk) = SmallDisk::new(12 * 1024 * 1024) else { return };
    let mut gate = Gate::on(disk.path());
    let mut wires = Wire::all(&gate);
    for (wire, n) in wires.iter_mut().zip(1..) {
        assert_acked(&wire.submit(text(n).as_bytes()), &id(n));
    }
    let ballast = disk.fill();
    // Space in preallocated files takes a few more events.
    let full = (10..3_000).find(|n| wires[0].submit(text(*n).as_bytes())["status"] == "rejected");
    let full = full.expect("a full disk takes no more");
    let stored = inbox(disk.path()).len();
    for (wire, n) in wires.iter_mut().zip(full..) {
        let answer = wire.submit(text(n).as_bytes());
        assert_nacked(&answer, Some(&id(n)), "storage_unavailable");
    }
    assert_eq!(inbox(disk.path()).len(), stored, "nothing of what was nacked is stored");
    assert!(gate.is_running());

    fs::remove_file(ballast).unwrap();
    wait_for("the gate heals by itself", TIMEOUT, || gate.is_ready().then_some(()));
    for (wire, n) in wires.iter_mut().zip(full..) {
        assert_acked(&wire.submit(text(n).as_bytes()), &id(n));
    }
    drop(wires);
    gate.stop();
    assert_intact(disk.path());
}

#[test]
fn after_a_failed_sync_no_event_is_acked_and_acked_events_are_stored() {
    // strace counts the calls per thread; a start never needs this many syncs.
    const FAILS_FROM: u64 = 40;
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let inject = format!("inject=fsync,fdatasync:error=EIO:when={FAILS_FROM}+");
    let options = ["-e", "trace=fsync,fdatasync", "-e", &inject];
    let gate = Launch::on(&data).under(trace.wrapper(&options)).start();
    let mut socket = Socket::open(gate.address());
    let mut acked = BTreeSet::new();
    for n in 0..2 * FAILS_FROM {
        socket.send(TEXT, text(n).as_bytes()).unwrap_or_default();
        let Ok(answer) = socket.next_reply() else { break };
        if answer["status"] == "rejected" {
            assert_nacked(&answer, Some(&id(n)), "storage_unavailable");
            break;
        }
        acked.insert(id(n));
    }
    let ended = gate.wait_for_exit();
    assert_eq!(ended.status.code(), Some(74), "{}", ended.stderr);
    assert!(acked.len() as u64 >= FAILS_FROM / 2, "it failed too early: {}", acked.len());

    let gate = Gate::on(&data);
    let stored: BTreeSet<String> = inbox(&data).into_iter().map(|row| row.event_id).collect();
    assert!(acked.is_subset(&stored));
    let next = acked.len() as u64;
    assert_acked(&Socket::open(gate.address()).submit(text(next).as_bytes()), &id(next));
    assert_eq!(
        inbox(&data).len() as u64,
        next + 1,
        "whatever became of it before, it is there once"
    );
    gate.stop();
}

#[test]
fn a_disk_that_turns_read_only_is_nacked_and_recovers() {
    // No thread needs this many writes to start on an existing ledger.
    const FAILS_FROM: u64 = 100;
    const FAILS_UNTIL: u64 = 105;
    const EVENTS: u64 = 200;
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    Gate::on(&data).stop();
    let trace = Trace::into(folder.path());
    let inject = format!("inject=pwrite64:error=EROFS:when={FAILS_FROM}..{FAILS_UNTIL}");
    let options = ["-e", "trace=pwrite64", "-e", &inject];
    let gate = Launch::on(&data).under(trace.wrapper(&options)).start();
    let mut socket = Socket::open(gate.address());
    let mut nacked = Vec::new();
    for n in 0..EVENTS {
        let answer = socket.submit(text(n).as_bytes());
        if answer["status"] == "rejected" {
            assert_nacked(&answer, Some(&id(n)), "storage_unavailable");
            nacked.push(n);
        } else {
            assert_acked(&answer, &id(n));
        }
    }
    assert!(!nacked.is_empty(), "the disk was as bad as meant");
    assert_eq!(inbox(&data).len(), EVENTS as usize - nacked.len(), "nothing of those is stored");
    for n in nacked {
        assert_acked(&socket.submit(text(n).as_bytes()), &id(n));
    }
    assert_eq!(inbox(&data).len() as u64, EVENTS);
    drop(socket);
    gate.stop();
    assert_intact(&data);
}

#[test]
fn a_ledger_that_hangs_is_nacked_in_time_and_the_retry_gets_the_outcome() {
    const EVENTS: u64 = 10;
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "300")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "600")
        .variable("ADMIT_DOORS__SKYRA__ANSWER_MS_MAX", "600")
        .variable("ADMIT_LIMITS__EVENTS_IN_FLIGHT_MAX", "4")
        .start();
    let mut socket = Socket::open(gate.address());
    let held = LedgerLock::acquire(folder.path());
    let post = gate.client().send("POST", DOOR, &[], text(0).as_bytes()).unwrap();
    assert_nacked(&post.json(), Some(&id(0)), "storage_unavailable");
    let bodies: Vec<String> = (0..EVENTS).map(text).collect();
    socket.send_all(&bodies).unwrap();
    let mut replied = BTreeSet::new();
    for _ in 0..EVENTS {
        let answer = socket.next_reply().unwrap();
        let event_id = answer["event_id"].as_str().expect("it says whose it is").to_owned();
        // Stored events, and those refused for lack of space.
        let code = answer["error"]["code"].as_str().unwrap();
        assert!(matches!(code, "storage_unavailable" | "rate_limited"), "{answer}");
        assert_nacked(&answer, Some(&event_id), code);
        replied.insert(event_id);
    }
    assert_eq!(replied, (0..EVENTS).map(id).collect(), "every event gets one reply");
    // There is no space for another event, but the NACK still names it.
    let post = gate.client().send("POST", DOOR, &[], text(0).as_bytes()).unwrap();
    assert_nacked(&post.json(), Some(&id(0)), "rate_limited");
    drop(held);
    for (body, n) in bodies.iter().zip(0..) {
        assert_acked(&socket.submit(body.as_bytes()), &id(n));
    }
    assert_eq!(inbox(folder.path()).len() as u64, EVENTS);
    gate.stop();
}

#[test]
fn a_client_throttled_by_the_gate_is_not_disconnected_as_dead() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__STREAM_IN_FLIGHT_MAX", "1")
        .variable("ADMIT_LIMITS__IDLE_MS_MAX", "600")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "30000")
        .start();
    let mut socket = Socket::open(gate.address());
    let held = LedgerLock::acquire(folder.path());
    socket.send_all(&[text(1), text(2)]).unwrap();
    // Twice the time after which a silent peer is disconnected.
    for _ in 0..2 {
        let mut silent = Socket::open(gate.address());
        while silent.read().is_ok() {}
    }
    drop(held);
    for n in [1, 2] {
        assert_acked(&socket.next_reply().unwrap(), &id(n));
    }
    assert_acked(&socket.submit(text(3).as_bytes()), &id(3));
    gate.stop();
}

#[test]
fn events_acked_over_websockets_survive_kill_nine_and_are_stored_once() {
    const ROUNDS: u64 = 8;
    const EVENTS: u64 = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let mut rng = machine::rng();
    let mut left: BTreeSet<u64> = (0..EVENTS).collect();
    let mut acked: BTreeSet<String> = BTreeSet::new();
    for round in 0..ROUNDS {
        let gate = Gate::on(folder.path());
        let mut socket = Socket::open(gate.address());
        let some = EVENTS / ROUNDS * (round + 1);
        let bodies: Vec<String> = left.range(..some).map(|n| text(*n)).collect();
        let killer = thread::spawn({
            let after = Duration::from_micros(500 + rng.below(15_000));
            move || {
                thread::sleep(after);
                gate.kill();
            }
        });
        // The connection may be cut while sending; sent events may still be stored.
        socket.send_all(&bodies).unwrap_or_default();
        while let Ok(answer) = socket.next_reply() {
            assert_eq!(answer["status"], "stored");
            acked.insert(answer["event_id"].as_str().unwrap().to_owned());
        }
        killer.join().unwrap();
        left.retain(|n| !acked.contains(&id(*n)));
    }
    assert_intact(folder.path());
    let gate = Gate::on(folder.path());
    let stored: BTreeSet<String> =
        inbox(folder.path()).into_iter().map(|row| row.event_id).collect();
    assert!(acked.is_subset(&stored), "acked means stored");
    let mut socket = Socket::open(gate.address());
    let bodies: Vec<String> = left.iter().map(|n| text(*n)).collect();
    socket.send_all(&bodies).unwrap();
    for _ in &bodies {
        assert_eq!(socket.next_reply().unwrap()["status"], "stored");
    }
    let mut all: Vec<String> = inbox(folder.path()).into_iter().map(|row| row.event_id).collect();
    all.sort_unstable();
    assert_eq!(all, (0..EVENTS).map(id).collect::<Vec<_>>(), "everything is there once");
    gate.stop();
}

#[test]
fn no_ack_of_a_batch_precedes_the_sync_of_its_commit() {
    const CALLS: &str =
        "trace=fsync,fdatasync,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";
    const EVENTS: u64 = 200;
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let options = ["-s", "1000000", "-e", CALLS];
    let gate = Launch::on(&data).under(trace.wrapper(&options)).start();
    let mut socket = Socket::open(gate.address());
    let bodies: Vec<String> = (0..EVENTS).map(text).collect();
    for burst in bodies.chunks(25) {
        socket.send_all(burst).unwrap();
    }
    for _ in 0..EVENTS {
        assert_eq!(socket.next_reply().unwrap()["status"], "stored");
    }
    drop(socket);
    gate.stop();

    let trace = trace.read();
    let lines: Vec<&str> = trace.lines().collect();
    let is_write =
        |line: &str| ["write", "sendto", "sendmsg"].iter().any(|call| line.contains(call));
    let synced = strace::sync_lines(&trace);
    let mut shared = 0;
    let mut last_ack = 0;
    for n in 0..EVENTS {
        let with_id: Vec<usize> =
            (0..lines.len()).filter(|at| lines[*at].contains(&id(n))).collect();
        let came = with_id.iter().find(|at| lines[**at].contains("device_id"));
        let went =
            with_id.iter().find(|at| is_write(lines[**at]) && lines[**at].contains("ack_ts"));
        let (Some(came), Some(went)) = (came, went) else { panic!("{n} is not in the trace") };
        assert!(synced.iter().any(|at| came < at && at < went), "{n} was acked before its sync");
        shared += u64::from(*went == last_ack);
        last_ack = *went;
    }
    assert!(shared > 0, "several events shared a commit and a write");
}
