//! Kill and shutdown under load: acknowledged events are never lost.

use std::fs::{self, File};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::support::gate::{Gate, Launch, admit};
use crate::support::ledger::{StoredReceipts, assert_intact};
use crate::support::load::{Load, LoadResult, assert_effects_once, event};
use crate::support::machine::text;
use crate::support::{TIMEOUT, machine, sql, wait_for};

const PRODUCERS: usize = 8;

#[test]
fn acknowledged_events_survive_kill_nine_and_take_effect_once() {
    const ROUNDS: u32 = 12;
    let folder = tempfile::tempdir().unwrap();
    let mut rng = machine::rng();
    let numbers = Arc::new(AtomicU64::new(1));
    let mut result = LoadResult::default();
    for round in 0..ROUNDS {
        let gate = Gate::on(folder.path());
        let stored = StoredReceipts::read(folder.path());
        result.assert_stored(&stored);
        result.resend_unacknowledged(&mut gate.client(), &stored);
        assert_effects_once(&mut gate.client(), folder.path());

        let load = Load::start(gate.address(), PRODUCERS, &numbers, &mut rng);
        thread::sleep(Duration::from_millis(50 + rng.below(350)));
        gate.kill();
        let this_round = load.join();
        assert!(this_round.unavailable.is_empty(), "round {round}: {:?}", this_round.unavailable);
        result.add(this_round);
    }
    assert_intact(folder.path());
    assert!(
        result.processed.len() > 100,
        "too few events for a load test: {}",
        result.processed.len()
    );

    let gate = Gate::on(folder.path());
    let stored = StoredReceipts::read(folder.path());
    result.assert_stored(&stored);
    result.resend_unacknowledged(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), folder.path());
    let stored = StoredReceipts::read(folder.path());
    result.assert_stored(&stored);
    for n in 1..numbers.load(Ordering::Relaxed) {
        assert!(stored.get(n).is_some(), "event {n} was acknowledged and is not stored");
    }
    gate.stop();
}

#[test]
fn a_killed_start_does_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = machine::rng();
    for _ in 0..10 {
        let after = Duration::from_millis(rng.below(40));
        Launch::on(folder.path()).start_and_kill(after);
    }
    let gate = Gate::on(folder.path());
    gate.client().submit(&event(1)).processed();
    gate.kill();
    for _ in 0..10 {
        let after = Duration::from_millis(rng.below(40));
        Launch::on(folder.path()).start_and_kill(after);
    }
    let gate = Gate::on(folder.path());
    gate.client().submit(&event(1)).duplicate();
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn a_gate_stopped_under_load_exits_with_zero_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), PRODUCERS, &numbers, &mut machine::rng());
    wait_for("the load is under way", TIMEOUT, || (load.acked() > 200).then_some(()));
    gate.stop();
    let mut result = load.join();
    assert_intact(folder.path());

    let gate = Gate::on(folder.path());
    let stored = StoredReceipts::read(folder.path());
    result.assert_stored(&stored);
    result.resend_unacknowledged(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), folder.path());
    gate.stop();
}

#[test]
fn sighup_stops_neither_a_gate_nor_an_agent_and_is_logged() {
    let (folder, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let agent = Launch::edge(edge.path(), gate.address()).start();
    for mut running in [gate, agent] {
        running.signal("HUP");
        wait_for("the signal is logged", TIMEOUT, || {
            let log = running.stderr();
            (log.contains("SIGHUP ignored") && log.contains("not reloaded")).then_some(())
        });
        assert!(running.is_running() && running.is_ready());
        running.stop();
    }
}

/// An operator may close the terminal during a long start.
#[test]
fn sighup_does_not_stop_a_gate_that_is_still_starting() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let gate = Gate::on(&data);
    gate.client().submit(&event(1)).processed();
    gate.stop();
    machine::run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    // The start waits for a lock held by another connection.
    let other = Connection::open(copy.join("ledger.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET value = value").unwrap();
    let log = folder.path().join("log");
    let arguments = ["serve", "--data", text(&copy), "--listen", "127.0.0.1:0"];
    let mut starting =
        admit(arguments).stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let logs = |line: &str| fs::read_to_string(&log).unwrap().contains(line).then_some(());
    wait_for("the start is under way", TIMEOUT, || logs("is a copy"));
    machine::signal(starting.id(), "HUP");
    let mut exit = None;
    wait_for("the signal is logged", TIMEOUT, || {
        exit = starting.try_wait().unwrap();
        logs("SIGHUP ignored").or(exit.map(drop))
    });
    drop(other);
    assert_eq!(exit, None, "the start was interrupted");
    wait_for("the gate is ready", TIMEOUT, || {
        exit = starting.try_wait().unwrap();
        logs("copy verified, no inconsistencies").or(exit.map(drop))
    });
    assert_eq!(exit, None, "{}", fs::read_to_string(&log).unwrap());
    starting.kill().unwrap();
    starting.wait().unwrap();
}

#[test]
fn during_shutdown_the_port_stays_open_and_accepted_requests_are_finished() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "15000")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "20000")
        .variable("ADMIT_LIMITS__DRAIN_MS_MAX", "20000");
    let mut gate = launch.start();
    let mut accepted = gate.client();
    let post = event(1);
    // After the 100 response the request is accepted: the shutdown must wait for it.
    accepted.start_post(post.body().len());
    gate.terminate();
    wait_for("/readyz reports the shutdown", TIMEOUT, || {
        let response = gate.client().send("GET", "/readyz", &[], b"").expect("the port is open");
        let reasons = response.json()["reasons"].to_string();
        (response.status == 503 && reasons.contains("shutting down")).then_some(())
    });
    for n in 2..5 {
        gate.client().submit(&event(n)).unavailable();
    }
    assert!(gate.is_running(), "the gate must wait for the accepted request");

    accepted.finish_post(post.body().as_bytes()).processed();
    let address = gate.address();
    let exit = gate.wait_for_exit();
    assert_eq!(exit.status.code(), Some(0), "{}", exit.stderr);
    assert!(TcpStream::connect(address).is_err(), "the port must be closed after the exit");
    let stored = StoredReceipts::read(folder.path());
    assert!(stored.get(1).is_some() && stored.len() == 1, "a refused event was stored");
}
