//! A power cut under load: acknowledged events are on the disk, not in its cache.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use crate::support::disks::{DiskFault, FaultyDisk};
use crate::support::gate::Gate;
use crate::support::ledger::{StoredReceipts, assert_intact};
use crate::support::load::{Load, LoadResult, assert_effects_once, event};
use crate::support::{TIMEOUT, machine, wait_for};

const PRODUCERS: usize = 8;

/// Acknowledgements before the power cut: enough to restart the WAL at least once.
const ACKED: u64 = 1_000;

/// Runs a gate on this disk under load until the power cut.
fn serve_until_the_cut(disk: &mut FaultyDisk) -> LoadResult {
    let gate = Gate::on(&disk.path());
    let numbers = Arc::new(AtomicU64::new(1));
    let load = Load::start(gate.address(), PRODUCERS, &numbers, &mut machine::rng());
    wait_for("enough is acknowledged", TIMEOUT, || (load.acked() >= ACKED).then_some(()));
    disk.cut();
    gate.kill();
    load.join()
}

#[test]
fn acknowledged_events_survive_a_power_cut() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::LoseUnsynced) else { return };
    let mut results = serve_until_the_cut(&mut disk);
    disk.remount().expect("a file system with a journal mounts after a power cut");
    let data = disk.path();

    let gate = Gate::on(&data);
    let stored = StoredReceipts::read(&data);
    results.assert_stored(&stored);
    assert_known(&gate, &results.processed);
    let mut client = gate.client();
    results.resend_unacknowledged(&mut client, &stored);
    assert_effects_once(&mut client, &data);
    gate.stop();
    assert_intact(&data);
}

/// Sends every event again from several producers; each must be a duplicate.
fn assert_known(gate: &Gate, numbers: &[u64]) {
    thread::scope(|scope| {
        for part in numbers.chunks(numbers.len().div_ceil(PRODUCERS).max(1)) {
            scope.spawn(move || {
                let mut client = gate.client();
                for n in part {
                    client.submit(&event(*n).attempt(3)).duplicate();
                }
            });
        }
    });
}

/// Negative control: on a disk that ignores syncs, the same test must detect a loss.
#[test]
fn a_disk_that_ignores_syncs_is_detected() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::LoseSynced) else { return };
    let results = serve_until_the_cut(&mut disk);
    let loss = disk.remount().err().or_else(|| loss(&disk.path(), &results));
    assert!(loss.is_some(), "no loss was seen though the disk kept nothing");
}

/// Acknowledged events that are missing on the disk.
fn loss(data: &Path, results: &LoadResult) -> Option<String> {
    if !data.join("ledger.db").exists() {
        return Some("the ledger is gone".to_owned());
    }
    // The content may be arbitrary, so reading it may fail in any way.
    let stored = std::panic::catch_unwind(|| StoredReceipts::read(data)).ok();
    let Some(stored) = stored else { return Some("the ledger cannot be read".to_owned()) };
    let lost = results.acked().filter(|n| stored.get(*n).is_none()).count();
    (lost > 0).then(|| format!("{lost} acknowledged events are gone"))
}
