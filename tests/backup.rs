//! Backups: made beside a busy gate, restored, and served again without a gap.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::Client;
use crate::support::ingest::{PUSH, STREAM, envelope, gist, impatient, published, push};
use crate::support::machine::{run, text};
use crate::support::{SOON, sql, until};

/// Producers that send all the time.
const PRODUCERS: usize = 4;

/// Runs a command; whether it went well, and what it printed.
fn command(words: &[&str]) -> (bool, String) {
    let output = admit(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// Pushes envelopes one after the other until it is told to stop.
fn produce(
    gate: &Gate,
    next: &AtomicU64,
    acknowledged: &Mutex<BTreeSet<u64>>,
    is_over: &AtomicBool,
) {
    let mut client = Client::to(gate.address());
    while !is_over.load(Ordering::Relaxed) {
        let n = next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(gist(&push(&mut client, &envelope(n))), "ADMIT");
        client.say(&match_begin(n, "a")).processed();
        acknowledged.lock().unwrap().insert(n);
    }
}

#[test]
fn a_backup_of_a_busy_gate_ends_and_holds_all_that_was_acknowledged_before_it() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("backup"));
    let gate = impatient(&data).start();
    let (next, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    let acknowledged = Mutex::new(BTreeSet::new());
    let count = || acknowledged.lock().unwrap().len();
    let before = thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| produce(&gate, &next, &acknowledged, &is_over));
        }
        until("the gate is busy", SOON, || (count() > 200).then_some(()));
        let before = acknowledged.lock().unwrap().clone();
        let (ok, said) = command(&["backup", text(&copy), "--data", text(&data)]);
        let grown = count() > before.len();
        is_over.store(true, Ordering::Relaxed);
        assert!(ok && said.contains("verified: everything agrees"), "{said}");
        assert!(grown, "the gate served all the while");
        before
    });
    gate.stop();

    let restored = folder.path().join("restored");
    let (ok, said) = command(&["restore", text(&copy), text(&restored), "--json"]);
    assert!(ok && said.contains("\"verified\": true"), "{said}");
    let ids = published(&restored, STREAM);
    let gate = impatient(&restored).start();
    let mut client = gate.client();
    for n in &before {
        let body = envelope(*n).to_string();
        let answer = client.send("POST", PUSH, &[], body.as_bytes()).unwrap();
        assert_eq!(gist(&answer), "DUPLICATE DUPLICATE", "event {n}");
        client.say(&match_begin(*n, "a")).duplicate();
        assert!(ids.contains(&format!("event-{n}")), "event {n} is on the restored bus");
    }
    // What came later is sent again by its producer, and is on the restored bus once. What was on its
    // way at the moment of the backup is ambiguous, as after any crash.
    let mut ambiguous = 0;
    for n in 1..next.into_inner() {
        match gist(&push(&mut client, &envelope(n))).as_str() {
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
    let (agrees, said) = command(&["verify", "--data", text(&restored)]);
    assert!(agrees, "{said}");
}

/// A folder with a few events in it, and no gate.
fn filled(data: &Path) {
    let gate = impatient(data).start();
    for n in 1..6 {
        assert_eq!(gist(&push(&mut gate.client(), &envelope(n))), "ADMIT");
    }
    gate.stop();
}

#[test]
fn a_backup_overwrites_nothing_and_half_a_backup_is_not_restored() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = at("data");
    filled(&data);
    let (ok, said) = command(&["backup", text(&data.join("b")), "--data", text(&data)]);
    assert!(!ok && said.contains("which is copied"), "{said}");
    let (ok, said) = command(&["backup", text(&at("b")), "--data", text(&data), "--no-verify"]);
    assert!(ok && said.contains("not verified"), "{said}");
    let (ok, said) = command(&["backup", text(&at("b")), "--data", text(&data)]);
    assert!(!ok && said.contains("is not empty"), "{said}");
    let (ok, said) = command(&["restore", text(&at("b")), text(&data)]);
    assert!(!ok && said.contains("is not empty"), "{said}");
    // Not verified before: the first start does it.
    let (ok, said) = command(&["restore", text(&at("b")), text(&at("r")), "--no-verify"]);
    assert!(ok, "{said}");
    let gate = Launch::on(&at("r")).start();
    assert!(gate.stderr().contains("the data folder is a copy"), "{}", gate.stderr());
    assert_eq!(gist(&push(&mut gate.client(), &envelope(3))), "DUPLICATE DUPLICATE");
    gate.stop();
    fs::remove_file(at("b").join("backup.json")).unwrap();
    let (ok, said) = command(&["restore", text(&at("b")), text(&at("again"))]);
    assert!(!ok && said.contains("is no whole backup"), "{said}");
    assert!(!at("again").exists(), "nothing was made");
}

#[test]
fn a_copied_folder_is_verified_before_a_door_opens_and_a_torn_one_is_refused() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    filled(&at("data"));
    for copy in ["whole", "torn"] {
        run("cp", ["-r", text(&at("data")), text(&at(copy))]).unwrap();
    }
    let gate = impatient(&at("whole")).start();
    assert!(gate.stderr().contains("the data folder is a copy"), "{}", gate.stderr());
    gate.stop();
    for data in ["whole", "data"] {
        let gate = impatient(&at(data)).start();
        assert!(!gate.stderr().contains("is a copy"), "{data}: {}", gate.stderr());
        gate.stop();
    }
    // As of a folder whose bus was copied a moment before its ledger.
    let log = at("torn").join("bus").join(STREAM).join("partition=0.jsonl");
    let text_of_log = fs::read_to_string(&log).unwrap();
    for (lines, found) in [(4, "1 disagreement was found"), (3, "2 disagreements were found")] {
        let kept: Vec<&str> = text_of_log.lines().take(lines).collect();
        fs::write(&log, kept.join("\n") + "\n").unwrap();
        let ended = impatient(&at("torn")).start_in_vain();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        let said = &ended.stderr;
        assert!(said.contains("the bus does not have its message where the ledger says"), "{said}");
        assert!(said.contains(found) && !said.contains("admit repair"), "{said}");
    }
    fs::remove_file(at("torn").join("ledger.place")).unwrap();
    impatient(&at("torn")).start().stop();
}

#[test]
fn a_copy_that_lacks_a_file_which_the_ledger_can_make_is_repaired_and_served() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    filled(&data);
    run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    let lost = file_in(&copy.join("artifacts"), "receipt");
    fs::remove_file(&lost).unwrap();
    let ended = impatient(&copy).start_in_vain();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 disagreement was found"), "{}", ended.stderr);
    assert!(ended.stderr.contains("admit repair writes those again"), "{}", ended.stderr);
    let (ok, said) = command(&["repair", "--data", text(&copy)]);
    assert!(ok && lost.exists(), "{said}");
    impatient(&copy).start().stop();
}

/// A JSON file below `folder` with `word` in its path.
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
    panic!("no file of {word}");
}

/// Nothing but a start examines all of it.
#[test]
fn a_copy_that_no_gate_has_verified_is_neither_copied_nor_attached_to() {
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, copy) = (folder.path().join("data"), folder.path().join("copy"));
    filled(&data);
    run("cp", ["-r", text(&data), text(&copy)]).unwrap();
    let from = format!("sqlite:{}", text(&copy));
    // No database listens there.
    let to = "postgres://user@127.0.0.1:1/none";
    let moves = ["ledger", "copy", "--from", &from, "--to", to];
    let attaches = ["ledger", "attach", "--bus", "--data", text(&copy)];
    for words in [&moves[..], &attaches[..]] {
        let (ok, said) = command(words);
        let place = format!("{}/ledger.place", text(&copy));
        for word in ["was not verified", "admit serve --data", "admit verify --data", &place] {
            assert!(!ok && said.contains(word), "{words:?}: {said}");
        }
    }
    impatient(&copy).start().stop();
    let (ok, said) = command(&attaches);
    assert!(ok, "{said}");
    let (ok, said) = command(&moves);
    assert!(!ok && !said.contains("was not verified"), "{said}");
}

#[test]
fn with_a_ledger_on_postgres_the_rest_is_copied_and_pg_dump_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let gate = impatient(&at("data")).start();
    assert_eq!(gist(&push(&mut gate.client(), &envelope(1))), "ADMIT");
    let backup = |to: &str, variables: &[(&str, &str)]| {
        let (to, data) = (at(to), at("data"));
        let mut command = admit(["backup", text(&to), "--data", text(&data)]);
        command.env("ADMIT_LEDGER__URL", "postgres://nobody@127.0.0.1:1/none");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = backup("backup", &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("pg_dump"), "{said}");
    assert_eq!(published(&at("backup"), STREAM), ["event-1"]);
    assert!(!at("backup").join("ledger.db").exists());
    let elsewhere =
        [("ADMIT_BUS__URL", "nats://127.0.0.1:1"), ("ADMIT_ARTIFACTS__URL", "s3://bucket/prefix")];
    let (code, said) = backup("nothing", &elsewhere);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("pg_dump") && !at("nothing").exists(), "{said}");
    gate.stop();
}
