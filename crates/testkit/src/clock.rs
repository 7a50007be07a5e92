//! Manual clock.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use admit_core::{Clock, Millis, Monotonic};

/// Clock that is set manually.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall: AtomicI64,
    elapsed_ms: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at `now`.
    pub fn at(now: Millis) -> Self {
        Self { wall: AtomicI64::new(now.0), elapsed_ms: AtomicU64::new(0) }
    }

    /// Advances the wall clock and monotonic time.
    pub fn advance(&self, millis: i64) {
        self.step(millis);
        self.elapsed_ms.fetch_add(millis.unsigned_abs(), Ordering::SeqCst);
    }

    /// Sets the wall clock without advancing monotonic time.
    pub fn step(&self, millis: i64) {
        self.wall.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        Millis(self.wall.load(Ordering::SeqCst))
    }
}

impl Monotonic for ManualClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms.load(Ordering::SeqCst))
    }
}
