//! The disk does not confirm a sync: nobody knows what it holds, and nobody is told otherwise.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::support::disks::{DiskFault, FaultyDisk};
use crate::support::gate::{Gate, Launch};
use crate::support::ledger::{StoredReceipts, assert_intact};
use crate::support::load::{Load, LoadResult, assert_effects_once, event};
use crate::support::strace::{self, Trace};
use crate::support::{TIMEOUT, machine, wait_for};

/// What a process ends with that does not believe its disk any more.
const IO_ERROR: i32 = 74;

/// Strace counts the calls of each thread apart; so many syncs the start never needs.
const FAILS_FROM: u64 = 40;

fn failing(data: &Path, trace: &Trace) -> Launch {
    let inject = format!("inject=fsync,fdatasync:error=EIO:when={FAILS_FROM}+");
    let options = ["-e", "trace=fsync,fdatasync", "-e", &inject];
    Launch::on(data).under(trace.wrapper(&options))
}

#[test]
fn after_a_failed_sync_nobody_is_told_accepted_and_the_gate_stops_with_74() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let trace = Trace::into(folder.path());
    let gate = failing(&data, &trace).start();
    let mut client = gate.client();
    let mut told = LoadResult::default();
    // The writer's syncs are those of these lone posts, one each, until they fail.
    for n in 1..=2 * FAILS_FROM {
        let Ok(said) = client.post(&event(n)) else {
            told.unanswered.push(n);
            break;
        };
        if said.is_processed() {
            told.processed.push(n);
        } else {
            said.unavailable();
            told.unavailable.push(n);
        }
    }
    let ended = gate.wait_for_exit();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(ended.stderr.contains("admit: "), "it says why it stopped: {}", ended.stderr);
    assert!(ended.stderr.to_lowercase().contains("sync"), "{}", ended.stderr);
    assert!(told.processed.len() as u64 >= FAILS_FROM / 2, "it failed too early: {told:?}");
    assert!(!told.unavailable.is_empty(), "the producer is told to come back: {told:?}");

    restart_and_settle(&data, told);
}

#[test]
fn under_load_a_failed_sync_loses_nothing_that_was_acknowledged() {
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
    let told = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(!told.processed.is_empty(), "the load was no load");

    restart_and_settle(&data, told);
}

#[test]
fn a_failed_sync_while_the_log_is_copied_stops_the_gate_too() {
    if !strace::is_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // On a ledger that is there already, a start has nothing to copy and syncs only the log.
    Gate::on(&data).stop();
    let trace = Trace::into(folder.path());
    let file = data.join("ledger.db");
    let inject = "inject=fsync,fdatasync:error=EIO";
    let options = ["-P", machine::text(&file), "-e", "trace=fsync,fdatasync", "-e", inject];
    let gate = Launch::on(&data).under(trace.wrapper(&options)).start();
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 6, &numbers, &mut machine::rng());
    let ended = gate.wait_for_exit();
    let told = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);
    assert!(!told.processed.is_empty(), "the load was no load");

    restart_and_settle(&data, told);
}

#[test]
fn a_start_whose_syncs_fail_opens_no_door() {
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
fn a_disk_that_dies_stops_the_gate_and_loses_nothing_that_was_acknowledged() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::FailAll) else { return };
    let gate = Gate::on(&disk.path());
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), 6, &numbers, &mut machine::rng());
    wait_for("the load is under way", TIMEOUT, || (load.acked() >= 200).then_some(()));
    disk.fail();
    let ended = gate.wait_for_exit();
    let told = load.join();
    assert_eq!(ended.status.code(), Some(IO_ERROR), "{}", ended.stderr);

    disk.remount().expect("the mended disk mounts");
    restart_and_settle(&disk.path(), told);
}

/// A start through recovery: what was acknowledged is there, the rest comes in once.
fn restart_and_settle(data: &Path, mut told: LoadResult) {
    assert_intact(data);
    let gate = Gate::on(data);
    let stored = StoredReceipts::read(data);
    told.assert_stored(&stored);
    told.resend_unacknowledged(&mut gate.client(), &stored);
    assert_effects_once(&mut gate.client(), data);
    gate.stop();
}
