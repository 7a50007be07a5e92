//! Whether the ledger can be written to, and whether it must stop the process.

use std::sync::atomic::{AtomicBool, Ordering};

use admit_core::Fault;
use tokio::sync::watch;

/// Shared between the writer, the checkpointer and whoever asks.
#[derive(Debug)]
pub(crate) struct Health {
    healthy: AtomicBool,
    stop: watch::Sender<Option<Fault>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { healthy: AtomicBool::new(true), stop: watch::Sender::new(None) }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// A commit went through.
    pub(crate) fn wrote(&self) {
        if !self.healthy.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger can be written to again");
        }
    }

    /// A commit failed in a way that may pass.
    pub(crate) fn failed(&self, fault: &Fault) {
        if self.healthy.swap(false, Ordering::Relaxed) {
            tracing::warn!(%fault, "the ledger is unhealthy until a commit goes through");
        }
    }

    /// Nothing the process believes about the disk can be trusted any more.
    pub(crate) fn must_stop(&self, fault: &Fault) {
        self.healthy.store(false, Ordering::Relaxed);
        self.stop.send_replace(Some(fault.clone()));
    }

    /// The writer has ended; nothing can be recorded any more.
    pub(crate) fn stopped(&self) {
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
