//! The disk is full, locked, read-only, slow, damaged or taken: typed words, nothing half-written,
//! and a gate that heals when the disk does.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::support::disks::{ImageDisk, SmallDisk};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::http::DOOR;
use crate::support::ledger::{Held, Stored, assert_intact};
use crate::support::machine::{run, text};
use crate::support::{SOON, sql, until};

/// So long the plugin waits for an answer, whatever the ledger does; the gate promises 4 s.
const PLUGIN_WAITS: Duration = Duration::from_secs(5);

#[test]
fn a_full_disk_is_said_in_typed_words_and_heals_without_traffic() {
    let Some(disk) = SmallDisk::new(12 * 1024 * 1024) else { return };
    let mut gate = Gate::on(disk.path());
    let mut client = gate.client();
    for n in 1..=20 {
        client.say(&match_begin(n, "a")).processed();
    }
    let ballast = disk.fill();
    // What is left in files that were allocated before takes a few more.
    let mut processed = 20;
    let refused = (21..=2000).find(|n| {
        let said = client.say(&match_begin(*n, "a"));
        if said.is_processed() {
            processed = *n;
            return false;
        }
        said.unavailable();
        true
    });
    let refused = refused.expect("a full disk takes no more");
    let hints: Vec<u64> = (refused..refused + 16)
        .map(|n| client.say(&match_begin(n, "a")).unavailable().retry_after_seconds)
        .collect();
    assert!(hints.iter().any(|hint| *hint != hints[0]), "hints are spread by event: {hints:?}");
    let body = match_begin(refused, "a").body();
    let answer = client.send("POST", DOOR, &[], body.as_bytes()).expect("the gate answers");
    let again = hints[0].to_string();
    assert_eq!(answer.header("retry-after"), Some(&*again), "the same event, the same hint");
    assert!(!gate.is_ready() && gate.is_running(), "it stays up and says that it is not ready");
    let stored = Stored::read(disk.path());
    assert_eq!(stored.len() as u64, processed, "nothing of what was refused is kept");
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], processed);

    fs::remove_file(ballast).unwrap();
    until("the gate heals by itself", SOON, || gate.is_ready().then_some(()));
    for n in refused..refused + 16 {
        client.say(&match_begin(n, "a").attempt(2)).processed();
    }
    client.say(&match_begin(processed, "a")).duplicate();

    let ballast = disk.fill();
    gate.stop();
    fs::remove_file(ballast).unwrap();
    assert_intact(disk.path());
}

/// The last room is for copying the log into the ledger, which a start cannot do without.
#[test]
fn on_a_disk_that_is_nearly_full_the_log_leaves_room_to_start_again() {
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
            client.say(&match_begin(sent, "a")).processed();
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
    gate.client().say(&match_begin(sent, "a")).duplicate();
    gate.stop();
}

#[test]
fn a_full_disk_refuses_a_start_and_says_why() {
    let Some(disk) = SmallDisk::new(4 * 1024 * 1024) else { return };
    disk.fill();
    let ended = Launch::on(disk.path()).start_in_vain();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(text(disk.path())), "it names the place: {}", ended.stderr);
    assert!(ended.stderr.contains("full") || ended.stderr.contains("space"), "{}", ended.stderr);
}

/// Files that nobody may write to, not even root: what a read-only remount does to a running gate.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn make(data: &'a Path) -> Self {
        let made = Self(data);
        made.set("+i");
        made
    }

    fn set(&self, flag: &str) {
        for name in ["ledger.db", "ledger.db-wal"] {
            run("chattr", [flag, text(&self.0.join(name))]).unwrap();
        }
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        self.set("-i");
    }
}

#[test]
fn a_disk_that_turns_read_only_is_said_in_typed_words_and_heals() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let mut gate = Gate::on(&data);
    let mut client = gate.client();
    client.say(&match_begin(1, "a")).processed();
    let read_only = ReadOnly::make(&data);
    for n in 2..6 {
        client.say(&match_begin(n, "a")).unavailable();
    }
    assert!(!gate.is_ready() && gate.is_running());
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1);

    drop(read_only);
    until("the gate heals by itself", SOON, || gate.is_ready().then_some(()));
    for n in 2..6 {
        client.say(&match_begin(n, "a").attempt(2)).processed();
    }
    client.say(&match_begin(1, "a")).duplicate();
    gate.stop();
    assert_intact(&data);
}

#[test]
fn a_read_only_folder_refuses_a_start_and_says_why() {
    let Some(disk) = SmallDisk::new(4 * 1024 * 1024) else { return };
    Gate::on(disk.path()).stop();
    run("mount", ["-o", "remount,ro", text(disk.path())]).unwrap();
    let ended = Launch::on(disk.path()).start_in_vain();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(text(disk.path())), "{}", ended.stderr);
    assert!(ended.stderr.to_lowercase().contains("read-only"), "{}", ended.stderr);
    run("mount", ["-o", "remount,rw", text(disk.path())]).unwrap();
    Gate::on(disk.path()).stop();
}

/// A file system on which every write waits, until this is dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn make(path: &'a Path) -> Self {
        run("fsfreeze", ["--freeze", text(path)]).unwrap();
        Self(path)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        run("fsfreeze", ["--unfreeze", text(self.0)]).map(drop).unwrap_or_default();
    }
}

#[test]
fn a_disk_that_hangs_is_answered_in_time_and_the_retry_finds_out() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let gate = Gate::on(&data);
    let mut client = gate.client();
    client.say(&match_begin(1, "a")).processed();
    let frozen = Frozen::make(&data);
    let begun = Instant::now();
    client.say(&match_begin(2, "a")).unavailable();
    assert!(begun.elapsed() < PLUGIN_WAITS, "{:?}", begun.elapsed());
    drop(frozen);
    // The ledger finished it, though nobody waited any more.
    until("the event is kept after all", SOON, || Stored::read(&data).get(2).map(drop));
    client.say(&match_begin(2, "a").attempt(2)).duplicate();
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 2);
    gate.stop();
}

#[test]
fn a_lock_that_is_held_too_long_is_answered_in_time_and_heals() {
    const WAITING: u64 = 12;
    let folder = tempfile::tempdir().unwrap();
    let mut gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    let held = Held::take(folder.path());
    thread::scope(|scope| {
        for n in 2..2 + WAITING {
            let mut client = gate.client();
            scope.spawn(move || {
                let begun = Instant::now();
                client.say(&match_begin(n, "a")).unavailable();
                assert!(begun.elapsed() < PLUGIN_WAITS, "{n}: {:?}", begun.elapsed());
            });
        }
    });
    until("the gate says that it is not ready", SOON, || (!gate.is_ready()).then_some(()));
    assert!(gate.is_running());
    let mut client = gate.client();
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1);

    drop(held);
    until("the gate heals by itself", SOON, || gate.is_ready().then_some(()));
    // Each was told "unknown" while it still waited for the lock; it is in by now or it is not.
    for n in 2..2 + WAITING {
        let said = client.say(&match_begin(n, "a").attempt(2));
        assert!(said.is_accepted(), "{n}: {said:?}");
        client.say(&match_begin(n, "a").attempt(3)).duplicate();
    }
    assert_eq!(client.get("/v1/pixel/servers/local/a")["event_counts"]["lifecycle"], 1 + WAITING);
    gate.stop();
}

#[test]
fn a_reader_that_holds_on_to_an_old_state_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    client.say(&match_begin(1, "a")).processed();
    let reader = sql::open_file(folder.path());
    reader.execute_batch("BEGIN").unwrap();
    let rows = || {
        let count = "SELECT count(*) FROM pixel_receipts";
        reader.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(rows(), 1);
    for n in 2..=50 {
        client.say(&match_begin(n, "a")).processed();
    }
    assert_eq!(rows(), 1, "a reader sees one state");
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(), 50);
    gate.stop();
}

/// So many events are in a [`filled`] ledger.
const EVENTS: u64 = 400;

/// A ledger with a few hundred events, all in its one file, and no gate on it.
fn filled(data: &Path) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=EVENTS {
        client.say(&match_begin(n, "a")).processed();
    }
    gate.stop();
    let conn = Connection::open(data.join("ledger.db")).unwrap();
    let busy: i64 =
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
}

#[test]
fn a_damaged_ledger_is_not_opened_and_not_touched() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 5] = [
        ("a garbled header", |bytes| bytes[..100].fill(b'x')),
        ("the second half of the header", |bytes| bytes[40..100].fill(0x7e)),
        ("garbled pages", |bytes| bytes[4096..].fill(0xa5)),
        ("half a file", |bytes| bytes.truncate(bytes.len() / 2 / 4096 * 4096)),
        ("something else", |bytes| *bytes = b"this was a shopping list once\n".repeat(500)),
    ];
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    for (name, damage) in damages {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        fs::write(&file, &bytes).unwrap();
        let ended = Launch::on(folder.path()).start_in_vain();
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(text(&file)), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("damaged"), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("backup"), "{name}: what to do: {}", ended.stderr);
        assert!(fs::read(&file).unwrap() == bytes, "{name}: evidence is left as it is");
    }
    fs::write(&file, &whole).unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(EVENTS, "a")).duplicate();
    gate.stop();
}

#[test]
fn whichever_page_is_damaged_the_start_is_refused_or_nothing_known_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path());
    let file = folder.path().join("ledger.db");
    let whole = fs::read(&file).unwrap();
    // The file of each turn is older than what the turn before left; its mark must be too.
    let mark_file = folder.path().join("ledger.mark");
    let mark = fs::read(&mark_file).unwrap();
    let pages = whole.len() / 4096;
    let mut refused = 0;
    // The first page is the header, which another test damages. Pages that hold nothing may pass.
    for page in (1..pages).step_by((pages / 24).max(1)) {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xff);
        fs::write(&file, &bytes).unwrap();
        fs::write(&mark_file, &mark).unwrap();
        match Launch::on(folder.path()).try_start() {
            Err(ended) => {
                assert_eq!(ended.status.code(), Some(1), "page {page}: {}", ended.stderr);
                assert!(ended.stderr.contains("damaged"), "page {page}: {}", ended.stderr);
                refused += 1;
            }
            Ok(gate) => {
                let mut client = gate.client();
                for n in 1..=EVENTS {
                    client.say(&match_begin(n, "a").attempt(2)).duplicate();
                }
                gate.stop();
            }
        }
    }
    assert!(refused > 8, "only {refused} damaged pages were noticed");
}

#[test]
fn a_second_gate_on_the_folder_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    gate.client().say(&match_begin(1, "a")).processed();
    let ended = Launch::on(folder.path()).start_in_vain();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("another gate"), "{}", ended.stderr);
    assert!(ended.stderr.contains("--data"), "what to do: {}", ended.stderr);
    gate.client().say(&match_begin(1, "a")).duplicate();
    gate.client().say(&match_begin(2, "a")).processed();
    gate.stop();
    Gate::on(folder.path()).stop();
}
