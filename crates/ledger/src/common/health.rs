//! Whether the ledger can be written to, and whether it must stop the process.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use admit_core::{Fault, FaultKind};
use tokio::sync::watch;

/// Shared between the writer, the checkpointer and whoever asks.
#[derive(Debug)]
pub(crate) struct Health {
    healthy: AtomicBool,
    /// Once it is set, no commit that still goes through heals anything.
    stops: AtomicBool,
    /// Whether the log can be shortened; only what is said of it hangs on this.
    copies: AtomicBool,
    stop: watch::Sender<Option<Fault>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            healthy: AtomicBool::new(true),
            stops: AtomicBool::new(false),
            copies: AtomicBool::new(true),
            stop: watch::Sender::new(None),
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.stops.load(Ordering::Relaxed)
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

    /// The log was copied into the file.
    pub(crate) fn copied(&self) {
        if !self.copies.swap(true, Ordering::Relaxed) {
            tracing::info!("the log can be copied into the ledger's file again");
        }
    }

    /// It could not be. It is tried at every commit, and told once.
    pub(crate) fn not_copied(&self, error: &dyn Error) {
        if self.copies.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the log could not be copied into the ledger's file");
        }
    }

    /// Nothing the process believes about the disk can be trusted any more.
    pub(crate) fn must_stop(&self, fault: &Fault) {
        self.stops.store(true, Ordering::Relaxed);
        self.stop.send_replace(Some(fault.clone()));
    }

    /// A thread without which the ledger is none has ended by a panic. A gate that stayed up could only
    /// refuse, for ever.
    pub(crate) fn panicked(&self) {
        let message = "a thread of the ledger ended by a panic, the gate stops";
        self.must_stop(&Fault::new(FaultKind::OutcomeUnknown, message));
    }

    /// The writer has ended; nothing can be recorded any more.
    pub(crate) fn stopped(&self) {
        self.stops.store(true, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_goes_through_heals_what_may_pass_and_nothing_else() {
        let fault = Fault::new(FaultKind::LedgerUnavailable, "full");
        let health = Health::new();
        health.failed(&fault);
        assert!(!health.is_healthy());
        health.wrote();
        assert!(health.is_healthy());
        health.must_stop(&fault);
        health.wrote();
        assert!(!health.is_healthy(), "the process must stop");
    }
}
