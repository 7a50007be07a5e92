//! System clock: the only place that reads the machine's time of day.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use admit_core::{Clock, Millis, Monotonic};

/// First read of monotonic time in this process.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Clock that reads the machine's time of day.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everything else uses")]
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
