//! A ledger that is taken away, emptied, or whose log is damaged: no gate begins anew in its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::machine::text;
use crate::support::sql;

/// So many events are acknowledged, each with a commit of its own.
const EVENTS: u64 = 8;

/// A folder as a killed gate leaves it.
fn killed(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.say(&match_begin(n, "a")).processed();
    }
    gate.kill();
}

/// Garbles a log in the middle of what is written in it; a log that has grown ends with zeros.
fn garble_the_middle(log: &mut [u8]) {
    let end = log.iter().rposition(|byte| *byte != 0).expect("something is in it");
    log[end / 2..end / 2 + 100].fill(0xa5);
}

/// What people run on a folder after a crash, before they start a gate on it again.
const LOOKS: [&[&str]; 5] = [
    &["receipts", "list"],
    &["inbox", "list"],
    &["ledger", "status"],
    &["ledger", "migrate"],
    &["verify"],
];

/// Every file of a folder and what is in it, but who has it.
fn files(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let ours = paths.filter(|path| path.is_file() && !path.ends_with("admit.lock"));
    ours.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Runs each of them, and then a gate. All refuse, with `said`, and leave everything as it is.
fn everybody_refuses(data: &Path, said: &[&str]) {
    let before = files(data);
    let check = |who: &str, code: Option<i32>, stderr: &str| {
        assert_eq!(code, Some(1), "{who}: {stderr}");
        for said in said {
            assert!(stderr.contains(said), "{who} does not say {said:?}: {stderr}");
        }
        assert!(files(data) == before, "{who}: evidence is left as it is");
    };
    for words in LOOKS {
        let output = admit([words, &["--data", text(data)]].concat()).output().unwrap();
        check(&words.join(" "), output.status.code(), &String::from_utf8(output.stderr).unwrap());
    }
    let ended = Launch::on(data).start_in_vain();
    check("serve", ended.status.code(), &ended.stderr);
}

fn all_are_known(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.say(&match_begin(n, "a").attempt(2)).duplicate();
    }
    gate.stop();
}

#[test]
fn a_ledger_that_is_gone_or_empty_is_not_begun_anew() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    Gate::on(folder.path()).stop();
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    type Take = fn(&Path);
    let takes: [(&str, Take); 2] = [
        ("not there", |file| fs::remove_file(file).unwrap()),
        ("empty", |file| fs::write(file, b"").unwrap()),
    ];
    for (missing, take) in takes {
        take(&file);
        everybody_refuses(folder.path(), &[text(&file), missing, "backup"]);
        fs::write(&file, &whole).unwrap();
    }
    all_are_known(folder.path());
    // Whoever wants a new ledger says so.
    fs::remove_file(&file).unwrap();
    fs::remove_file(folder.path().join("ledger.id")).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    gate.stop();
}

#[test]
fn a_log_that_is_damaged_is_not_opened_and_not_touched() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let whole = fs::read(&log).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 5] = [
        ("a garbled header", |bytes| bytes[..32].fill(b'x')),
        ("a garbled middle", |bytes| garble_the_middle(bytes)),
        ("nothing but garbage", |bytes| bytes.fill(0x5a)),
        ("a few bytes of it", |bytes| bytes.truncate(10)),
        ("the first page of it", |bytes| bytes.truncate(10_000)),
    ];
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&log, &bytes).unwrap();
        println!("{name}");
        let said = [text(&log), "damaged", "wal_checkpoint(TRUNCATE)", "ledger.mark"];
        everybody_refuses(folder.path(), &said);
    }
    fs::write(&log, &whole).unwrap();
    all_are_known(folder.path());
}

/// A gate takes the folder before it looks through the log, and lets go of it when it refuses.
#[test]
fn a_log_that_is_damaged_is_refused_beside_a_gate_that_has_not_looked_at_it_yet() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    bytes.truncate(10_000);
    fs::write(&log, &bytes).unwrap();
    let taken = fs::File::open(folder.path().join("admit.lock")).unwrap();
    taken.lock().unwrap();
    everybody_refuses(folder.path(), &[]);
    drop(taken);
    everybody_refuses(folder.path(), &[text(&log), "damaged"]);
}

#[test]
fn a_look_at_a_killed_gates_folder_changes_nothing_in_it() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    // SQLite makes its index of the log anew when nobody else has it.
    let kept = || {
        let mut files = files(folder.path());
        files.remove(&folder.path().join("ledger.db-shm"));
        files
    };
    let before = kept();
    for words in LOOKS.iter().filter(|words| !words.contains(&"migrate")) {
        let output =
            admit([words, &["--data", text(folder.path())][..]].concat()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert!(kept() == before, "{words:?} changed something");
    }
    all_are_known(folder.path());
    let log = folder.path().join("ledger.db-wal");
    assert!(!log.exists(), "a gate that was stopped leaves no log");
    let output = admit(["verify", "--data", text(folder.path())]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!log.exists(), "nor does a look at what it left");
}

#[test]
fn whoever_accepts_the_loss_of_a_damaged_log_goes_on_with_what_is_readable() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    garble_the_middle(&mut bytes);
    fs::write(&log, &bytes).unwrap();
    Launch::on(folder.path()).start_in_vain();
    let conn = Connection::open(folder.path().join("ledger.db")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let ended = Launch::on(folder.path()).start_in_vain();
    assert!(ended.stderr.contains("are missing"), "{}", ended.stderr);
    fs::remove_file(folder.path().join("ledger.mark")).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a").attempt(2)).duplicate();
    gate.client().say(&match_begin(EVENTS, "a").attempt(2)).processed();
    gate.stop();
}

#[test]
fn a_gate_whose_ledger_is_taken_away_acknowledges_nothing_more_and_stops() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    fs::rename(folder.path().join("ledger.db"), folder.path().join("elsewhere.db")).unwrap();
    gate.client().say(&match_begin(2, "a")).unavailable();
    let ended = gate.ended();
    assert_eq!(ended.status.code(), Some(74), "{}", ended.stderr);
    assert!(ended.stderr.contains("removed or replaced"), "{}", ended.stderr);
}
