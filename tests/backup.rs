//! Backups of a running gate, restore, and verification of copied data folders.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::Client;
use crate::support::ingest::{PUSH, STREAM, envelope, launch_fast, outcome, published, push};
use crate::support::machine::{run, text};
use crate::support::{TIMEOUT, sql, wait_for};

/// Number of concurrent producers.
const PRODUCERS: usize = 4;

/// Runs a command; returns whether it succeeded, and its output.
fn command(arguments: &[&str]) -> (bool, String) {
    let output = admit(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// Sends events until `is_stopped` is set.
fn produce(
    gate: &Gate,
    next: &AtomicU64,
    acknowledged: &Mutex<BTreeSet<u64>>,
    is_stopped: &AtomicBool,
) {
    let mut client = Client::to(gate.address());
    while !is_stopped.load(Ordering::Relaxed) {
        let n = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(outcome(&push(&mut client, &envelope(n))), "ADMIT");
        client.submit(&match_begin(n, "a")).processed();
        acknowledged.lock().unwrap().insert(n);
    }
}

#[test]
fn a_backup_of_a_busy_gate_contains_every_event_acknowledged_before_it() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("backup"));
    let gate = launch_fast(&data).start();
    let (next, is_stopped) = (AtomicU64::new(1), AtomicBool::new(false));
    let acknowledged = Mutex::new(BTreeSet::new());
    let count = || acknowledged.lock().unwrap().len();
    let before = thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| produce(&gate, &next, &acknowledged, &is_stopped));
        }
        wait_for("the gate is busy", TIMEOUT, || (count() > 200).then_some(()));
        let before = acknowledged.lock().unwrap().clone();
        let (ok, output) = command(&["backup", text(&copy), "--data", text(&data)]);
        let grown = count() > before.len();
        is_stopped.store(true, Ordering::Relaxed);
        assert!(ok && output.contains("verified: everything agrees"), "{output}");
        assert!(grown, "the gate must serve during the backup");
        before
    });
    gate.stop();

    let restored = folder.path().join("restored");
    let (ok, output) = command(&["restore", text(&copy), text(&restored), "--json"]);
    assert!(ok && output.contains("\"verified\": true"), "{output}");
    let ids = published(&restored, STREAM);
    let gate = launch_fast(&restored).start();
    let mut client = gate.client();
    for n in &before {
        let body = envelope(*n).to_string();
        let response = client.send("POST", PUSH, &[], body.as_bytes()).unwrap();
        assert_eq!(outcome(&response), "DUPLICATE DUPLICATE", "event {n}");
        client.submit(&match_begin(*n, "a")).duplicate();
        assert!(ids.contains(&format!("event-{n}")), "event {n} is on the restored bus");
    }
    // Later events are sent again by their producers and are on the restored bus once. Publishes in
    // flight during the backup are ambiguous, as after any crash.
    let mut ambiguous = 0;
    for n in 1..next.into_inner() {
        match outcome(&push(&mut client, &envelope(n))).as_str() {
            "ADMIT" | "DUPLICATE DUPLICATE" => {}
            "QUARANTINE PUBLISH_AMBIGUOUS" => ambiguous += 1,
            other => panic!("event {n}: {other}"),
        }
    }
    assert!(ambiguous <= PRODUCERS, "{ambiguous} are ambiguous");
    let mut ids = published(&restored, STREAM);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "no event is on the bus twice");
    gate.stop();
    let (verified, output) = command(&["verify", "--data", text(&restored)]);
    assert!(verified, "{output}");
}

/// Fills a data folder with a few events and stops the gate.
fn fill(data: &Path) {
    let gate = launch_fast(data).start();
    for n in 1..6 {
        assert_eq!(outcome(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
}

#[test]
fn a_backup_overwrites_nothing_and_an_incomplete_backup_is_not_restored() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = at("data");
    fill(&data);
    let (ok, output) = command(&["backup", text(&data.join("b")), "--data", text(&data)]);
    assert!(!ok && output.contains("which is copied"), "{output}");
    let (ok, output) = command(&["backup", text(&at("b")), "--data", text(&data), "--no-verify"]);
    assert!(ok && output.contains("not verified"), "{output}");
    let (ok, output) = command(&["backup", text(&at("b")), "--data", text(&data)]);
    assert!(!ok && output.contains("is not empty"), "{output}");
    let (ok, output) = command(&["restore", text(&at("b")), text(&data)]);
    assert!(!ok && output.contains("is not empty"), "{output}");
    // Not verified by the restore: the first start verifies it.
    let (ok, output) = command(&["restore", text(&at("b")), text(&at("r")), "--no-verify"]);
    assert!(ok, "{output}");
    let gate = Launch::on(&at("r")).start();
    assert!(gate.stderr().contains("the data folder is a copy"), "{}", gate.stderr());
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(3))), "DUPLICATE DUPLICATE");
    gate.stop();
    fs::remove_file(at("b").join("backup.json")).unwrap();
    let (ok, output) = command(&["restore", text(&at("b")), text(&at("again"))]);
    assert!(!ok && output.contains("is not a complete backup"), "{output}");
    assert!(!at("again").exists(), "the target must not be created");
}

#[test]
fn a_copied_folder_is_verified_at_the_start_and_an_inconsistent_one_is_refused() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fill(&at("data"));
    for copy in ["whole", "torn"] {
        run("cp", ["-r", text(&at("data")), text(&at(copy))]).unwrap();
    }
    let gate = launch_fast(&at("whole")).start();
    assert!(gate.stderr().contains("the data folder is a copy"), "{}", gate.stderr());
    gate.stop();
    for data in ["whole", "data"] {
        let gate = launch_fast(&at(data)).start();
        assert!(!gate.stderr().contains("is a copy"), "{data}: {}", gate.stderr());
        gate.stop();
    }
    // Like a folder whose bus was copied shortly before its ledger.
    let log = at("torn").join("bus").join(STREAM).join("partition=0.jsonl");
    let text_of_log = fs::read_to_string(&log).unwrap();
    for (lines, found) in [(4, "found 1 inconsistency"), (3, "found 2 inconsistencies")] {
        let head: Vec<&str> = text_of_log.lines().take(lines).collect();
        fs::write(&log, head.join("\n") + "\n").unwrap();
        let exit = launch_fast(&at("torn")).start_expecting_exit();
        assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
        let stderr = &exit.stderr;
        assert!(
            stderr.contains("message missing on the bus at the offset recorded in the ledger"),
            "{stderr}"
        );
        assert!(stderr.contains(found) && !stderr.contains("admit repair"), "{stderr}");
    }
    fs::remove_file(at("torn").join("ledger.place")).unwrap();
    launch_fast(&at("torn")).start().stop();
}

#[test]
fn a_copy_without_a_file_that_the_ledger_can_restore_is_repaired_and_served() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    fill(&data);
    run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    let lost = file_in(&copy.join("artifacts"), "receipt");
    fs::remove_file(&lost).unwrap();
    let exit = launch_fast(&copy).start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains("found 1 inconsistency"), "{}", exit.stderr);
    assert!(
        exit.stderr.contains("run admit repair, which restores them from the ledger"),
        "{}",
        exit.stderr
    );
    let (ok, output) = command(&["repair", "--data", text(&copy)]);
    assert!(ok && lost.exists(), "{output}");
    launch_fast(&copy).start().stop();
}

/// Finds a JSON file below `folder` with `word` in its path.
fn file_in(folder: &Path, word: &str) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if text(&path).contains(word) && text(&path).ends_with(".json") {
                return path;
            }
        }
    }
    panic!("no JSON file with {word} in its path");
}

/// Only a start verifies a copy.
#[test]
fn an_unverified_copy_is_neither_copied_nor_attached() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    fill(&data);
    run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    let from = format!("sqlite:{}", text(&copy));
    // No server listens on this port.
    let to = "postgres://user@127.0.0.1:1/none";
    let copy_ledger = ["ledger", "copy", "--from", &from, "--to", to];
    let attach = ["ledger", "attach", "--bus", "--data", text(&copy)];
    for arguments in [&copy_ledger[..], &attach[..]] {
        let (ok, output) = command(arguments);
        let identity = format!("{}/ledger.place", text(&copy));
        for word in ["was not verified", "admit serve --data", "admit verify --data", &identity] {
            assert!(!ok && output.contains(word), "{arguments:?}: {output}");
        }
    }
    launch_fast(&copy).start().stop();
    let (ok, output) = command(&attach);
    assert!(ok, "{output}");
    let (ok, output) = command(&copy_ledger);
    assert!(!ok && !output.contains("was not verified"), "{output}");
}

#[test]
fn with_a_ledger_on_postgres_bus_and_artifacts_are_copied_and_pg_dump_is_mentioned() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let gate = launch_fast(&at("data")).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let backup = |to: &str, variables: &[(&str, &str)]| {
        let (to, data) = (at(to), at("data"));
        let mut command = admit(["backup", text(&to), "--data", text(&data)]);
        command.env("ADMIT_LEDGER__URL", "postgres://user@127.0.0.1:1/none");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, output) = backup("backup", &[]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("pg_dump"), "{output}");
    assert_eq!(published(&at("backup"), STREAM), ["event-1"]);
    assert!(!at("backup").join("ledger.db").exists());
    let elsewhere =
        [("ADMIT_BUS__URL", "nats://127.0.0.1:1"), ("ADMIT_ARTIFACTS__URL", "s3://bucket/prefix")];
    let (code, output) = backup("nothing", &elsewhere);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("pg_dump") && !at("nothing").exists(), "{output}");
    gate.stop();
}
