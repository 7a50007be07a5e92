//! A ledger is served only with the bus and the artifact store attached to it.

use std::fs;
use std::path::Path;
use std::process::Command;

use admit_testkit::postgres::{TestDatabase, database};

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::ingest::{STREAM, envelope, outcome, published, push};
use crate::support::machine::text;
use crate::support::sql;

/// Config of a gate on a shared ledger, as environment variables.
fn shared<'a>(database: &'a TestDatabase, id: &'a str) -> [(&'static str, &'a str); 2] {
    [("ADMIT_LEDGER__URL", &database.url), ("ADMIT_LEDGER__GATE_ID", id)]
}

fn gate(data: &Path, database: &TestDatabase, id: &str) -> Launch {
    shared(database, id)
        .into_iter()
        .fold(Launch::on(data), |launch, (name, value)| launch.variable(name, value))
}

/// Runs a command on a shared ledger; returns whether it succeeded, and its output.
fn command(data: &Path, database: &TestDatabase, words: &[&str]) -> (bool, String) {
    let words = [words, &["--data", text(data)]].concat();
    let output = admit(words).envs(shared(database, "")).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn a_second_gate_with_its_own_bus_is_refused_unless_it_publishes_nothing() {
    if sql::skip_on_postgres() {
        return;
    }
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    let first = gate(&a, &database, "a").start();
    assert_eq!(outcome(&push(&mut first.client(), &envelope(1))), "ADMIT");

    let ended = gate(&b, &database, "b").start_expecting_exit();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for word in ["is not the one of this ledger", "bus.url", "admit ledger attach --bus"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    let silent =
        gate(&b, &database, "b").variable("ADMIT_DOORS__INGESTION_GATE__ENABLED", "false").start();
    silent.client().submit(&match_begin(1, "b")).processed();
    silent.stop();

    // Attaching is explicit, and refused while a gate uses the other one.
    let attach = ["ledger", "attach", "--bus", "--artifacts"];
    let (ok, printed) = command(&b, &database, &attach);
    assert!(!ok && printed.contains("are running: a"), "{printed}");
    first.stop();
    let (ok, printed) = command(&b, &database, &attach);
    assert!(ok && printed.contains("is now attached to this ledger; before it was"), "{printed}");
    let ended = gate(&a, &database, "a").start_expecting_exit();
    assert!(ended.stderr.contains("is not the one of this ledger"), "{}", ended.stderr);
    let second = gate(&b, &database, "b").start();
    assert_eq!(outcome(&push(&mut second.client(), &envelope(2))), "ADMIT");
    assert_eq!(outcome(&push(&mut second.client(), &envelope(1))), "DUPLICATE DUPLICATE");
    assert_eq!(published(&b, STREAM), ["event-2"]);
    second.stop();
}

#[test]
fn of_two_gates_with_copies_of_one_bus_the_second_is_refused_while_the_first_runs() {
    if sql::skip_on_postgres() {
        return;
    }
    let Some(database) = database() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    // Without a gate id, a gate does not end the lease of an earlier one.
    let unnamed =
        |data: &Path| gate(data, &database, "").variable("ADMIT_LEDGER__LEASE_SECONDS", "3");
    let first = unnamed(&a).start();
    assert_eq!(outcome(&push(&mut first.client(), &envelope(1))), "ADMIT");
    first.stop();
    let copied = Command::new("cp").arg("-a").args([&a, &b]).status().unwrap();
    assert!(copied.success());
    let first = unnamed(&a).start();

    let ended = unnamed(&b).start_expecting_exit();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for word in ["is held by another gate", "one eb_ref to two events", "bus.url"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert_eq!(outcome(&push(&mut first.client(), &envelope(2))), "ADMIT", "the first goes on");
    let silent = unnamed(&b).variable("ADMIT_DOORS__INGESTION_GATE__ENABLED", "false").start();
    silent.client().submit(&match_begin(1, "b")).processed();
    silent.stop();

    // After a crash it is free once the lease expires, which the next start waits for.
    first.kill();
    let again = unnamed(&a).start();
    assert_eq!(outcome(&push(&mut again.client(), &envelope(3))), "ADMIT");
    again.stop();
    assert_eq!(published(&a, STREAM), ["event-1", "event-2", "event-3"]);
    assert_eq!(published(&b, STREAM), ["event-1"]);
}

#[test]
fn a_moved_bus_or_store_is_detected_and_moving_it_back_is_enough() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gate = Gate::on(&data);
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    gate.stop();
    for (name, key) in [("bus", "bus.url"), ("artifacts", "artifacts.url")] {
        let (here, away) = (data.join(name), folder.path().join(name));
        fs::rename(&here, &away).unwrap();
        let ended = Launch::on(&data).start_expecting_exit();
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", ended.stderr);
        let printed = &ended.stderr;
        assert!(printed.contains("carries no id") && printed.contains(key), "{name}: {printed}");
        let elsewhere = format!("file:{}", away.display());
        let variable = format!("ADMIT_{}__URL", name.to_uppercase());
        let gate = Launch::on(&data).variable(&variable, &elsewhere).start();
        assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "DUPLICATE DUPLICATE");
        gate.stop();
        fs::remove_dir_all(&here).unwrap_or_default();
        fs::rename(&away, &here).unwrap();
    }
    Gate::on(&data).stop();
    fs::remove_dir_all(data.join("bus")).unwrap();
    let output = admit(["ledger", "attach", "--bus", "--data", text(&data)]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let gate = Gate::on(&data);
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(2))), "ADMIT");
    gate.stop();
}
