//! A disk or database that hangs: events are neither confirmed nor lost, and the gate is not ready. A WAL
//! that a reader keeps from being reset is reported, and truncated afterwards.

use std::fs;
use std::path::Path;

use crate::support::disks::ImageDisk;
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::ledger::LedgerLock;
use crate::support::machine::{run, text};
use crate::support::{TIMEOUT, sql, wait_for};

/// A gate with a reply timeout of one second: a commit that takes longer is reported as hanging.
fn launch_fast(data: &Path) -> Launch {
    Launch::on(data)
        .variable("ADMIT_LIMITS__HEADER_READ_MS_MAX", "400")
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "500")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "1000")
}

fn reasons(gate: &Gate) -> String {
    let response = gate.client().send("GET", "/readyz", &[], b"").expect("response from the gate");
    response.json()["reasons"].to_string()
}

/// Number of log lines with this level and text.
fn lines(gate: &Gate, level: &str, message: &str) -> usize {
    let log = gate.stderr();
    log.lines().filter(|line| line.contains(level) && line.contains(message)).count()
}

/// On both ledgers: another connection holds the write lock.
#[test]
fn while_a_commit_hangs_the_gate_is_not_ready_and_logs_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let lock = LedgerLock::acquire(folder.path());
    client.submit(&match_begin(2, "a")).unavailable();
    wait_for("the gate is not ready", TIMEOUT, || {
        reasons(&gate).contains("longer than limits.answer_ms_max").then_some(())
    });
    drop(lock);
    wait_for("the gate is ready again", TIMEOUT, || gate.is_ready().then_some(()));
    let reply = client.submit(&match_begin(2, "a").attempt(2));
    assert!(reply.is_accepted(), "{reply:?}");
    assert_eq!(lines(&gate, "WARN", "a commit of the ledger hangs"), 1);
    gate.stop();
}

/// A frozen file system: every write blocks until this is dropped.
struct FrozenFileSystem<'a>(&'a Path);

impl<'a> FrozenFileSystem<'a> {
    fn freeze(path: &'a Path) -> Self {
        run("fsfreeze", ["--freeze", text(path)]).unwrap();
        Self(path)
    }
}

impl Drop for FrozenFileSystem<'_> {
    fn drop(&mut self) {
        run("fsfreeze", ["--unfreeze", text(self.0)]).map(drop).unwrap_or_default();
    }
}

#[test]
fn a_gate_on_a_disk_that_hangs_is_not_ready_with_traffic_or_without() {
    let Some(disk) = ImageDisk::new() else { return };
    let data = disk.path();
    let gate = launch_fast(&data).start();
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();

    let frozen = FrozenFileSystem::freeze(&data);
    client.submit(&match_begin(2, "a")).unavailable();
    wait_for("the gate is not ready", TIMEOUT, || (!gate.is_ready()).then_some(()));
    assert!(reasons(&gate).contains("longer than limits.answer_ms_max"));
    drop(frozen);
    wait_for("the gate is ready again", TIMEOUT, || gate.is_ready().then_some(()));
    client.submit(&match_begin(2, "a").attempt(2)).duplicate();
    assert_eq!(lines(&gate, "WARN", "hangs"), 1, "{}", gate.stderr());
    assert_eq!(lines(&gate, "INFO", "the hung commit has ended"), 1, "{}", gate.stderr());

    // Without traffic the gate detects it with its own periodic write.
    let frozen = FrozenFileSystem::freeze(&data);
    wait_for("the gate is not ready", TIMEOUT, || (!gate.is_ready()).then_some(()));
    drop(frozen);
    wait_for("the gate is ready again", TIMEOUT, || gate.is_ready().then_some(()));
    client.submit(&match_begin(3, "a")).processed();
    gate.stop();
}

#[test]
fn a_wal_held_back_by_a_reader_is_reported_and_truncated_after_the_reader_ends() {
    const EVENTS: u64 = 80;
    if sql::skip_on_postgres() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut client = gate.client();
    let mut send = |n: u64| {
        let (body, key) = (format!("\"{}\"", "x".repeat(1_000_000)), format!("\"event-{n}\""));
        let headers = [("content-type", "application/json"), ("idempotency-key", &*key)];
        let response = client.send("POST", "/v1/events/default", &headers, body.as_bytes());
        let response = response.expect("response from the gate");
        assert!(response.status < 300, "{response:?}");
    };
    send(0);
    let reader = sql::open_file(folder.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM admission").unwrap();
    reader.query_row("SELECT count(*) FROM admission", [], |row| row.get::<_, u64>(0)).unwrap();
    for n in 1..=EVENTS {
        send(n);
    }
    let held_back = || {
        let page = gate.client().send("GET", "/metrics", &[], b"").expect("response from the gate");
        let page = String::from_utf8(page.body).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix("admit_ledger_log_held_back "));
        line.expect("the metric exists").to_owned()
    };
    wait_for("the metric changes", TIMEOUT, || (held_back() == "1").then_some(()));
    let warnings = || lines(&gate, "WARN", "prevents the WAL of the ledger from being reset");
    wait_for("the log line", TIMEOUT, || (warnings() == 1).then_some(()));
    let bytes = || fs::metadata(folder.path().join("ledger.db-wal")).unwrap().len();
    assert!(bytes() > EVENTS * 1_000_000, "{} bytes", bytes());

    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    wait_for("the WAL is truncated", TIMEOUT, || (bytes() < 1_000_000).then_some(()));
    wait_for("the metric changes", TIMEOUT, || (held_back() == "0").then_some(()));
    let recovered = || lines(&gate, "INFO", "the WAL of the ledger can be reset again");
    wait_for("the log line", TIMEOUT, || (recovered() == 1).then_some(()));
    send(EVENTS + 1);
    gate.kill();
    let gate = Gate::on(folder.path());
    let count: u64 = sql::open_file(folder.path())
        .query_row("SELECT count(*) FROM admission", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, EVENTS + 2);
    gate.stop();
}
