//! The process dies or is told to end in the middle of work: what was said stays true.

use std::fs::{self, File};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::support::gate::{Gate, Launch, admit};
use crate::support::ledger::{Stored, assert_intact};
use crate::support::load::{Load, Told, assert_effects_once, event};
use crate::support::machine::text;
use crate::support::{SOON, machine, sql, until};

const PRODUCERS: usize = 8;

#[test]
fn what_was_acknowledged_survives_kill_nine_and_happened_once() {
    const ROUNDS: u32 = 12;
    let folder = tempfile::tempdir().unwrap();
    let mut rng = machine::rng();
    let numbers = Arc::new(AtomicU64::new(1));
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let gate = Gate::on(folder.path());
        let stored = Stored::read(folder.path());
        told.assert_kept(&stored);
        told.settle(&mut gate.client(), &stored);
        assert_effects_once(&mut gate.client(), folder.path());

        let load = Load::start(gate.address(), PRODUCERS, &numbers, &mut rng);
        thread::sleep(Duration::from_millis(50 + rng.below(350)));
        gate.kill();
        let this_round = load.join();
        assert!(this_round.turned_away.is_empty(), "round {round}: {:?}", this_round.turned_away);
        told.add(this_round);
    }
    assert_intact(folder.path());
    assert!(told.processed.len() > 100, "the load was no load: {}", told.processed.len());

    let gate = Gate::on(folder.path());
    let stored = Stored::read(folder.path());
    told.assert_kept(&stored);
    told.settle(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), folder.path());
    let stored = Stored::read(folder.path());
    told.assert_kept(&stored);
    for n in 1..numbers.load(Ordering::Relaxed) {
        assert!(stored.get(n).is_some(), "{n} was sent until it was answered, and is not there");
    }
    gate.stop();
}

#[test]
fn a_start_that_is_killed_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = machine::rng();
    for _ in 0..10 {
        let after = Duration::from_millis(rng.below(40));
        Launch::on(folder.path()).start_and_kill(after);
    }
    let gate = Gate::on(folder.path());
    gate.client().say(&event(1)).processed();
    gate.kill();
    for _ in 0..10 {
        let after = Duration::from_millis(rng.below(40));
        Launch::on(folder.path()).start_and_kill(after);
    }
    let gate = Gate::on(folder.path());
    gate.client().say(&event(1)).duplicate();
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn a_gate_that_is_asked_to_end_under_load_exits_with_zero_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), PRODUCERS, &numbers, &mut machine::rng());
    until("the load is under way", SOON, || (load.acked() > 200).then_some(()));
    gate.stop();
    let mut told = load.join();
    assert_intact(folder.path());

    let gate = Gate::on(folder.path());
    let stored = Stored::read(folder.path());
    told.assert_kept(&stored);
    told.settle(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), folder.path());
    gate.stop();
}

#[test]
fn a_hangup_ends_neither_a_gate_nor_an_agent_and_is_logged() {
    let (folder, edge) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gate = Gate::on(folder.path());
    let agent = Launch::edge(edge.path(), gate.address()).start();
    for mut running in [gate, agent] {
        running.signal("HUP");
        until("it is logged", SOON, || {
            let log = running.stderr();
            (log.contains("SIGHUP ignored") && log.contains("not reloaded")).then_some(())
        });
        assert!(running.is_running() && running.is_ready());
        running.stop();
    }
}

/// A start that takes long is when an operator closes the terminal.
#[test]
fn a_hangup_does_not_end_a_gate_that_is_still_starting() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let gate = Gate::on(&data);
    gate.client().say(&event(1)).processed();
    gate.stop();
    machine::run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    // The start waits for the lock of another program.
    let other = Connection::open(copy.join("ledger.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE meta SET value = value").unwrap();
    let log = folder.path().join("log");
    let words = ["serve", "--data", text(&copy), "--listen", "127.0.0.1:0"];
    let mut starting =
        admit(words).stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let logs = |words: &str| fs::read_to_string(&log).unwrap().contains(words).then_some(());
    until("the start is under way", SOON, || logs("is a copy"));
    machine::signal(starting.id(), "HUP");
    let mut ended = None;
    until("it is logged", SOON, || {
        ended = starting.try_wait().unwrap();
        logs("SIGHUP ignored").or(ended.map(drop))
    });
    drop(other);
    assert_eq!(ended, None, "the start goes on");
    until("the gate is ready", SOON, || {
        ended = starting.try_wait().unwrap();
        logs("the copy agrees with itself").or(ended.map(drop))
    });
    assert_eq!(ended, None, "{}", fs::read_to_string(&log).unwrap());
    starting.kill().unwrap();
    starting.wait().unwrap();
}

#[test]
fn while_it_drains_the_port_answers_and_what_was_let_in_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let patient = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "15000")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "20000")
        .variable("ADMIT_LIMITS__DRAIN_MS_MAX", "20000");
    let mut gate = patient.start();
    let mut inside = gate.client();
    let post = event(1);
    // Asked for its body, an event is inside: from here on the gate must wait for it.
    inside.knock(post.body().len());
    gate.terminate();
    until("the gate says that it is shutting down", SOON, || {
        let answer = gate.client().send("GET", "/readyz", &[], b"").expect("the port is open");
        let reasons = answer.json()["reasons"].to_string();
        (answer.status == 503 && reasons.contains("shutting down")).then_some(())
    });
    for n in 2..5 {
        gate.client().say(&event(n)).unavailable();
    }
    assert!(gate.is_running(), "it waits for what is inside");

    inside.enter(post.body().as_bytes()).processed();
    let address = gate.address();
    let ended = gate.ended();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(TcpStream::connect(address).is_err(), "the port is closed at the end");
    let stored = Stored::read(folder.path());
    assert!(stored.get(1).is_some() && stored.len() == 1, "what was turned away was not kept");
}
