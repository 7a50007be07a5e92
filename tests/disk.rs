//! Disk faults: full, locked, read-only, slow, damaged or in use by another gate. Replies are typed errors,
//! nothing is written in part, and the gate recovers when the disk does.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::support::disks::{ImageDisk, SmallDisk};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::http::DOOR;
use crate::support::ledger::{LedgerLock, StoredReceipts, assert_intact};
use crate::support::machine::{run, text};
use crate::support::{TIMEOUT, sql, wait_for};

/// Timeout of the plugin; the gate guarantees a reply within 4 s.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn a_full_disk_returns_typed_errors_and_the_gate_recovers_without_traffic() {
    let Some(disk) = SmallDisk::new(12 * 1024 * 1024) else { return };
    let mut gate = Gate::on(disk.path());
    let mut client = gate.client();
    for n in 1..=20 {
        client.submit(&match_begin(n, "a")).processed();
    }
    let ballast = disk.fill();
    // Preallocated space takes a few more events.
    let mut processed = 20;
    let refused = (21..=2000).find(|n| {
        let reply = client.submit(&match_begin(*n, "a"));
        if reply.is_processed() {
            processed = *n;
            return false;
        }
        reply.unavailable();
        true
    });
    let refused = refused.expect("a refusal on a full disk");
    let hints: Vec<u64> = (refused..refused + 16)
        .map(|n| client.submit(&match_begin(n, "a")).unavailable().retry_after_seconds)
        .collect();
    assert!(
        hints.iter().any(|hint| *hint != hints[0]),
        "retry hints must differ between events: {hints:?}"
    );
    let body = match_begin(refused, "a").body();
    let response = client.send("POST", DOOR, &[], body.as_bytes()).expect("response from the gate");
    let hint = hints[0].to_string();
    assert_eq!(
        response.header("retry-after"),
        Some(&*hint),
        "the retry hint of an event must not change"
    );
    assert!(!gate.is_ready() && gate.is_running(), "the gate must run on and not be ready");
    let stored = StoredReceipts::read(disk.path());
    assert_eq!(stored.len() as u64, processed, "a refused event was stored");
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], processed);

    fs::remove_file(ballast).unwrap();
    wait_for("the gate recovers by itself", TIMEOUT, || gate.is_ready().then_some(()));
    for n in refused..refused + 16 {
        client.submit(&match_begin(n, "a").attempt(2)).processed();
    }
    client.submit(&match_begin(processed, "a")).duplicate();

    let ballast = disk.fill();
    gate.stop();
    fs::remove_file(ballast).unwrap();
    assert_intact(disk.path());
}

/// The free space is reserved for the checkpoint that a start needs.
#[test]
fn on_a_nearly_full_disk_the_wal_leaves_space_for_a_restart() {
    if sql::is_postgres() {
        return;
    }
    let Some(disk) = SmallDisk::new(12 * 1024 * 1024) else { return };
    let gate = Gate::on(disk.path());
    let log = disk.path().join("ledger.db-wal");
    let mut client = gate.client();
    let mut sent = 0;
    let mut send_until_log_has = |bytes| {
        while fs::metadata(&log).unwrap().len() < bytes {
            sent += 1;
            client.submit(&match_begin(sent, "a")).processed();
        }
    };
    send_until_log_has(180_000);
    let ballast = fs::File::options().write(true).open(disk.fill()).unwrap();
    ballast.set_len(ballast.metadata().unwrap().len() - 700_000).unwrap();
    send_until_log_has(300_000);
    gate.kill();
    let length = fs::metadata(&log).unwrap().len();
    assert!(length < 400_000, "{length} bytes for {sent} events");
    let gate = Gate::on(disk.path());
    gate.client().submit(&match_begin(sent, "a")).duplicate();
    gate.stop();
}

#[test]
fn a_start_on_a_full_disk_fails_with_the_reason() {
    let Some(disk) = SmallDisk::new(4 * 1024 * 1024) else { return };
    disk.fill();
    let exit = Launch::on(disk.path()).start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains(text(disk.path())), "the path is missing: {}", exit.stderr);
    assert!(exit.stderr.contains("full") || exit.stderr.contains("space"), "{}", exit.stderr);
}

/// Immutable ledger files, which not even root can write: like a read-only remount under a running gate.
struct ImmutableFiles<'a>(&'a Path);

impl<'a> ImmutableFiles<'a> {
    fn set_immutable(data: &'a Path) -> Self {
        let files = Self(data);
        files.set_flag("+i");
        files
    }

    fn set_flag(&self, flag: &str) {
        for name in ["ledger.db", "ledger.db-wal"] {
            run("chattr", [flag, text(&self.0.join(name))]).unwrap();
        }
    }
}

impl Drop for ImmutableFiles<'_> {
    fn drop(&mut self) {
        self.set_flag("-i");
    }
}

#[test]
fn a_disk_that_turns_read_only_returns_typed_errors_and_the_gate_recovers() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let mut gate = Gate::on(&data);
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let read_only = ImmutableFiles::set_immutable(&data);
    for n in 2..6 {
        client.submit(&match_begin(n, "a")).unavailable();
    }
    assert!(!gate.is_ready() && gate.is_running());
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1);

    drop(read_only);
    wait_for("the gate recovers by itself", TIMEOUT, || gate.is_ready().then_some(()));
    for n in 2..6 {
        client.submit(&match_begin(n, "a").attempt(2)).processed();
    }
    client.submit(&match_begin(1, "a")).duplicate();
    gate.stop();
    assert_intact(&data);
}

#[test]
fn a_start_on_a_read_only_folder_fails_with_the_reason() {
    let Some(disk) = SmallDisk::new(4 * 1024 * 1024) else { return };
    Gate::on(disk.path()).stop();
    run("mount", ["-o", "remount,ro", text(disk.path())]).unwrap();
    let exit = Launch::on(disk.path()).start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains(text(disk.path())), "{}", exit.stderr);
    assert!(exit.stderr.to_lowercase().contains("read-only"), "{}", exit.stderr);
    run("mount", ["-o", "remount,rw", text(disk.path())]).unwrap();
    Gate::on(disk.path()).stop();
}

/// A frozen file system: every write blocks until this is dropped.
struct FrozenDisk<'a>(&'a Path);

impl<'a> FrozenDisk<'a> {
    fn freeze(path: &'a Path) -> Self {
        run("fsfreeze", ["--freeze", text(path)]).unwrap();
        Self(path)
    }
}

impl Drop for FrozenDisk<'_> {
    fn drop(&mut self) {
        run("fsfreeze", ["--unfreeze", text(self.0)]).map(drop).unwrap_or_default();
    }
}

#[test]
fn on_a_disk_that_hangs_replies_are_in_time_and_a_retry_gets_the_outcome() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let gate = Gate::on(&data);
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let frozen = FrozenDisk::freeze(&data);
    let begun = Instant::now();
    client.submit(&match_begin(2, "a")).unavailable();
    assert!(begun.elapsed() < PLUGIN_TIMEOUT, "{:?}", begun.elapsed());
    drop(frozen);
    // The commit finished after the reply.
    wait_for("the event is stored after the timeout", TIMEOUT, || {
        StoredReceipts::read(&data).get(2).map(drop)
    });
    client.submit(&match_begin(2, "a").attempt(2)).duplicate();
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 2);
    gate.stop();
}

#[test]
fn under_a_lock_held_too_long_replies_are_in_time_and_the_gate_recovers() {
    const REQUESTS: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(1, "a")).processed();
    let lock = LedgerLock::acquire(folder.path());
    thread::scope(|scope| {
        for n in 2..2 + REQUESTS {
            let mut client = gate.client();
            scope.spawn(move || {
                let begun = Instant::now();
                client.submit(&match_begin(n, "a")).unavailable();
                assert!(begun.elapsed() < PLUGIN_TIMEOUT, "{n}: {:?}", begun.elapsed());
            });
        }
    });
    wait_for("the gate is not ready", TIMEOUT, || (!gate.is_ready()).then_some(()));
    assert!(gate.is_running());
    let mut client = gate.client();
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1);

    drop(lock);
    wait_for("the gate recovers by itself", TIMEOUT, || gate.is_ready().then_some(()));
    // Each reply was "outcome unknown": by now the event is stored or not.
    for n in 2..2 + REQUESTS {
        let reply = client.submit(&match_begin(n, "a").attempt(2));
        assert!(reply.is_accepted(), "{n}: {reply:?}");
        client.submit(&match_begin(n, "a").attempt(3)).duplicate();
    }
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1 + REQUESTS);
    gate.stop();
}

#[test]
fn a_long_read_transaction_does_not_block_writes() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let reader = sql::open_file(folder.path());
    reader.execute_batch("BEGIN").unwrap();
    let rows = || {
        let count = "SELECT count(*) FROM pixel_receipts";
        reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(), 1);
    for n in 2..=50 {
        client.submit(&match_begin(n, "a")).processed();
    }
    assert_eq!(rows(), 1, "a read transaction sees one snapshot");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(), 50);
    gate.stop();
}

/// Number of events in a ledger made by [`fill`].
const EVENTS: u64 = 400;

/// Fills a ledger with a few hundred events, stops the gate, and checkpoints the WAL.
fn fill(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.submit(&match_begin(n, "a")).processed();
    }
    gate.stop();
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    let busy: i64 =
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
}

#[test]
fn a_damaged_ledger_is_not_opened_and_not_modified() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 5] = [
        ("a garbled header", |bytes| bytes[..100].fill(b'x')),
        ("the second half of the header", |bytes| bytes[40..100].fill(0x7e)),
        ("garbled pages", |bytes| bytes[4096..].fill(0xa5)),
        ("half a file", |bytes| bytes.truncate(bytes.len() / 2 / 4096 * 4096)),
        ("another file type", |bytes| *bytes = b"this was a shopping list once\n".repeat(500)),
    ];
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&file, &bytes).unwrap();
        let exit = Launch::on(folder.path()).start_expecting_exit();
        assert_eq!(exit.status.code(), Some(1), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains(text(&file)), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains("damaged"), "{name}: {}", exit.stderr);
        assert!(exit.stderr.contains("backup"), "{name}: no remedy: {}", exit.stderr);
        assert!(fs::read(&file).unwrap() == bytes, "{name}: the damaged file was changed");
    }
    fs::write(&file, &whole).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(EVENTS, "a")).duplicate();
    gate.stop();
}

#[test]
fn with_any_page_damaged_the_start_is_refused_or_no_event_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    // Each iteration restores the original file, so the mark must be restored with it.
    let mark_file = folder.path().join("ledger.mark");
    let mark = fs::read(&mark_file).unwrap();
    let pages = whole.len() / 4096;
    let mut refused = 0;
    // The first page is the header, which another test damages. Damage to empty pages may go unnoticed.
    for page in (1..pages).step_by((pages / 24).max(1)) {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xff);
        fs::write(&file, &bytes).unwrap();
        fs::write(&mark_file, &mark).unwrap();
        match Launch::on(folder.path()).try_start() {
            Err(exit) => {
                assert_eq!(exit.status.code(), Some(1), "page {page}: {}", exit.stderr);
                assert!(exit.stderr.contains("damaged"), "page {page}: {}", exit.stderr);
                refused += 1;
            }
            Ok(gate) => {
                let mut client = gate.client();
                for n in 1..=EVENTS {
                    client.submit(&match_begin(n, "a").attempt(2)).duplicate();
                }
                gate.stop();
            }
        }
    }
    assert!(refused > 8, "only {refused} damaged pages were detected");
}

#[test]
fn a_second_gate_on_the_folder_is_refused_and_the_first_keeps_running() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().submit(&match_begin(1, "a")).processed();
    let exit = Launch::on(folder.path()).start_expecting_exit();
    assert_eq!(exit.status.code(), Some(1), "{}", exit.stderr);
    assert!(exit.stderr.contains("another gate"), "{}", exit.stderr);
    assert!(exit.stderr.contains("--data"), "no remedy: {}", exit.stderr);
    gate.client().submit(&match_begin(1, "a")).duplicate();
    gate.client().submit(&match_begin(2, "a")).processed();
    gate.stop();
    Gate::on(folder.path()).stop();
}
