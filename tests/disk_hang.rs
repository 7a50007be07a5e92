//! A disk or a database that hangs fails nothing and confirms nothing: the gate is not ready meanwhile. And a
//! log that a reader holds back is reported, and given back.

use std::fs;
use std::path::Path;

use crate::support::disks::ImageDisk;
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::ledger::Held;
use crate::support::machine::{run, text};
use crate::support::{SOON, sql, until};

/// A gate that answers within a second, so that a commit that takes longer is one that hangs.
fn impatient(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_LIMITS__HEADER_READ_MS_MAX", "400")
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "500")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "1000")
}

fn reasons(gate: &Gate) -> String {
    let answer = gate.client().send("GET", "/readyz", &[], b"").expect("the gate answers");
    answer.json()["reasons"].to_string()
}

/// How many lines of its log have these words.
fn lines(gate: &Gate, level: &str, words: &str) -> usize {
    let log = gate.stderr();
    log.lines().filter(|line| line.contains(level) && line.contains(words)).count()
}

/// On a ledger of either kind: another program holds the lock that a commit needs.
#[test]
fn while_a_commit_hangs_the_gate_is_not_ready_and_logs_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    let mut client = gate.client();
    client.say(&match_begin(1, "a")).processed();
    let held = Held::take(folder.path());
    client.say(&match_begin(2, "a")).unavailable();
    until("the gate is not ready", SOON, || {
        reasons(&gate).contains("longer than limits.answer_ms_max").then_some(())
    });
    drop(held);
    until("it is ready again", SOON, || gate.is_ready().then_some(()));
    let said = client.say(&match_begin(2, "a").attempt(2));
    assert!(said.is_accepted(), "{said:?}");
    assert_eq!(lines(&gate, "WARN", "a commit of the ledger hangs"), 1);
    gate.stop();
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
fn a_gate_on_a_disk_that_hangs_is_not_ready_with_traffic_or_without() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let gate = impatient(&data).start();
    let mut client = gate.client();
    client.say(&match_begin(1, "a")).processed();

    let frozen = Frozen::make(&data);
    client.say(&match_begin(2, "a")).unavailable();
    until("the gate is not ready", SOON, || (!gate.is_ready()).then_some(()));
    assert!(reasons(&gate).contains("longer than limits.answer_ms_max"));
    drop(frozen);
    until("it is ready again", SOON, || gate.is_ready().then_some(()));
    client.say(&match_begin(2, "a").attempt(2)).duplicate();
    assert_eq!(lines(&gate, "WARN", "hangs"), 1, "{}", gate.stderr());
    assert_eq!(lines(&gate, "INFO", "the commit that hung has ended"), 1, "{}", gate.stderr());

    // Where no event comes, the gate writes by itself now and then.
    let frozen = Frozen::make(&data);
    until("the gate is not ready", SOON, || (!gate.is_ready()).then_some(()));
    drop(frozen);
    until("it is ready again", SOON, || gate.is_ready().then_some(()));
    client.say(&match_begin(3, "a")).processed();
    gate.stop();
}

#[test]
fn a_log_that_a_reader_holds_back_is_reported_and_given_back_when_the_reader_has_gone() {
    const EVENTS: u64 = 80;
    if sql::is_about_sqlite() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut send = |n: u64| {
        let (body, key) = (format!("\"{}\"", "x".repeat(1_000_000)), format!("\"event-{n}\""));
        let headers = [("content-type", "application/json"), ("idempotency-key", &*key)];
        let answer = client.send("POST", "/v1/events/default", &headers, body.as_bytes());
        let answer = answer.expect("the gate answers");
        assert!(answer.status < 300, "{answer:?}");
    };
    send(0);
    let reader = sql::open_file(folder.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM admission").unwrap();
    reader.query_row("SELECT count(*) FROM admission", [], |row| row.get::<_, u64>(0)).unwrap();
    for n in 1..=EVENTS {
        send(n);
    }
    let held_back = || {
        let page = gate.client().send("GET", "/metrics", &[], b"").expect("the gate answers");
        let page = String::from_utf8(page.body).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix("admit_ledger_log_held_back "));
        line.expect("it is on the page").to_owned()
    };
    until("the metric says so", SOON, || (held_back() == "1").then_some(()));
    let warnings = || lines(&gate, "WARN", "keeps the log of the ledger from starting over");
    until("the log says so", SOON, || (warnings() == 1).then_some(()));
    let bytes = || fs::metadata(folder.path().join("ledger.db-wal")).unwrap().len();
    assert!(bytes() > EVENTS * 1_000_000, "{} bytes", bytes());

    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    until("the log is given back", SOON, || (bytes() < 1_000_000).then_some(()));
    until("the metric says so", SOON, || (held_back() == "0").then_some(()));
    let recovered = || lines(&gate, "INFO", "the log of the ledger can start over again");
    until("the log says so", SOON, || (recovered() == 1).then_some(()));
    send(EVENTS + 1);
    gate.kill();
    let gate = Gate::on(folder.path());
    let count: u64 = sql::open_file(folder.path())
        .query_row("SELECT count(*) FROM admission", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, EVENTS + 2);
    gate.stop();
}
