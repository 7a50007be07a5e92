//! A ledger that is removed, emptied, or has a damaged WAL: no gate creates a new one in its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::machine::text;
use crate::support::sql;

/// Number of acknowledged events, each in a commit of its own.
const EVENTS: u64 = 8;

/// Fills a data folder with events and kills the gate.
fn fill_and_kill(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.submit(&match_begin(n, "a")).processed();
    }
    gate.kill();
}

/// Overwrites bytes in the middle of a WAL's content; preallocated zeros at its end do not count.
fn garble_middle(log: &mut [u8]) {
    let end = log.iter().rposition(|byte| *byte != 0).expect("the WAL is not empty");
    log[end / 2..end / 2 + 100].fill(0xa5);
}

/// Commands that an operator may run on a folder after a crash, before starting a gate.
const COMMANDS: [&[&str]; 5] = [
    &["receipts", "list"],
    &["inbox", "list"],
    &["ledger", "status"],
    &["ledger", "migrate"],
    &["verify"],
];

/// Reads all files of a folder, without the lock file.
fn read_files(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let data_files = paths.filter(|path| path.is_file() && !path.ends_with("admit.lock"));
    data_files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Asserts that every command and a gate refuse the folder, with the `expected` messages, and change nothing.
fn assert_refused(data: &Path, expected: &[&str]) {
    let before = read_files(data);
    let check = |command: &str, code: Option<i32>, stderr: &str| {
        assert_eq!(code, Some(1), "{command}: {stderr}");
        for message in expected {
            assert!(stderr.contains(message), "{command}: no {message:?} in {stderr}");
        }
        assert!(read_files(data) == before, "{command}: a file was changed");
    };
    for arguments in COMMANDS {
        let output = admit([arguments, &["--data", text(data)]].concat()).output().unwrap();
        check(
            &arguments.join(" "),
            output.status.code(),
            &String::from_utf8(output.stderr).unwrap(),
        );
    }
    let exit = Launch::on(data).start_expecting_exit();
    check("serve", exit.status.code(), &exit.stderr);
}

fn assert_all_known(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.submit(&match_begin(n, "a").attempt(2)).duplicate();
    }
    gate.stop();
}

#[test]
fn a_missing_or_empty_ledger_is_not_replaced_by_a_new_one() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill_and_kill(folder.path());
    Gate::on(folder.path()).stop();
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    type Removal = fn(&Path);
    let removals: [(&str, Removal); 2] = [
        ("not there", |file| fs::remove_file(file).unwrap()),
        ("empty", |file| fs::write(file, b"").unwrap()),
    ];
    for (missing, remove) in removals {
        remove(&file);
        assert_refused(folder.path(), &[text(&file), missing, "backup"]);
        fs::write(&file, &whole).unwrap();
    }
    assert_all_known(folder.path());
    // Removing ledger.id too permits a new ledger.
    fs::remove_file(&file).unwrap();
    fs::remove_file(folder.path().join("ledger.id")).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(1, "a")).processed();
    gate.stop();
}

#[test]
fn a_damaged_wal_is_not_opened_and_not_modified() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill_and_kill(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let whole = fs::read(&log).unwrap();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 5] = [
        ("a garbled header", |bytes| bytes[..32].fill(b'x')),
        ("a garbled middle", |bytes| garble_middle(bytes)),
        ("nothing but garbage", |bytes| bytes.fill(0x5a)),
        ("a few bytes of it", |bytes| bytes.truncate(10)),
        ("the first page of it", |bytes| bytes.truncate(10_000)),
    ];
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&log, &bytes).unwrap();
        println!("{name}");
        let expected = [text(&log), "damaged", "wal_checkpoint(TRUNCATE)", "ledger.mark"];
        assert_refused(folder.path(), &expected);
    }
    fs::write(&log, &whole).unwrap();
    assert_all_known(folder.path());
}

/// A gate locks the folder before it reads the WAL, and releases the lock when it refuses to start.
#[test]
fn a_damaged_wal_is_refused_while_another_gate_is_starting() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill_and_kill(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    bytes.truncate(10_000);
    fs::write(&log, &bytes).unwrap();
    let lock = fs::File::open(folder.path().join("admit.lock")).unwrap();
    lock.lock().unwrap();
    assert_refused(folder.path(), &[]);
    drop(lock);
    assert_refused(folder.path(), &[text(&log), "damaged"]);
}

#[test]
fn read_only_commands_do_not_change_the_folder_of_a_killed_gate() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill_and_kill(folder.path());
    // The first connection creates the WAL index anew.
    let snapshot = || {
        let mut files = read_files(folder.path());
        files.remove(&folder.path().join("ledger.db-shm"));
        files
    };
    let before = snapshot();
    for arguments in COMMANDS.iter().filter(|arguments| !arguments.contains(&"migrate")) {
        let output =
            admit([arguments, &["--data", text(folder.path())][..]].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(snapshot() == before, "{arguments:?} changed a file");
    }
    assert_all_known(folder.path());
    let log = folder.path().join("ledger.db-wal");
    assert!(!log.exists(), "a stopped gate must leave no WAL");
    let output = admit(["verify", "--data", text(folder.path())]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!log.exists(), "verify must leave no WAL");
}

#[test]
fn after_accepting_the_loss_of_a_damaged_wal_the_readable_events_are_served() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fill_and_kill(folder.path());
    let log = folder.path().join("ledger.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    garble_middle(&mut bytes);
    fs::write(&log, &bytes).unwrap();
    Launch::on(folder.path()).start_expecting_exit();
    let conn = Connection::open(folder.path().join("ledger.db")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    let exit = Launch::on(folder.path()).start_expecting_exit();
    assert!(exit.stderr.contains("are missing"), "{}", exit.stderr);
    fs::remove_file(folder.path().join("ledger.mark")).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(1, "a").attempt(2)).duplicate();
    gate.client().submit(&match_begin(EVENTS, "a").attempt(2)).processed();
    gate.stop();
}

#[test]
fn a_gate_whose_ledger_is_removed_acknowledges_nothing_more_and_stops() {
    if sql::is_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(1, "a")).processed();
    fs::rename(folder.path().join("ledger.db"), folder.path().join("elsewhere.db")).unwrap();
    gate.client().submit(&match_begin(2, "a")).unavailable();
    let exit = gate.wait_for_exit();
    assert_eq!(exit.status.code(), Some(74), "{}", exit.stderr);
    assert!(exit.stderr.contains("removed or replaced"), "{}", exit.stderr);
}
