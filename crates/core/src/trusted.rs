//! Trusted time: how far a clock is believed before something is deleted by it.
//!
//! A wall clock that jumps forward makes everything look old. Retention therefore deletes only up to a
//! time that is derived from what the ledger knew at the start plus the monotonic time since, and stops
//! when the wall clock is ahead of that. A clock that is behind only delays deletion.

use std::time::Duration;

use crate::horizon::Age;
use crate::time::Millis;

/// A step of the wall clock that is an adjustment and not a jump: a time server corrects a few seconds,
/// a virtual machine is paused for a snapshot.
pub const CLOCK_STEP_MAX: Age = Age::from_secs(300);

/// Time that never steps, as far as the machine can tell; it need not mean a date.
pub trait Monotonic: Send + Sync {
    /// Time since some fixed moment.
    fn elapsed(&self) -> Duration;
}

/// Decides how far the wall clock is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedTime {
    /// Trusted time at `since`.
    at: Millis,
    since: Duration,
    /// How far the wall clock may be ahead of trusted time before that is a jump.
    slack: Age,
}

/// A judgement about the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockState {
    /// Whatever was due at this time may go.
    Trusted(Millis),
    /// The wall clock is ahead of what can be explained; nothing may go.
    Jumped {
        /// Trusted time.
        trusted: Millis,
        /// What the wall clock shows.
        wall: Millis,
    },
}

impl TrustedTime {
    /// Trusted time of a process that starts. `known` is the newest time the ledger trusts; a ledger
    /// without one believes the wall clock. A gap of up to `gap_max` is downtime.
    pub fn start(known: Option<Millis>, wall: Millis, elapsed: Duration, gap_max: Age) -> Self {
        let at = known.unwrap_or(wall).min(wall);
        Self { at, since: elapsed, slack: gap_max.max(CLOCK_STEP_MAX) }
    }

    /// Judges what the wall clock shows.
    pub fn observe(&mut self, wall: Millis, elapsed: Duration) -> ClockState {
        let trusted = self.now(elapsed);
        if wall > self.slack.after(trusted) {
            return ClockState::Jumped { trusted, wall };
        }
        // Also backwards: a clock that was wrong and is corrected may not jump forward again later.
        self.confirm(wall, elapsed);
        ClockState::Trusted(wall)
    }

    /// A person vouches for what the wall clock shows.
    pub fn confirm(&mut self, wall: Millis, elapsed: Duration) {
        *self = Self { at: wall, since: elapsed, slack: CLOCK_STEP_MAX };
    }

    /// Trusted time now, wherever the wall clock is.
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
    fn a_gap_at_the_start_is_downtime_up_to_the_setting_and_a_jump_beyond() {
        let mut rested = TrustedTime::start(Some(NOW), later(7 * DAY), secs(0), WEEK);
        assert_eq!(rested.observe(later(7 * DAY), secs(0)), ClockState::Trusted(later(7 * DAY)));
        let mut jumped = TrustedTime::start(Some(NOW), later(7 * DAY + 1), secs(5), WEEK);
        let wall = later(7 * DAY + 1);
        assert_eq!(jumped.observe(wall, secs(5)), ClockState::Jumped { trusted: NOW, wall });
        // Trusted time goes on meanwhile, and a clock that is put right is believed again.
        let wall = later(9 * DAY);
        let trusted = later(60_000);
        assert_eq!(jumped.observe(wall, secs(65)), ClockState::Jumped { trusted, wall });
        assert_eq!(jumped.observe(later(70_000), secs(70)), ClockState::Trusted(later(70_000)));
        let mut fresh = TrustedTime::start(None, NOW, secs(0), WEEK);
        assert_eq!(fresh.observe(NOW, secs(0)), ClockState::Trusted(NOW));
    }

    #[test]
    fn a_jump_while_it_runs_is_no_downtime_and_a_small_step_is_no_jump() {
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
