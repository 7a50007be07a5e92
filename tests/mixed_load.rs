//! A mixed load from a third-party program: memory stays bounded, and every accepted event is found
//! afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::gate::Gate;
use crate::support::ledger;
use crate::support::machine::{has, skip, text};
use crate::support::{sql, wait_for};

/// Maximum memory of the gate during and after the load. A debug build with its key index needs about a
/// third of it.
const RESIDENT_BYTES_MAX: u64 = 384 * 1024 * 1024;

const CONNECTIONS: u32 = 64;

/// Resident memory of the gate in bytes; `None` if unavailable.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

fn seconds() -> u64 {
    let seconds = std::env::var("ADMIT_TEST_LOAD_SECONDS").ok();
    seconds.map_or(20, |text| text.parse().expect("ADMIT_TEST_LOAD_SECONDS is a number"))
}

/// Keys whose first acceptance the load recorded, by thread.
fn accepted(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
    texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn under_a_mixed_load_memory_is_bounded_and_no_accepted_event_is_lost() {
    if !has("wrk") {
        skip("wrk is not installed; `cargo xtask setup` installs it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let notes = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let before = resident_bytes(gate.pid()).expect("this machine says how much memory is used");
    let mut wrk = Command::new("wrk")
        .args([
            "-t2",
            &format!("-c{CONNECTIONS}"),
            &format!("-d{}s", seconds()),
            "--timeout",
            "10s",
        ])
        .args(["-s", concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/mixed_load.lua")])
        .args([&format!("http://{}/", gate.address()), "--", text(notes.path())])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut most = before;
    let patience = Duration::from_secs(seconds() + 30);
    wait_for("the load ends", patience, || {
        most = most.max(resident_bytes(gate.pid()).unwrap_or(0));
        wrk.try_wait().unwrap()
    });
    let printed = wrk.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let after = resident_bytes(gate.pid()).expect("the gate is still there");
    assert!(printed.contains("unexpected responses: 0\n"), "{printed}");
    assert!(!printed.contains("Socket errors"), "{printed}");
    assert!(
        most.max(after) <= RESIDENT_BYTES_MAX,
        "{before} bytes before, {most} at most, {after} after:\n{printed}"
    );

    // A thread that is stopped during a request did not record its last replies.
    let accepted = accepted(notes.path());
    eprintln!("{} accepted; resident: {before}, at most {most}, {after} after", accepted.len());
    assert!(accepted.len() > 200, "{} events are no load:\n{printed}", accepted.len());
    let query = "SELECT idempotency_key FROM pixel_receipts WHERE status = 'processed'";
    let kept: BTreeSet<String> = sql::query_column(folder.path(), query).into_iter().collect();
    let lost: Vec<&String> = accepted.difference(&kept).take(5).collect();
    assert!(lost.is_empty(), "accepted and not kept: {lost:?}");
    let query = "SELECT count(*) - count(DISTINCT key) FROM admission WHERE verdict = 'fresh'";
    assert_eq!(sql::query_one::<i64>(folder.path(), query), 0, "a key was claimed twice");
    gate.stop();
    ledger::assert_intact(folder.path());
}
