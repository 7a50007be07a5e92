//! The system's clock, the only place that asks the machine for the time of day.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admit_core::{Clock, Millis, Monotonic};

/// When this process first asked for monotonic time.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time of day as the machine has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock everything else is handed")]
    fn now(&self) -> Millis {
        // A machine set before 1970 gets negative times rather than a panic.
        let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Millis(millis)
    }
}

impl Monotonic for SystemClock {
    fn elapsed(&self) -> Duration {
        STARTED.elapsed()
    }
}
