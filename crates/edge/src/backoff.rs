//! Backoff: exponential, with full jitter and a cap.

use std::time::Duration;

/// Maximum exponent; the cap is reached long before.
const DOUBLINGS_MAX: u32 = 40;

/// Backoff between attempts. After the n-th failure the delay is drawn uniformly between one
/// millisecond and `base · 2^(n-1)`, or `max` if that is less, so that producers that failed
/// together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Maximum delay after the first failure.
    pub base: Duration,
    /// Maximum delay.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(500), max: Duration::from_secs(60) }
    }
}

impl Backoff {
    /// Maximum delay after `failures` failures.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(DOUBLINGS_MAX);
        let millis = u64::try_from(self.base.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(millis.saturating_mul(1 << doublings)).min(self.max)
    }

    /// The delay after `failures` failures, from a uniformly drawn number.
    pub fn wait(&self, failures: u32, drawn: u64) -> Duration {
        let millis = u64::try_from(self.ceiling(failures).as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(1 + drawn % millis)
    }

    /// The delay after a final refusal, which the same row would get again: drawn from the upper
    /// half of the cap, so that unlimited retries cost almost nothing.
    pub fn final_wait(&self, drawn: u64) -> Duration {
        let half = u64::try_from(self.max.as_millis() / 2).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(half.saturating_add(drawn % half)).min(self.max)
    }
}

/// Jitter source: a splitmix64 generator, seeded by the system.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_the_cap_and_bound_every_delay() {
        let backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(3) };
        let ceilings: Vec<u128> = (1..=8).map(|n| backoff.ceiling(n).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1600, 3000, 3000, 3000]);
        assert_eq!(backoff.ceiling(u32::MAX), backoff.max);
        let mut jitter = Jitter::seeded(7);
        for failures in 1..2_000 {
            let wait = backoff.wait(failures, jitter.draw());
            assert!(wait > Duration::ZERO && wait <= backoff.ceiling(failures), "{failures}");
        }
    }

    #[test]
    fn after_a_final_refusal_the_wait_is_at_least_half_the_cap() {
        let backoff = Backoff::default();
        let mut jitter = Jitter::seeded(1);
        let waits: Vec<Duration> = (0..200).map(|_| backoff.final_wait(jitter.draw())).collect();
        assert!(waits.iter().all(|wait| *wait >= backoff.max / 2 && *wait <= backoff.max));
        assert!(waits.iter().any(|wait| *wait > backoff.max / 10 * 9), "they are spread");
    }

    #[test]
    fn senders_that_fail_together_do_not_retry_together() {
        let backoff = Backoff::default();
        let waits = |seed| {
            let mut jitter = Jitter::seeded(seed);
            (1..=20).map(|n| backoff.wait(n, jitter.draw())).collect::<Vec<_>>()
        };
        assert_ne!(waits(1), waits(2));
        let same = waits(1).iter().zip(&waits(2)).filter(|(one, other)| one == other).count();
        assert!(same <= 2, "{same} of 20 waits are the same");
    }

    #[test]
    fn waits_use_the_whole_range() {
        let backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(1) };
        let mut jitter = Jitter::seeded(1);
        let waits: Vec<_> = (0..500).map(|_| backoff.wait(1, jitter.draw()).as_millis()).collect();
        assert!(waits.iter().any(|wait| *wait < 20) && waits.iter().any(|wait| *wait > 80));
    }
}
