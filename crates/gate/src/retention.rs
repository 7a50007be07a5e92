//! Retention as the gate runs it: the sweep, what stops it, and a person's word that the clock is right.

use std::fmt;
use std::sync::Arc;

use admit_core::Fault;
use admit_ledger::port::ClockConfirmation;
use admit_ledger::retention_guard::{ClockJump, SweepClock};
use admit_ledger::{Retention, RetentionGuard};

/// Retention of this gate's ledger.
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
    /// Sweeps `ledger` by `clock`, as far as `guard` allows.
    pub fn new(
        guard: RetentionGuard,
        ledger: Arc<dyn Retention>,
        clock: Arc<dyn SweepClock>,
    ) -> Self {
        Self { guard: Arc::new(guard), ledger, clock }
    }

    /// Sweeps for as long as it is polled.
    pub async fn run(&self) {
        self.guard.run_sweeps(&*self.ledger, &*self.clock).await;
    }

    /// The jump of the clock that stops retention, if one does.
    pub(crate) fn jump(&self) -> Option<ClockJump> {
        self.guard.jump()
    }

    /// What was removed since the start, by kind.
    pub(crate) fn removed(&self) -> [(&'static str, u64); 4] {
        self.guard.removed()
    }

    /// Lets retention go on because `principal` vouches for the clock.
    pub(crate) async fn confirm(
        &self,
        principal: &str,
        reason: Option<String>,
    ) -> Result<Option<ClockConfirmation>, Fault> {
        self.guard.confirm(&*self.ledger, &*self.clock, principal, reason).await
    }
}
