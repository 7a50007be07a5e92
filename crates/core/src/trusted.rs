//! Trusted time: protection of retention against wall clock jumps.
//!
//! A wall clock that jumps forward makes everything look old. Retention therefore deletes only up
//! to a time derived from the newest time in the ledger at start plus the monotonic time since, and
//! stops if the wall clock is ahead of that. A clock that is behind only delays deletion.

use std::time::Duration;

use crate::horizon::Age;
use crate::time::Millis;

/// Largest wall clock step that counts as an adjustment, not a jump: a time server corrects a few
/// seconds, a virtual machine is paused for a snapshot.
pub const CLOCK_STEP_MAX: Age = Age::from_secs(300);

/// Monotonic clock; its origin is arbitrary.
pub trait Monotonic: Send + Sync {
    /// Time since a fixed origin.
    fn elapsed(&self) -> Duration;
}

/// Plausibility check of the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedTime {
    /// Trusted time at `since`.
    at: Millis,
    since: Duration,
    /// How far the wall clock may be ahead of trusted time before it counts as a jump.
    slack: Age,
}

/// Result of a plausibility check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// Plausible; deletions due at this time may run.
    Trusted(Millis),
    /// The wall clock is implausibly far ahead; nothing may be deleted.
    Jumped {
        /// Trusted time.
        trusted: Millis,
        /// Wall clock time.
        wall: Millis,
    },
}

impl TrustedTime {
    /// Initialises trusted time at process start. `known` is the newest time the ledger trusts;
    /// without one the wall clock is trusted. A gap of up to `gap_max` counts as downtime.
    pub fn start(known: Option<Millis>, wall: Millis, elapsed: Duration, gap_max: Age) -> Self {
        let at = known.unwrap_or(wall).min(wall);
        Self { at, since: elapsed, slack: gap_max.max(CLOCK_STEP_MAX) }
    }

    /// Checks the wall clock and advances trusted time if it is plausible.
    pub fn observe(&mut self, wall: Millis, elapsed: Duration) -> ClockState {
        let trusted = self.now(elapsed);
        if wall > self.slack.after(trusted) {
            return ClockState::Jumped { trusted, wall };
        }
        // Also backwards: a clock that was wrong and is corrected may not jump forward again later.
        self.confirm(wall, elapsed);
        ClockState::Trusted(wall)
    }

    /// Accepts the wall clock because an operator confirmed it.
    pub fn confirm(&mut self, wall: Millis, elapsed: Duration) {
        *self = Self { at: wall, since: elapsed, slack: CLOCK_STEP_MAX };
    }

    /// Returns trusted time, independent of the wall clock.
    pub fn now(&self, elapsed: Duration) -> Millis {
        Age::from_millis(
            u64::try_from(elapsed.saturating_sub(self.since).as_millis()).unwrap_or(u64::MAX),
        )
        .after(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_700_000_000_000);
    const DAY: i64 = 86_400_000;
    const WEEK: Age = Age::from_secs(7 * 86_400);

    fn later(millis: i64) -> Millis {
        Millis(NOW.0 + millis)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_gap_at_start_is_downtime_up_to_the_setting_and_a_jump_beyond() {
        let mut rested = TrustedTime::start(Some(NOW), later(7 * DAY), secs(0), WEEK);
        assert_eq!(rested.observe(later(7 * DAY), secs(0)), ClockState::Trusted(later(7 * DAY)));
        let mut jumped = TrustedTime::start(Some(NOW), later(7 * DAY + 1), secs(5), WEEK);
        let wall = later(7 * DAY + 1);
        assert_eq!(jumped.observe(wall, secs(5)), ClockState::Jumped { trusted: NOW, wall });
        // Trusted time keeps running, and a corrected clock is trusted again.
        let wall = later(9 * DAY);
        let trusted = later(60_000);
        assert_eq!(jumped.observe(wall, secs(65)), ClockState::Jumped { trusted, wall });
        assert_eq!(jumped.observe(later(70_000), secs(70)), ClockState::Trusted(later(70_000)));
        let mut fresh = TrustedTime::start(None, NOW, secs(0), WEEK);
        assert_eq!(fresh.observe(NOW, secs(0)), ClockState::Trusted(NOW));
    }

    #[test]
    fn a_jump_at_runtime_is_not_downtime_and_a_small_step_is_not_a_jump() {
        let mut time = TrustedTime::start(Some(NOW), NOW, secs(0), WEEK);
        assert_eq!(time.observe(later(60_000), secs(60)), ClockState::Trusted(later(60_000)));
        assert_eq!(time.observe(later(360_000), secs(60)), ClockState::Trusted(later(360_000)));
        let (wall, trusted) = (later(DAY), later(360_000));
        assert_eq!(time.observe(wall, secs(60)), ClockState::Jumped { trusted, wall });
        time.confirm(wall, secs(61));
        assert_eq!(
            time.observe(later(DAY + 1_000), secs(62)),
            ClockState::Trusted(later(DAY + 1_000))
        );
    }

    #[test]
    fn a_clock_that_is_behind_deletes_less_and_may_not_jump_back() {
        let mut time = TrustedTime::start(Some(NOW), later(-DAY), secs(0), WEEK);
        assert_eq!(time.observe(later(-DAY), secs(0)), ClockState::Trusted(later(-DAY)));
        let wall = NOW;
        let trusted = Millis(NOW.0 - DAY + 60_000);
        assert_eq!(time.observe(wall, secs(60)), ClockState::Jumped { trusted, wall });
    }
}
