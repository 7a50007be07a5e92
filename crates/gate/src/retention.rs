//! Retention in the gate: the sweep, its clock guard, and an operator's confirmation of the clock.

use std::fmt;
use std::sync::Arc;

use admit_core::Fault;
use admit_ledger::port::ClockConfirmation;
use admit_ledger::retention_guard::{ClockJump, SweepClock};
use admit_ledger::{Retention, RetentionGuard};

/// Periodic retention sweep of this gate's ledger.
#[derive(Clone)]
pub struct RetentionSweep {
    guard: Arc<RetentionGuard>,
    ledger: Arc<dyn Retention>,
    clock: Arc<dyn SweepClock>,
}

impl fmt::Debug for RetentionSweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetentionSweep").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl RetentionSweep {
    /// Sweep of `ledger` by `clock`, controlled by `guard`.
    pub fn new(
        guard: RetentionGuard,
        ledger: Arc<dyn Retention>,
        clock: Arc<dyn SweepClock>,
    ) -> Self {
        Self { guard: Arc::new(guard), ledger, clock }
    }

    /// Sweeps periodically for as long as it is polled.
    pub async fn run(&self) {
        self.guard.run_sweeps(&*self.ledger, &*self.clock).await;
    }

    /// Clock jump that stops retention, if any.
    pub(crate) fn jump(&self) -> Option<ClockJump> {
        self.guard.jump()
    }

    /// Items removed since the start, by kind.
    pub(crate) fn removed(&self) -> [(&'static str, u64); 4] {
        self.guard.removed()
    }

    /// Resumes retention after `principal` has confirmed the clock.
    pub(crate) async fn confirm(
        &self,
        principal: &str,
        reason: Option<String>,
    ) -> Result<Option<ClockConfirmation>, Fault> {
        self.guard.confirm(&*self.ledger, &*self.clock, principal, reason).await
    }
}
