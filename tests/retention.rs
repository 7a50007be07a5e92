//! Retention with a wrong clock, the quota of stored refusals, and the disk reserve.

use std::path::Path;

use serde_json::Value;

use crate::support::disks::SmallDisk;
use crate::support::events::match_begin;
use crate::support::gate::{self, Gate, Launch};
use crate::support::machine::text;
use crate::support::{TIMEOUT, sql, wait_for};

const DAY_MS: i64 = 86_400_000;

fn page(gate: &Gate) -> String {
    let answer = gate.client().send("GET", "/metrics", &[], b"").expect("response from the gate");
    String::from_utf8(answer.body).expect("text")
}

fn bodies(data: &Path) -> i64 {
    sql::query_one(data, "SELECT count(*) FROM body")
}

/// Ledger whose newest event is this many days old.
fn aged(data: &Path, days: i64) {
    let gate = Gate::on(data);
    let mut client = gate.client();
    for n in 1..=3 {
        client.submit(&match_begin(n, "a")).processed();
    }
    gate.stop();
    let before = days * DAY_MS;
    sql::execute(data, &format!("UPDATE admission SET received_at = received_at - {before}"));
}

fn confirm(data: &Path) -> (bool, String) {
    let words = ["ledger", "confirm-time", "--data", text(data), "--reason", "we were away"];
    let output = gate::admit(words).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

fn health(gate: &Gate) -> Value {
    gate.client().get("/healthz")
}

#[test]
fn retention_shorter_than_the_downtime_gap_logs_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("retaining.toml");
    let checked = |settings: &str| {
        std::fs::write(&file, format!("[ledger]\n{settings}\n")).unwrap();
        let output = gate::admit(["config", "check", text(&file)]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().matches("ledger.clock_gap_max").count() > 0
    };
    assert!(checked("retain = \"2d\""));
    assert!(!checked("retain = \"2d\"\nclock_gap_max = \"1d\""));
    let gate = Launch::on(folder.path()).variable("ADMIT_LEDGER__RETAIN", "2d").start();
    assert!(gate.stderr().contains("is not longer than ledger.clock_gap_max"));
    gate.stop();
}

#[test]
fn a_clock_ahead_of_trusted_time_removes_nothing_until_an_operator_confirms_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    aged(data, 30);
    let gate = Launch::on(data).variable("ADMIT_LEDGER__RETAIN", "10d").start();
    wait_for("the jump is seen", TIMEOUT, || {
        (health(&gate)["checks"]["retention"] == "clock_jump").then_some(())
    });
    let shown = health(&gate);
    assert!(shown["retention"]["action"].as_str().unwrap().contains("confirm-time"), "{shown}");
    assert_eq!(shown["ready"], true, "events are taken all the same");
    assert!(page(&gate).contains("\nadmit_retention_stopped 1\n"));
    assert_eq!(bodies(data), 3, "all of them are older than the age by this clock");
    assert!(gate.stderr().contains("ahead of trusted time"), "{}", gate.stderr());
    let status = gate::admit(["ledger", "status", "--data", text(data)]).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).contains("trusted time"));

    let (is_done, printed) = confirm(data);
    assert!(is_done && printed.starts_with("confirmed: the time is "), "{printed}");
    wait_for("expired data is removed", TIMEOUT, || (bodies(data) == 0).then_some(()));
    assert_eq!(health(&gate)["checks"]["retention"], "ok");
    let log = "retention removed expired data";
    wait_for("the sweep is logged", TIMEOUT, || gate.stderr().contains(log).then_some(()));
    assert!(page(&gate).contains("\nadmit_retention_removed_total{what=\"bodies\"} 3\n"));
    let reason: String = sql::query_one(data, "SELECT reason FROM clock_confirmation");
    assert_eq!(reason, "we were away");
    let (is_done, printed) = confirm(data);
    assert!(is_done && printed.starts_with("nothing to confirm"), "{printed}");
    gate.stop();
}

#[test]
fn a_gap_of_days_before_a_start_counts_as_downtime() {
    let folder = tempfile::tempdir().unwrap();
    aged(folder.path(), 5);
    let gate = Launch::on(folder.path()).variable("ADMIT_LEDGER__RETAIN", "2d").start();
    wait_for("expired data is removed", TIMEOUT, || (bodies(folder.path()) == 0).then_some(()));
    assert_eq!(health(&gate)["checks"]["retention"], "ok");
    gate.stop();
    let count: i64 = sql::query_one(folder.path(), "SELECT count(*) FROM clock_confirmation");
    assert_eq!(count, 0);
}

#[test]
fn stored_refusals_have_a_configurable_quota_with_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).variable("ADMIT_LEDGER__REFUSAL_ROWS_MAX", "2").start();
    let mut client = gate.client();
    for body in ["{1", "{2", "{3", "{3"] {
        client.submit_bytes(body.as_bytes()).rejected();
    }
    let page = page(&gate);
    assert!(page.contains("\nadmit_ledger_refusals 2\n"), "{page}");
    let not_kept = "admit_refusals_not_kept_total{door=\"pixel-control\"} 2";
    assert!(page.contains(not_kept), "{page}");
    let bytes = page.lines().find_map(|line| line.strip_prefix("admit_ledger_refusal_bytes "));
    let bytes: u64 = bytes.expect("it is on the page").parse().unwrap();
    assert!(bytes > 2 * 320, "rows cost room too: {bytes}");
    gate.stop();
}

#[test]
fn below_the_disk_reserve_only_copies_are_accepted_until_space_is_freed() {
    let Some(disk) = SmallDisk::new(48 * 1024 * 1024) else { return };
    let reserve = (24 * 1024 * 1024).to_string();
    let gate = Launch::on(disk.path()).variable("ADMIT_LEDGER__FREE_BYTES_MIN", &reserve).start();
    let mut client = gate.client();
    client.submit(&match_begin(1, "a")).processed();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0_u8; 28 * 1024 * 1024]).unwrap();
    wait_for("the reserve is seen to be used", TIMEOUT, || (!gate.is_ready()).then_some(()));
    let before: i64 = sql::query_one(disk.path(), "SELECT count(*) FROM admission");
    client.submit(&match_begin(2, "a")).unavailable();
    client.submit_bytes(b"{broken").unavailable();
    client.submit(&match_begin(1, "a")).duplicate();
    let after: i64 = sql::query_one(disk.path(), "SELECT count(*) FROM admission");
    assert_eq!((before, after), (1, 1), "nothing new is written");
    let answer = client.send("GET", "/readyz", &[], b"").unwrap();
    assert!(answer.json()["reasons"].to_string().contains("reserve"), "{}", answer.json());
    assert!(page(&gate).contains("\nadmit_disk_below_reserve 1\n"));
    std::fs::remove_file(&ballast).unwrap();
    wait_for("there is room again", TIMEOUT, || gate.is_ready().then_some(()));
    client.submit(&match_begin(2, "a").attempt(2)).processed();
    gate.stop();
}
