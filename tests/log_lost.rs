//! A WAL that was lost in whole or in part after a kill: no gate continues without acknowledged events,
//! and no complete ledger is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch, admit};
use crate::support::ledger::{StoredReceipts, assert_intact};
use crate::support::load::{Load, LoadResult};
use crate::support::machine::text;
use crate::support::strace::{self, KillPoint, attach_kill, kill_at};
use crate::support::{TIMEOUT, machine, sql, wait_for};

/// Number of events acknowledged by [`killed`], each with its own commit; too few for a checkpoint.
const EVENTS: u64 = 20;

/// A folder as a killed gate leaves it.
fn killed(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.submit(&match_begin(n, "a")).processed();
    }
    gate.kill();
}

fn log_of(data: &Path) -> PathBuf {
    data.join("ledger.db-wal")
}

fn mark_of(data: &Path) -> PathBuf {
    data.join("ledger.mark")
}

/// Every file of a folder with its content, without the lock file.
fn files(data: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let ours = paths.filter(|path| path.is_file() && !path.ends_with("admit.lock"));
    ours.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn put_back(data: &Path, before: &BTreeMap<PathBuf, Vec<u8>>) {
    for path in files(data).keys() {
        fs::remove_file(path).unwrap();
    }
    for (path, bytes) in before {
        fs::write(path, bytes).unwrap();
    }
}

const LOOKS: [&[&str]; 4] =
    [&["receipts", "list"], &["ledger", "status"], &["ledger", "migrate"], &["verify"]];

/// Checks that the gate and every command refuse with the same message and change nothing.
fn all_refuse(data: &Path, what: &str, words: &[&str]) {
    let before = files(data);
    let check = |who: &str, code: Option<i32>, stderr: &str| {
        assert_eq!(code, Some(1), "{what}, {who}: {stderr}");
        for word in words {
            assert!(stderr.contains(word), "{what}, {who} does not say {word:?}: {stderr}");
        }
        assert!(files(data) == before, "{what}, {who}: evidence is left as it is");
    };
    for look in LOOKS {
        let output = admit([look, &["--data", text(data)]].concat()).output().unwrap();
        check(&look.join(" "), output.status.code(), &String::from_utf8(output.stderr).unwrap());
    }
    let ended = Launch::on(data).start_expecting_exit();
    check("serve", ended.status.code(), &ended.stderr);
}

fn all_are_known(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.submit(&match_begin(n, "a").attempt(2)).duplicate();
    }
    gate.stop();
}

#[test]
fn a_ledger_with_a_lost_wal_is_refused_and_not_modified() {
    if sql::skip_on_postgres() {
        return;
    }
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = folder.path();
    killed(data);
    killed(other.path());
    let whole = files(data);
    let another_log = fs::read(log_of(other.path())).unwrap();
    type Damage<'d> = &'d dyn Fn(&Path);
    let damages: [(&str, &str, Damage<'_>); 5] = [
        ("no log", "its log is missing", &|log| fs::remove_file(log).unwrap()),
        ("an empty log", "its log is empty", &|log| fs::write(log, b"").unwrap()),
        ("a header of zeros", "no readable header", &|log| {
            let mut bytes = fs::read(log).unwrap();
            bytes[..32].fill(0);
            fs::write(log, bytes).unwrap();
        }),
        ("nothing but zeros", "no readable header", &|log| {
            fs::write(log, vec![0; 100_000]).unwrap();
        }),
        ("another log", "not the one that was in use", &|log| {
            fs::write(log, &another_log).unwrap();
        }),
    ];
    for (name, why, damage) in damages {
        fs::remove_file(data.join("ledger.db-shm")).unwrap();
        damage(&log_of(data));
        if name == "another log" {
            // SQLite writes the shared-memory index of a readable WAL.
            let ended = Launch::on(data).start_expecting_exit();
            assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        }
        let log = log_of(data);
        let words = ["acknowledged", "are missing", why, text(&log), "backup", "ledger.mark"];
        all_refuse(data, name, &words);
        put_back(data, &whole);
    }
    all_are_known(data);
}

/// Part of the WAL is checkpointed by then, so the rest of the ledger looks complete. A reader prevents a
/// full checkpoint before the kill.
#[test]
fn a_wal_lost_after_thousands_of_events_is_detected() {
    const COPIED: u64 = 1_500;
    const AFTERWARDS: u64 = 1_500;
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 8, &numbers, &mut machine::rng());
    wait_for("some are acknowledged", TIMEOUT, || (load.acked() >= COPIED).then_some(()));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(data.join("ledger.db"), flags).unwrap();
    reader.execute_batch("BEGIN; SELECT max(seq) FROM admission").unwrap();
    // What is acknowledged from here on stays in the log: the reader prevents its copy.
    let enough = load.acked() + AFTERWARDS;
    wait_for("enough is acknowledged", TIMEOUT, || (load.acked() >= enough).then_some(()));
    gate.kill();
    load.join();
    drop(reader);
    fs::remove_file(log_of(data)).unwrap();
    fs::remove_file(data.join("ledger.db-shm")).unwrap();
    all_refuse(data, "no log", &["acknowledged", "are missing", "ledger.mark"]);
}

/// The file then holds some pages of the last commits but not all, and may claim to hold them all.
#[test]
fn a_wal_lost_during_a_checkpoint_is_detected() {
    /// Number of events of this size after which part of the WAL is checkpointed.
    const EVENTS_MAX: u64 = 400;
    const PADDING: usize = 60_000;
    if !strace::is_available() {
        return;
    }
    for nth in [1, 8, 20, 40] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        let mut gate = Gate::on(data);
        let mut strace = attach_kill(&gate, kill_at("pwrite64", "ledger.db", nth), "");
        let mut client = gate.client();
        let is_killed = (1..=EVENTS_MAX).any(|n| {
            let answer = client.post(&match_begin(n, "a").padded(PADDING));
            // Time for the checkpoint to begin before the next commit.
            thread::sleep(Duration::from_millis(15));
            answer.is_err() || !gate.is_running()
        });
        assert!(is_killed, "nothing was written to the file {nth} times");
        gate.kill();
        strace.wait().unwrap();
        fs::remove_file(log_of(data)).unwrap();
        fs::remove_file(data.join("ledger.db-shm")).unwrap();
        all_refuse(data, &format!("killed at write {nth}"), &["missing", "ledger.mark"]);
    }
}

#[test]
fn a_wal_checkpointed_by_another_program_is_not_reported_as_lost() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    killed(data);
    // Like `sqlite3 ledger.db 'SELECT …'`: the last connection that closes truncates the WAL.
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    let rows: u64 = conn.query_row("SELECT count(*) FROM admission", [], |row| row.get(0)).unwrap();
    drop(conn);
    assert_eq!(rows, EVENTS);
    assert!(!log_of(data).exists(), "it is gone with the last one");
    for look in LOOKS {
        let output = admit([look, &["--data", text(data)]].concat()).output().unwrap();
        assert!(output.status.success(), "{look:?}: {output:?}");
    }
    all_are_known(data);
}

#[test]
fn removing_the_mark_accepts_the_loss() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    gate.client().submit(&match_begin(1, "a")).processed();
    gate.stop();
    let gate = Gate::on(data);
    gate.client().submit(&match_begin(2, "a")).processed();
    gate.kill();
    fs::remove_file(log_of(data)).unwrap();
    fs::remove_file(data.join("ledger.db-shm")).unwrap();
    all_refuse(data, "no log", &["are missing"]);
    fs::remove_file(mark_of(data)).unwrap();
    let gate = Gate::on(data);
    gate.client().submit(&match_begin(1, "a").attempt(2)).duplicate();
    gate.client().submit(&match_begin(2, "a").attempt(2)).processed();
    gate.stop();
}

/// Its receipt ids would be issued twice.
#[test]
fn an_older_ledger_over_a_cleanly_stopped_one_is_refused_until_the_mark_is_removed() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let says = |n, attempt| {
        let gate = Gate::on(data);
        let reply = gate.client().submit(&match_begin(n, "a").attempt(attempt));
        gate.stop();
        reply
    };
    says(1, 1).processed();
    let older = fs::read(data.join("ledger.db")).unwrap();
    says(2, 1).processed();
    let newer = fs::read(data.join("ledger.db")).unwrap();
    fs::write(data.join("ledger.db"), &older).unwrap();
    let words = ["acknowledged", "are missing", "an older one", "up to 2", "ends at 1"];
    all_refuse(data, "an older file", &words);
    fs::write(data.join("ledger.db"), newer).unwrap();
    says(2, 2).duplicate();
    fs::write(data.join("ledger.db"), &older).unwrap();
    fs::remove_file(mark_of(data)).unwrap();
    says(2, 3).processed();
    // A separate folder, such as a backup, has no mark.
    let apart = tempfile::tempdir().unwrap();
    fs::write(apart.path().join("ledger.db"), older).unwrap();
    assert_has_everything(apart.path(), "apart");
}

#[test]
fn a_tagged_ledger_is_not_replaced_by_an_untagged_one() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let gate = Gate::on(data);
    gate.client().submit(&match_begin(1, "a")).processed();
    gate.kill();
    // The state that an earlier version without marks left: everything but the tables was in its first
    // WAL.
    for name in ["ledger.db-wal", "ledger.db-shm", "ledger.mark"] {
        fs::remove_file(data.join(name)).unwrap();
    }
    all_refuse(data, "no tag", &["without its tag", "ledger.id", "backup"]);
}

/// Kill points at the start of a WAL generation: its mark, its header, its first commit, and after that.
const POINTS: [KillPoint; 7] = [
    kill_at("pwrite64", "ledger.mark", 1),
    kill_at("fdatasync", "ledger.mark", 1),
    kill_at("pwrite64", "ledger.db-wal", 1),
    kill_at("fdatasync", "ledger.db-wal", 1),
    kill_at("pwrite64", "ledger.db-wal", 2),
    kill_at("fdatasync", "ledger.db-wal", 2),
    kill_at("pwrite64", "ledger.mark", 2),
];

#[test]
fn killed_at_any_point_of_the_first_commit_of_a_wal_the_next_start_succeeds() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut kills = 0;
    let mut acked = 0;
    for at in POINTS {
        let mut gate = Gate::on(data);
        let mut client = gate.client();
        for n in 1..=acked {
            client.submit(&match_begin(n, "a").attempt(2)).duplicate();
        }
        // The outcome of the previous event is unknown.
        let reply = client.submit(&match_begin(acked + 1, "a"));
        assert!(reply.is_accepted(), "{reply:?}");
        acked += 1;
        start_over(data);
        let mut strace = attach_kill(&gate, at, "");
        match client.post(&match_begin(acked + 1, "a")) {
            Ok(answer) => {
                answer.processed();
                acked += 1;
            }
            Err(_) => {
                wait_for("the gate is dead", TIMEOUT, || (!gate.is_running()).then_some(()));
                kills += 1;
            }
        }
        gate.kill();
        strace.wait().unwrap();
        assert_has_everything(data, &format!("{at:?}"));
        pretend_a_reboot(data);
        assert_has_everything(data, &format!("{at:?}, after a restart of the machine"));
    }
    assert!(kills >= 5, "only {kills} points were reached");
    let gate = Gate::on(data);
    for n in 1..=acked {
        gate.client().submit(&match_begin(n, "a").attempt(2)).duplicate();
    }
    gate.stop();
}

/// Another program checkpoints while the gate writes, so that WAL generations are short.
#[test]
fn killed_at_any_time_a_gate_restarts_with_every_acknowledged_event() {
    const ROUNDS: u32 = 6;
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut rng = machine::rng();
    let numbers = Arc::new(AtomicU64::new(1));
    let mut results = LoadResult::default();
    for round in 0..ROUNDS {
        let gate = Gate::on(data);
        let load = Load::start(gate.address(), 4, &numbers, &mut rng);
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(10 + rng.below(60)));
            start_over(data);
        }
        gate.kill();
        results.add(load.join());
        if round % 2 == 0 {
            pretend_a_reboot(data);
        }
        assert_has_everything(data, &format!("round {round}"));
    }
    let gate = Gate::on(data);
    results.assert_stored(&StoredReceipts::read(data));
    gate.stop();
    assert_intact(data);
}

/// Makes the next commit start a new WAL generation unless a reader prevents it, as `sqlite3` may.
fn start_over(data: &Path) {
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    conn.busy_timeout(Duration::from_millis(20)).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
}

/// Checks that commands refuse the same folders as the gate.
fn assert_has_everything(data: &Path, when: &str) {
    let output = admit(["ledger", "status", "--data", text(data)]).output().unwrap();
    assert!(output.status.success(), "{when}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Rewrites the mark as if another boot of the machine had written it: its position is then a lower bound
/// only, and the WAL must be the one it names.
fn pretend_a_reboot(data: &Path) {
    const SLOT: usize = 1024;
    let mut bytes = fs::read(mark_of(data)).unwrap();
    bytes[SLOT + 32..SLOT + 48].fill(7);
    let sum = bytes[SLOT..SLOT + 64].iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    bytes[SLOT + 64..SLOT + 72].copy_from_slice(&sum.to_be_bytes());
    fs::write(mark_of(data), bytes).unwrap();
}

#[test]
fn after_a_machine_restart_a_missing_wal_is_never_treated_as_empty() {
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    killed(data);
    pretend_a_reboot(data);
    assert_has_everything(data, "with its log");
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(conn);
    all_refuse(data, "no log", &["may be missing", "restarted", "sqlite3", "ledger.mark"]);
    fs::remove_file(mark_of(data)).unwrap();
    all_are_known(data);
}
