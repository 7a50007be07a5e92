//! The gate is killed between any two steps of a publish: nothing is published twice, no event is lost,
//! and every ambiguous publish can be reconciled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::ingest::{
    PUSH, RUN, STREAM, artifact, count, counters, document, envelope, launch_fast, outcome,
    published, push, read_decision,
};
use crate::support::intents::admit;
use crate::support::ledger::{LedgerLock, assert_intact};
use crate::support::machine::{self, text};
use crate::support::strace::{KillPoint, attach_kill, kill_at};
use crate::support::{TIMEOUT, sql, strace, wait_for};

/// From the first write of the record to the last of the reply. A commit is one or two writes.
const POINTS: [KillPoint; 14] = [
    kill_at("pwrite64", "ledger.db-wal", 1),
    kill_at("pwrite64", "ledger.db-wal", 2),
    kill_at("fdatasync", "ledger.db-wal", 1),
    kill_at("write,pwrite64,writev,pwritev", "partition=0.jsonl", 1),
    kill_at("fdatasync,fsync", "partition=0.jsonl", 1),
    kill_at("pwrite64", "ledger.db-wal", 3),
    kill_at("pwrite64", "ledger.db-wal", 4),
    kill_at("fdatasync", "ledger.db-wal", 2),
    kill_at("fdatasync", "ledger.db-wal", 3),
    kill_at("linkat,link,renameat,renameat2,rename", "", 1),
    kill_at("openat", "", 1),
    kill_at("openat", "", 2),
    kill_at("sendto,sendmsg", "", 1),
    kill_at("sendto,sendmsg", "", 2),
];

/// Sends an event again after the crash and reconciles it if it is ambiguous; returns the decisions.
fn resolve(gate: &Gate, n: u64) -> String {
    let decision = outcome(&push(&mut gate.client(), &envelope(n)));
    if decision != "QUARANTINE PUBLISH_AMBIGUOUS" {
        return decision;
    }
    assert_eq!(counters(gate.data())[1..3], [0, 1], "in flight must be counted as ambiguous");
    let records = count(
        gate.data(),
        "SELECT count(*) FROM ig_quarantines WHERE reason_codes_json LIKE '%PUBLISH_AMBIGUOUS%'",
    );
    assert!(records > 0, "no quarantine record of the ambiguous publish");
    let listen = gate.address().to_string();
    let (ok, listed) = admit(&["reconcile", "--run", RUN, "--listen", &listen]);
    assert!(ok && listed.contains("found"), "{listed}");
    // Possible once late publishes are excluded.
    wait_for("the publish is reconciled", TIMEOUT, || {
        let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--listen", &listen];
        let (ok, _) = admit(&[&all[..], &["--reason", "the gate was killed"]].concat());
        ok.then_some(())
    });
    format!("{decision}, then {}", outcome(&push(&mut gate.client(), &envelope(n))))
}

#[test]
fn killed_between_any_two_steps_an_event_is_on_the_bus_exactly_once() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Create the topic first, so that strace can watch its file.
    let gate = launch_fast(folder.path()).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(0))), "ADMIT");
    gate.stop();
    let mut endings = Vec::new();
    for (n, at) in POINTS.into_iter().enumerate() {
        let n = n as u64 + 1;
        let mut gate = launch_fast(folder.path()).start();
        let mut strace = attach_kill(&gate, at, STREAM);
        let body = envelope(n).to_string();
        let response = gate.client().send("POST", PUSH, &[], body.as_bytes());
        let was_killed = response.is_err();
        if was_killed {
            wait_for("exit of the gate", TIMEOUT, || (!gate.is_running()).then_some(()));
        }
        drop(gate);
        strace.wait().unwrap();
        let gate = launch_fast(folder.path()).start();
        let end = resolve(&gate, n);
        endings.push(format!("{at:?} killed {was_killed}: {end}"));
        let times = published(gate.data(), STREAM);
        let times = times.iter().filter(|id| **id == format!("event-{n}")).count();
        assert_eq!(times, 1, "{endings:#?}");
        let again = push(&mut gate.client(), &envelope(n));
        let (decision, receipt) = read_decision(&again);
        assert_eq!(decision, "DUPLICATE");
        let first = receipt["evidence_refs"][0]["ref"].as_str().unwrap();
        assert_eq!(document(gate.data(), first)["eb_ref"], receipt["eb_ref"]);
        let (verified, output) = admit(&["verify", "--data", text(gate.data())]);
        assert!(verified, "{at:?}: {output}");
        gate.stop();
    }
    assert_intact(folder.path());
    let killed = endings.iter().filter(|line| line.contains("killed true")).count();
    assert!(killed >= 9, "too few points were reached: {endings:#?}");
    for end in ["ADMIT", "DUPLICATE DUPLICATE", "PUBLISH_AMBIGUOUS, then"] {
        assert!(
            endings.iter().any(|line| line.contains(end)),
            "{end} never happened: {endings:#?}"
        );
    }
}

#[test]
fn killed_under_load_every_event_is_published_once() {
    const ROUNDS: u32 = 4;
    const PRODUCERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let numbers = AtomicU64::new(1);
    let mut rng = machine::rng();
    for _ in 0..ROUNDS {
        let gate = launch_fast(folder.path()).start();
        let address = gate.address();
        thread::scope(|scope| {
            for _ in 0..PRODUCERS {
                scope.spawn(|| {
                    let mut client = Client::to(address);
                    loop {
                        let n = numbers.fetch_add(1, Ordering::Relaxed);
                        let body = envelope(n).to_string();
                        match client.send("POST", PUSH, &[], body.as_bytes()) {
                            Ok(response) => assert_eq!(outcome(&response), "ADMIT", "event {n}"),
                            Err(_) => break,
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(100 + rng.below(300)));
            gate.kill();
        });
    }
    let gate = launch_fast(folder.path()).start();
    let listen = gate.address().to_string();
    let ambiguous = || count(gate.data(), "SELECT ambiguous FROM run");
    if ambiguous() > 0 {
        wait_for("all ambiguous publishes are reconciled", TIMEOUT, || {
            let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--listen", &listen];
            admit(&[&all[..], &["--reason", "killed"]].concat());
            (ambiguous() == 0).then_some(())
        });
    }
    let mut client = gate.client();
    let last = numbers.load(Ordering::Relaxed);
    for n in 1..last {
        let (decision, _) = read_decision(&push(&mut client, &envelope(n)));
        assert!(decision == "ADMIT" || decision == "DUPLICATE", "event {n}: {decision}");
    }
    let mut ids = published(gate.data(), STREAM);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        (ids.len(), ids.len() as u64),
        (all, last - 1),
        "an event is missing or on the bus twice"
    );
    let (verified, output) = admit(&["verify", "--data", text(gate.data())]);
    assert!(verified, "{output}");
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn a_publish_without_recorded_outcome_is_found_by_reconciliation() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    assert_eq!(outcome(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let address = gate.address();
    let lock = thread::scope(|scope| {
        let pushing = scope.spawn(move || {
            Client::to(address).send("POST", PUSH, &[], envelope(2).to_string().as_bytes())
        });
        // Take the write lock once the publish is in flight; release it in between so that the gate proceeds.
        let deadline = Instant::now() + TIMEOUT;
        let lock = loop {
            let lock = LedgerLock::acquire(folder.path());
            let query = "SELECT state FROM ig_admissions WHERE event_id = 'event-2'";
            let state: Option<String> = sql::query_first(folder.path(), query);
            if state.is_some() {
                break lock;
            }
            drop(lock);
            assert!(Instant::now() < deadline, "the publish never was in flight");
            thread::sleep(Duration::from_micros(500));
        };
        wait_for("the message is on the bus", TIMEOUT, || {
            published(folder.path(), STREAM).contains(&"event-2".to_owned()).then_some(())
        });
        gate.kill();
        assert!(pushing.join().unwrap().map_or(true, |response| response.status == 200));
        lock
    });
    drop(lock);
    let gate = launch_fast(folder.path()).start();
    let ending = resolve(&gate, 2);
    let ends = ["QUARANTINE PUBLISH_AMBIGUOUS, then DUPLICATE DUPLICATE", "DUPLICATE DUPLICATE"];
    assert!(ends.contains(&ending.as_str()), "{ending}");
    assert_eq!(published(gate.data(), STREAM).len(), 2);
    gate.stop();
}

#[test]
fn lost_files_are_restored_from_the_ledger_before_the_doors_open() {
    let folder = tempfile::tempdir().unwrap();
    // Files are never synced within the test, so the gate must assume that they are lost.
    let launch = || {
        Launch::on(folder.path())
            .variable("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "3600000")
    };
    let gate = launch().start();
    let mut bad = envelope(2);
    bad["ts_utc"] = "yesterday".into();
    let references: Vec<String> = [envelope(1), bad]
        .iter()
        .map(|sent| {
            push(&mut gate.client(), sent).json()["receipt_ref"].as_str().unwrap().to_owned()
        })
        .collect();
    let unscoped = gate.client().send("POST", PUSH, &[], b"{}").unwrap().json();
    let raw = unscoped["quarantine_ref"].as_str().unwrap().replace(".json", ".raw");
    gate.kill();
    let before: Vec<_> = references.iter().map(|r| document(folder.path(), r)).collect();
    std::fs::remove_file(artifact(folder.path(), &references[0])).unwrap();
    // A file truncated by a power cut.
    std::fs::write(artifact(folder.path(), &references[1]), "{\"dec").unwrap();
    std::fs::remove_file(artifact(folder.path(), &raw)).unwrap();
    let log = format!("fraud-platform/{RUN}/obs/governance/events.jsonl");
    std::fs::remove_file(artifact(folder.path(), &log)).unwrap();
    let gate = launch().start();
    let after: Vec<_> = references.iter().map(|r| document(folder.path(), r)).collect();
    assert_eq!(before, after);
    assert_eq!(std::fs::read(artifact(folder.path(), &raw)).unwrap(), b"{}");
    let lines = std::fs::read_to_string(artifact(folder.path(), &log)).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let (verified, output) = admit(&["verify", "--data", text(gate.data())]);
    assert!(verified, "{output}");
    gate.stop();
}
