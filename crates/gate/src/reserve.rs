//! Reserve of free disk space: below it only duplicates of known events are accepted, so that the rest
//! of the disk is left for completing work in progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use admit_core::{Entry, Fault, FaultKind};
use admit_ledger::Reader;

/// Interval between checks of the disk.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads the free bytes of a disk; `None` if unknown.
pub type FreeBytes = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Monitor of a disk with a reserve.
pub struct DiskReserve {
    min: u64,
    read_free: FreeBytes,
    is_low: AtomicBool,
    free: AtomicU64,
}

impl fmt::Debug for DiskReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskReserve").field("min", &self.min).field("free", &self.free).finish()
    }
}

impl DiskReserve {
    /// Monitor with a reserve of `min` bytes. Checks the disk once.
    pub fn new(min: u64, read_free: FreeBytes) -> Self {
        let reserve =
            Self { min, read_free, is_low: AtomicBool::new(false), free: AtomicU64::new(u64::MAX) };
        reserve.update((reserve.read_free)());
        reserve
    }

    /// Whether less than the reserve is free.
    pub fn is_low(&self) -> bool {
        self.is_low.load(Relaxed)
    }

    /// Free bytes at the last check.
    pub fn free_bytes(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// Checks the disk periodically for as long as it is polled. If the disk hangs, the last state stays.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let read_free = Arc::clone(&self.read_free);
            if let Ok(free) = tokio::task::spawn_blocking(move || read_free()).await {
                self.update(free);
            }
        }
    }

    fn update(&self, free: Option<u64>) {
        let Some(free) = free else { return };
        self.free.store(free, Relaxed);
        let is_low = free < self.min;
        if self.is_low.swap(is_low, Relaxed) == is_low {
            return;
        }
        let min = self.min;
        if is_low {
            tracing::warn!(
                free,
                min,
                "the disk is below its reserve, only duplicates of known events are accepted; \
                 free some space, or lower ledger.free_bytes_min"
            );
        } else {
            tracing::info!(
                free,
                min,
                "the disk is above its reserve again, new events are accepted"
            );
        }
    }
}

/// Fault for events that are not duplicates.
fn below_reserve() -> Fault {
    let message = "the disk is below its reserve of free space, nothing was stored; send it again";
    Fault::new(FaultKind::LedgerUnavailable, message)
}

/// Returns `None` for each entry that is a duplicate of an admission, and a fault for the others.
/// Writes nothing.
pub(crate) async fn faults_of_new(ledger: &dyn Reader, entries: &[Entry]) -> Vec<Option<Fault>> {
    let mut faults = Vec::with_capacity(entries.len());
    for entry in entries {
        faults.push(match entry {
            Entry::Refused(_) => Some(below_reserve()),
            Entry::Event(event) => match ledger.find(event.key).await {
                Ok(Some(first)) if first.digest == event.digest => None,
                Ok(_) => Some(below_reserve()),
                Err(fault) => Some(fault),
            },
        });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_low_below_its_reserve_and_recovers_by_itself() {
        let free = Arc::new(AtomicU64::new(99));
        let reading = Arc::clone(&free);
        let reserve = DiskReserve::new(100, Arc::new(move || Some(reading.load(Relaxed))));
        assert!(reserve.is_low(), "checked at construction");
        reserve.update(Some(100));
        assert!(!reserve.is_low());
        reserve.update(Some(7));
        reserve.update(None);
        assert!(reserve.is_low(), "an unreadable disk changes nothing");
        assert_eq!(reserve.free_bytes(), 7);
    }
}
