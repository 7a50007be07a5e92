//! The process dies between any two steps of a publish: nothing is published twice, nothing is lost
//! without a trace, and a person can always bring it to an end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::ingest::{
    PUSH, RUN, STREAM, artifact, count, counters, decided, document, envelope, gist, impatient,
    published, push,
};
use crate::support::intents::admit;
use crate::support::ledger::{Held, assert_intact};
use crate::support::machine::{self, text};
use crate::support::strace::{Point, lie_in_wait, point};
use crate::support::{SOON, sql, strace, until};

/// From the first byte of the record to the last of the answer. A commit is one or two writes.
const POINTS: [Point; 14] = [
    point("pwrite64", "ledger.db-wal", 1),
    point("pwrite64", "ledger.db-wal", 2),
    point("fdatasync", "ledger.db-wal", 1),
    point("write,pwrite64,writev,pwritev", "partition=0.jsonl", 1),
    point("fdatasync,fsync", "partition=0.jsonl", 1),
    point("pwrite64", "ledger.db-wal", 3),
    point("pwrite64", "ledger.db-wal", 4),
    point("fdatasync", "ledger.db-wal", 2),
    point("fdatasync", "ledger.db-wal", 3),
    point("linkat,link,renameat,renameat2,rename", "", 1),
    point("openat", "", 1),
    point("openat", "", 2),
    point("sendto,sendmsg", "", 1),
    point("sendto,sendmsg", "", 2),
];

/// What is said about an event after the crash, and brought to an end by a person where needed.
fn bring_to_an_end(gate: &Gate, n: u64) -> String {
    let told = gist(&push(&mut gate.client(), &envelope(n)));
    if told != "QUARANTINE PUBLISH_AMBIGUOUS" {
        return told;
    }
    assert_eq!(counters(gate.data())[1..3], [0, 1], "in flight is ambiguous in the counters");
    let records = count(
        gate.data(),
        "SELECT count(*) FROM ig_quarantines WHERE reason_codes_json LIKE '%PUBLISH_AMBIGUOUS%'",
    );
    assert!(records > 0, "with a record of its own");
    let listen = gate.address().to_string();
    let (ok, listed) = admit(&["reconcile", "--run", RUN, "--listen", &listen]);
    assert!(ok && listed.contains("found"), "{listed}");
    // As soon as it can no longer land.
    until("it is resolved", SOON, || {
        let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--listen", &listen];
        let (ok, _) = admit(&[&all[..], &["--reason", "the gate was killed"]].concat());
        ok.then_some(())
    });
    format!("{told}, then {}", gist(&push(&mut gate.client(), &envelope(n))))
}

#[test]
fn killed_between_any_two_steps_an_event_is_on_the_bus_once_in_the_end() {
    if !strace::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The stream is there, so that its file can be watched.
    let gate = impatient(folder.path()).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(0))), "ADMIT");
    gate.stop();
    let mut told = Vec::new();
    for (n, at) in POINTS.into_iter().enumerate() {
        let n = n as u64 + 1;
        let mut gate = impatient(folder.path()).start();
        let mut strace = lie_in_wait(&gate, at, STREAM);
        let body = envelope(n).to_string();
        let answer = gate.client().send("POST", PUSH, &[], body.as_bytes());
        let was_killed = answer.is_err();
        if was_killed {
            until("the gate is dead", SOON, || (!gate.is_running()).then_some(()));
        }
        drop(gate);
        strace.wait().unwrap();
        let gate = impatient(folder.path()).start();
        let end = bring_to_an_end(&gate, n);
        told.push(format!("{at:?} killed {was_killed}: {end}"));
        let times = published(gate.data(), STREAM);
        let times = times.iter().filter(|id| **id == format!("event-{n}")).count();
        assert_eq!(times, 1, "{told:#?}");
        let again = push(&mut gate.client(), &envelope(n));
        let (decision, receipt) = decided(&again);
        assert_eq!(decision, "DUPLICATE");
        let first = receipt["evidence_refs"][0]["ref"].as_str().unwrap();
        assert_eq!(document(gate.data(), first)["eb_ref"], receipt["eb_ref"]);
        let (agrees, said) = admit(&["verify", "--data", text(gate.data())]);
        assert!(agrees, "{at:?}: {said}");
        gate.stop();
    }
    assert_intact(folder.path());
    let killed = told.iter().filter(|line| line.contains("killed true")).count();
    assert!(killed >= 9, "too few points were reached: {told:#?}");
    for end in ["ADMIT", "DUPLICATE DUPLICATE", "PUBLISH_AMBIGUOUS, then"] {
        assert!(told.iter().any(|line| line.contains(end)), "{end} never happened: {told:#?}");
    }
}

#[test]
fn killed_under_load_every_event_has_one_true_end() {
    const ROUNDS: u32 = 4;
    const PRODUCERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let numbers = AtomicU64::new(1);
    let mut rng = machine::rng();
    for _ in 0..ROUNDS {
        let gate = impatient(folder.path()).start();
        let address = gate.address();
        thread::scope(|scope| {
            for _ in 0..PRODUCERS {
                scope.spawn(|| {
                    let mut client = Client::to(address);
                    loop {
                        let n = numbers.fetch_add(1, Ordering::Relaxed);
                        let body = envelope(n).to_string();
                        match client.send("POST", PUSH, &[], body.as_bytes()) {
                            Ok(answer) => assert_eq!(gist(&answer), "ADMIT", "event {n}"),
                            Err(_) => break,
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(100 + rng.below(300)));
            gate.kill();
        });
    }
    let gate = impatient(folder.path()).start();
    let listen = gate.address().to_string();
    let ambiguous = || count(gate.data(), "SELECT ambiguous FROM run");
    if ambiguous() > 0 {
        until("what is ambiguous can no longer land, and is resolved at once", SOON, || {
            let all = ["reconcile", "--all", "--found", "--absent", "--yes", "--listen", &listen];
            admit(&[&all[..], &["--reason", "killed"]].concat());
            (ambiguous() == 0).then_some(())
        });
    }
    let mut client = gate.client();
    let last = numbers.load(Ordering::Relaxed);
    for n in 1..last {
        let (decision, _) = decided(&push(&mut client, &envelope(n)));
        assert!(decision == "ADMIT" || decision == "DUPLICATE", "event {n}: {decision}");
    }
    let mut ids = published(gate.data(), STREAM);
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), ids.len() as u64), (all, last - 1), "each once");
    let (agrees, said) = admit(&["verify", "--data", text(gate.data())]);
    assert!(agrees, "{said}");
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn published_and_not_settled_when_it_dies_is_found_by_whoever_looks() {
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let address = gate.address();
    let held = thread::scope(|scope| {
        let pushing = scope.spawn(move || {
            Client::to(address).send("POST", PUSH, &[], envelope(2).to_string().as_bytes())
        });
        // Once it is in flight the ledger takes nothing more. Until then the gate has its turns.
        let until_then = Instant::now() + SOON;
        let held = loop {
            let held = Held::take(folder.path());
            let query = "SELECT state FROM ig_admissions WHERE event_id = 'event-2'";
            let standing: Option<String> = sql::first(folder.path(), query);
            if standing.is_some() {
                break held;
            }
            drop(held);
            assert!(Instant::now() < until_then, "it never came into flight");
            thread::sleep(Duration::from_micros(500));
        };
        until("it is on the bus", SOON, || {
            published(folder.path(), STREAM).contains(&"event-2".to_owned()).then_some(())
        });
        gate.kill();
        assert!(pushing.join().unwrap().map_or(true, |answer| answer.status == 200));
        held
    });
    drop(held);
    let gate = impatient(folder.path()).start();
    let told = bring_to_an_end(&gate, 2);
    let ends = ["QUARANTINE PUBLISH_AMBIGUOUS, then DUPLICATE DUPLICATE", "DUPLICATE DUPLICATE"];
    assert!(ends.contains(&told.as_str()), "{told}");
    assert_eq!(published(gate.data(), STREAM).len(), 2);
    gate.stop();
}

#[test]
fn lost_files_are_made_again_from_the_ledger_before_the_doors_open() {
    let folder = tempfile::tempdir().unwrap();
    // What is not synced within the test counts as lost with the power.
    let lazy = || {
        Launch::on(folder.path())
            .variable("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "3600000")
    };
    let gate = lazy().start();
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
    // A file that the power cut in half.
    std::fs::write(artifact(folder.path(), &references[1]), "{\"dec").unwrap();
    std::fs::remove_file(artifact(folder.path(), &raw)).unwrap();
    let log = format!("fraud-platform/{RUN}/obs/governance/events.jsonl");
    std::fs::remove_file(artifact(folder.path(), &log)).unwrap();
    let gate = lazy().start();
    let after: Vec<_> = references.iter().map(|r| document(folder.path(), r)).collect();
    assert_eq!(before, after);
    assert_eq!(std::fs::read(artifact(folder.path(), &raw)).unwrap(), b"{}");
    let lines = std::fs::read_to_string(artifact(folder.path(), &log)).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let (agrees, said) = admit(&["verify", "--data", text(gate.data())]);
    assert!(agrees, "{said}");
    gate.stop();
}
