//! Whether the ledger can be written to, and whether it must stop the process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use admit_core::Fault;
use tokio::sync::watch;

/// Shared between the writer, the checkpointer and whoever asks.
#[derive(Debug)]
pub(crate) struct Health {
    healthy: AtomicBool,
    failures: AtomicU64,
    stop: watch::Sender<Option<Fault>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            healthy: AtomicBool::new(true),
            failures: AtomicU64::new(0),
            stop: watch::Sender::new(None),
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// How many commits have failed so far, for those that are confirmed later than they are written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// A commit went through that was written after so many `failures`. One that is older than the
    /// last of them says nothing about how things are now.
    pub(crate) fn wrote(&self, failures: u64) {
        if failures == self.failures() && !self.healthy.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger can be written to again");
        }
    }

    /// A commit failed in a way that may pass.
    pub(crate) fn failed(&self, fault: &Fault) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        if self.healthy.swap(false, Ordering::Relaxed) {
            tracing::warn!(%fault, "the ledger is unhealthy until a commit goes through");
        }
    }

    /// Nothing the process believes about the disk can be trusted any more.
    pub(crate) fn must_stop(&self, fault: &Fault) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.healthy.store(false, Ordering::Relaxed);
        self.stop.send_replace(Some(fault.clone()));
    }

    /// The writer has ended; nothing can be recorded any more.
    pub(crate) fn stopped(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.healthy.store(false, Ordering::Relaxed);
    }

    /// Resolves with the reason once the process must stop.
    pub(crate) async fn until_must_stop(&self) -> Fault {
        let mut stop = self.stop.subscribe();
        loop {
            if let Some(fault) = stop.borrow_and_update().clone() {
                return fault;
            }
            if stop.changed().await.is_err() {
                // The sender is a field of self, so it outlives this borrow of self.
                std::future::pending::<()>().await;
            }
        }
    }
}
