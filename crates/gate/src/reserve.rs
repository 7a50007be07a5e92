//! The reserve of free disk space: below it only copies of known events are answered, so that what is
//! left is there for finishing what was begun.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use admit_core::{Entry, Fault, FaultKind};
use admit_ledger::Reader;

/// Between two looks at the disk.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Asks a disk how many bytes are free; `None` where that cannot be told.
pub type FreeBytes = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// A disk with a reserve.
pub struct DiskReserve {
    min: u64,
    ask: FreeBytes,
    is_low: AtomicBool,
    free: AtomicU64,
}

impl fmt::Debug for DiskReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskReserve").field("min", &self.min).field("free", &self.free).finish()
    }
}

impl DiskReserve {
    /// A reserve of `min` bytes, looked at once at once.
    pub fn new(min: u64, ask: FreeBytes) -> Self {
        let reserve =
            Self { min, ask, is_low: AtomicBool::new(false), free: AtomicU64::new(u64::MAX) };
        reserve.look((reserve.ask)());
        reserve
    }

    /// Whether there is less room than the reserve.
    pub fn is_low(&self) -> bool {
        self.is_low.load(Relaxed)
    }

    /// What was free at the last look.
    pub fn free_bytes(&self) -> u64 {
        self.free.load(Relaxed)
    }

    /// Looks at the disk for as long as it is polled. A disk that hangs leaves the last state.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let ask = Arc::clone(&self.ask);
            if let Ok(free) = tokio::task::spawn_blocking(move || ask()).await {
                self.look(free);
            }
        }
    }

    fn look(&self, free: Option<u64>) {
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
                "the disk is below its reserve, only copies of known events are answered; \
                 free some space, or lower ledger.free_bytes_min"
            );
        } else {
            tracing::info!(free, min, "the disk is above its reserve again, events are taken");
        }
    }
}

/// What is said to anything that is no copy.
fn below() -> Fault {
    let message = "the disk is below its reserve of free space, nothing was stored; send it again";
    Fault::new(FaultKind::LedgerUnavailable, message)
}

/// Which entries are copies of what the ledger holds; the fault to answer for each of the others.
/// Nothing is written.
pub(crate) async fn faults_of_new(ledger: &dyn Reader, entries: &[Entry]) -> Vec<Option<Fault>> {
    let mut faults = Vec::with_capacity(entries.len());
    for entry in entries {
        faults.push(match entry {
            Entry::Refused(_) => Some(below()),
            Entry::Event(event) => match ledger.find(event.key).await {
                Ok(Some(first)) if first.digest == event.digest => None,
                Ok(_) => Some(below()),
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
    fn a_disk_is_low_below_its_reserve_and_comes_back_by_itself() {
        let free = Arc::new(AtomicU64::new(99));
        let shown = Arc::clone(&free);
        let reserve = DiskReserve::new(100, Arc::new(move || Some(shown.load(Relaxed))));
        assert!(reserve.is_low(), "from the start");
        reserve.look(Some(100));
        assert!(!reserve.is_low());
        reserve.look(Some(7));
        reserve.look(None);
        assert!(reserve.is_low(), "a disk that does not answer changes nothing");
        assert_eq!(reserve.free_bytes(), 7);
    }
}
