//! Health of the ledger: whether it can be written to, and whether the process must stop.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use admit_core::{Fault, FaultKind};
use tokio::sync::watch;

/// Shared between the writer, the checkpointer and readiness checks.
#[derive(Debug)]
pub(crate) struct Health {
    healthy: AtomicBool,
    /// Once set, a later successful commit changes nothing.
    stops: AtomicBool,
    /// Whether checkpoints succeed; only used for log lines.
    copies: AtomicBool,
    /// Start of the current commit or probe, in microseconds since `start`; zero if there is none.
    began: AtomicU64,
    start: Instant,
    /// Whether it exceeds the timeout.
    hangs: AtomicBool,
    /// Whether a reader prevents the WAL from being reset; only used for log lines.
    held_back: AtomicBool,
    /// Whether commits are written to the mark; only used for log lines.
    marks: AtomicBool,
    stop: watch::Sender<Option<Fault>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            healthy: AtomicBool::new(true),
            stops: AtomicBool::new(false),
            copies: AtomicBool::new(true),
            began: AtomicU64::new(0),
            start: Instant::now(),
            hangs: AtomicBool::new(false),
            held_back: AtomicBool::new(false),
            marks: AtomicBool::new(true),
            stop: watch::Sender::new(None),
        }
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.takes_writes() && !self.hangs.load(Ordering::Relaxed)
    }

    /// Whether the last write succeeded. For the writer, which is never in the middle of a commit when it checks.
    pub(crate) fn takes_writes(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.stops.load(Ordering::Relaxed)
    }

    /// Why events cannot be recorded, for operators.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        if !self.takes_writes() {
            return Some("the last write to the ledger failed");
        }
        let hangs = self.hangs.load(Ordering::Relaxed);
        hangs.then_some("a commit of the ledger takes longer than limits.answer_ms_max")
    }

    /// A commit or probe begins.
    pub(crate) fn begins(&self) {
        self.began.store(self.micros().max(1), Ordering::Relaxed);
    }

    /// It has ended, successfully or not.
    pub(crate) fn ends(&self) {
        let began = self.began.swap(0, Ordering::Relaxed);
        if self.hangs.swap(false, Ordering::Relaxed) && self.takes_writes() {
            let took_ms = self.micros().saturating_sub(began) / 1_000;
            tracing::info!(took_ms, "the hung commit has ended, the ledger is ready again");
        }
    }

    /// Detects a commit that exceeds `commit_max`, and logs it once.
    pub(crate) fn check_for_hang(&self, commit_max: Duration) {
        let began = self.began.load(Ordering::Relaxed);
        let age = Duration::from_micros(self.micros().saturating_sub(began));
        if began == 0 || age <= commit_max || self.hangs.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.began.load(Ordering::Relaxed) != began {
            // It has just ended.
            self.hangs.store(false, Ordering::Relaxed);
        } else if self.takes_writes() {
            let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                age_ms,
                "a commit of the ledger hangs, the gate is not ready until it ends; check the disk \
                 or the database"
            );
        }
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// An old read transaction prevents the WAL from being reset, or has ended.
    pub(crate) fn log_is_held_back(&self, is_held_back: bool, bytes: u64) {
        match (self.held_back.swap(is_held_back, Ordering::Relaxed), is_held_back) {
            (false, true) => tracing::warn!(
                bytes,
                "an open read transaction prevents the WAL of the ledger from being reset, so it grows with \
                 every event; end the program that reads (a sqlite3 shell, a backup: fuser ledger.db)"
            ),
            (true, false) => tracing::info!(bytes, "the WAL of the ledger can be reset again"),
            (false, false) | (true, true) => {}
        }
    }

    /// A commit succeeded.
    pub(crate) fn wrote(&self) {
        if !self.healthy.swap(true, Ordering::Relaxed) {
            tracing::info!("the ledger can be written to again");
        }
    }

    /// A commit failed with a transient error.
    pub(crate) fn failed(&self, fault: &Fault) {
        if self.healthy.swap(false, Ordering::Relaxed) {
            tracing::warn!(%fault, "the ledger is unhealthy until a commit succeeds");
        }
    }

    /// A checkpoint succeeded.
    pub(crate) fn copied(&self) {
        if !self.copies.swap(true, Ordering::Relaxed) {
            tracing::info!("the checkpoint of the ledger succeeds again");
        }
    }

    /// A checkpoint failed. It is retried at every commit and logged once.
    pub(crate) fn not_copied(&self, error: &dyn Error) {
        if self.copies.swap(false, Ordering::Relaxed) {
            tracing::warn!(%error, "the checkpoint of the ledger failed; will retry");
        }
    }

    /// Whether a commit was written to the mark. Without it the commit is as durable, but the loss of the WAL
    /// would go undetected.
    pub(crate) fn marked(&self, error: Option<io::Error>) {
        match error {
            None => {
                if !self.marks.load(Ordering::Relaxed) {
                    self.marks.store(true, Ordering::Relaxed);
                }
            }
            Some(error) => {
                if self.marks.swap(false, Ordering::Relaxed) {
                    tracing::warn!(%error, "a commit could not be written to ledger.mark");
                }
            }
        }
    }

    /// The process can no longer trust its view of the disk and must stop.
    pub(crate) fn must_stop(&self, fault: &Fault) {
        self.stops.store(true, Ordering::Relaxed);
        self.stop.send_replace(Some(fault.clone()));
    }

    /// A thread that the ledger depends on has panicked. A gate that stayed up could only refuse events.
    pub(crate) fn panicked(&self) {
        let message = "a thread of the ledger panicked, the gate stops";
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
    fn a_slow_commit_makes_the_ledger_unhealthy_until_it_ends() {
        const SHORT: Duration = Duration::from_millis(1);
        let health = Health::new();
        health.begins();
        health.check_for_hang(Duration::from_secs(3_600));
        assert!(health.is_healthy() && health.trouble().is_none());
        std::thread::sleep(2 * SHORT);
        health.check_for_hang(SHORT);
        assert!(!health.is_healthy() && health.takes_writes());
        assert!(health.trouble().is_some_and(|why| why.contains("answer_ms_max")));
        health.ends();
        assert!(health.is_healthy());
        std::thread::sleep(2 * SHORT);
        health.check_for_hang(SHORT);
        assert!(health.is_healthy(), "nothing is under way");
    }

    #[test]
    fn a_successful_commit_clears_only_transient_faults() {
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
