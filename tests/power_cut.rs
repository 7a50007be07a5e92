//! The power goes while events come in: what was acknowledged is on the disk, not in its cache.

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

/// So many acknowledgements before the cut: enough for the log to be started over at least once.
const ACKED: u64 = 1_000;

/// A gate on this disk takes events from several producers until the power goes.
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
fn what_was_acknowledged_is_there_after_a_power_cut() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::LoseUnsynced) else { return };
    let mut told = serve_until_the_cut(&mut disk);
    disk.remount().expect("a file system with a journal mounts after a power cut");
    let data = disk.path();

    let gate = Gate::on(&data);
    let stored = StoredReceipts::read(&data);
    told.assert_stored(&stored);
    assert_known(&gate, &told.processed);
    let mut client = gate.client();
    told.resend_unacknowledged(&mut client, &stored);
    assert_effects_once(&mut client, &data);
    gate.stop();
    assert_intact(&data);
}

/// Sends everything once more, from several producers; all of it must be a copy.
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

/// The negative control: on a disk that keeps syncs to itself the same test must see a loss, or it
/// would see none anywhere.
#[test]
fn a_disk_that_lies_about_its_syncs_is_found_out() {
    let Some(mut disk) = FaultyDisk::new(DiskFault::LoseSynced) else { return };
    let told = serve_until_the_cut(&mut disk);
    let loss = disk.remount().err().or_else(|| loss(&disk.path(), &told));
    assert!(loss.is_some(), "no loss was seen though the disk kept nothing");
}

/// What is missing on the disk of what producers were told.
fn loss(data: &Path, told: &LoadResult) -> Option<String> {
    if !data.join("ledger.db").exists() {
        return Some("the ledger is gone".to_owned());
    }
    // What is there may be anything; reading it is allowed to fail in any way.
    let stored = std::panic::catch_unwind(|| StoredReceipts::read(data)).ok();
    let Some(stored) = stored else { return Some("the ledger cannot be read".to_owned()) };
    let lost = told.acked().filter(|n| stored.get(*n).is_none()).count();
    (lost > 0).then(|| format!("{lost} acknowledged events are gone"))
}
