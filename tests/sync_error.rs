//! Failed syncs: the content of the disk is unknown, so nothing is acknowledged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::support::disks::{DiskFault, FaultyDisk};
use crate::support::gate::{Gate, Launch};
use crate::support::ledger::{StoredReceipts, assert_intact};
use crate::support::load::{Load, LoadResult, assert_effects_once, event};
use crate::support::strace::{self, Trace};
use crate::support::{TIMEOUT, machine, wait_for};

/// Exit code of a process that no longer trusts its disk.
const IO_ERROR: i32 = 74;

/// strace counts the calls per thread; a start never needs this many syncs.
const FAILS_FROM: u64 = 40;

fn failing(data: &Path, trace: &Trace) -> Launch {
    let inject = format!("inject=fsync,fdatasync:error=EIO:when={FAILS_FROM}+");
    let options = ["-e", "trace=fsync,fdatasync", "-e", &inject];
    Launch::on(data).under(trace.wrapper(&options))
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_and_the_gate_exits_with_74() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let gate = failing(&data, &trace).start();
    let mut client = gate.client();
    let mut results = LoadResult::default();
    // The writer syncs once per sequential post, until a sync fails.
    for n in 1..=2 * FAILS_FROM {
        let Ok(printed) = client.post(&event(n)) else {
            results.unanswered.push(n);
            break;
        };
        if printed.is_processed() {
            results.processed.push(n);
        } else {
            printed.unavailable();
            results.unavailable.push(n);
        }
    }
    let ended = gate.wait_for_exit();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(ended.stderr.contains("admit: "), "it says why it stopped: {}", ended.stderr);
    assert!(ended.stderr.to_lowercase().contains("sync"), "{}", ended.stderr);
    assert!(results.processed.len() as u64 >= FAILS_FROM / 2, "it failed too early: {results:?}");
    assert!(!results.unavailable.is_empty(), "the producer gets a retry time: {results:?}");

    restart_and_settle(&data, results);
}

#[test]
fn under_load_a_failed_sync_loses_no_acknowledged_event() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let gate = failing(&data, &trace).start();
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 6, &numbers, &mut machine::rng());
    let ended = gate.wait_for_exit();
    let results = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(!results.processed.is_empty(), "the load was no load");

    restart_and_settle(&data, results);
}

#[test]
fn a_failed_sync_during_a_checkpoint_stops_the_gate() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // On an existing ledger a start has nothing to checkpoint and syncs only the WAL.
    Gate::on(&data).stop();
    let trace = Trace::into(folder.path());
    let file = data.join("ledger.db");
    let inject = "inject=fsync,fdatasync:error=EIO";
    let options = ["-P", machine::text(&file), "-e", "trace=fsync,fdatasync", "-e", inject];
    let gate = Launch::on(&data).under(trace.wrapper(&options)).start();
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 6, &numbers, &mut machine::rng());
    let ended = gate.wait_for_exit();
    let results = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(!results.processed.is_empty(), "the load was no load");

    restart_and_settle(&data, results);
}

#[test]
fn a_start_with_failing_syncs_opens_no_door() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let gate = Gate::on(&data);
    gate.client().submit(&event(1)).processed();
    gate.kill();
    let trace = Trace::into(folder.path());
    let inject = "inject=fsync,fdatasync:error=EIO";
    let options = ["-e", "trace=fsync,fdatasync", "-e", inject];
    let ended = Launch::on(&data).under(trace.wrapper(&options)).start_expecting_exit();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert_eq!(ended.stdout, "", "no door was announced");
    assert!(ended.stderr.contains(machine::text(&data)), "{}", ended.stderr);
    assert!(ended.stderr.contains("safely to disk"), "{}", ended.stderr);

    let gate = Gate::on(&data);
    gate.client().submit(&event(1)).duplicate();
    gate.stop();
}

#[test]
fn a_failing_disk_stops_the_gate_and_loses_no_acknowledged_event() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::FailAll) else { return };
    let gate = Gate::on(&disk.path());
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 6, &numbers, &mut machine::rng());
    wait_for("the load is under way", TIMEOUT, || (load.acked() >= 200).then_some(()));
    disk.fail();
    let ended = gate.wait_for_exit();
    let results = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);

    disk.remount().expect("the mended disk mounts");
    restart_and_settle(&disk.path(), results);
}

/// Restarts with recovery: acknowledged events are stored, the others are accepted once.
fn restart_and_settle(data: &Path, mut results: LoadResult) {
    assert_intact(data);
    let gate = Gate::on(data);
    let stored = StoredReceipts::read(data);
    results.assert_stored(&stored);
    results.resend_unacknowledged(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), data);
    gate.stop();
}
