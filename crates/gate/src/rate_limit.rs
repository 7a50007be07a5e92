//! Rate limits: a token bucket with one second of capacity, for each principal or webhook stream.
//!
//! Every event costs a token. A batch is admitted while its bucket has no debt, and may leave a debt:
//! otherwise a batch larger than the bucket could never be sent. Until the debt is repaid, the bucket
//! refuses everything else.

use std::sync::{Mutex, PoisonError};

use admit_core::Millis;

/// Token buckets of one kind.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    per_second: u32,
    buckets: Vec<Mutex<TokenBucket>>,
}

/// Tokens in thousandths, so that whole milliseconds refill the bucket without rounding. A debt is negative.
#[derive(Debug)]
struct TokenBucket {
    millitokens: i64,
    filled_at: Millis,
}

const MILLITOKENS: i64 = 1_000;

/// Refusal over the rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    /// Time until the bucket admits an event again, unless others take its tokens.
    pub(crate) retry_after_seconds: u32,
}

impl RateLimiter {
    /// Creates `buckets` full buckets; `per_second` 0 disables the limit.
    pub(crate) fn new(per_second: u32, buckets: usize, now: Millis) -> Self {
        let full = i64::from(per_second) * MILLITOKENS;
        let bucket = || Mutex::new(TokenBucket { millitokens: full, filled_at: now });
        let buckets = (0..buckets).map(|_| bucket()).collect();
        Self { per_second, buckets }
    }

    /// Takes a token for one event from the bucket at `index`.
    pub(crate) fn allow(&self, index: usize, now: Millis) -> Result<(), RateExceeded> {
        self.spend(index, 1, MILLITOKENS, now)
    }

    /// Takes the tokens of a request with `events`.
    pub(crate) fn allow_batch(
        &self,
        index: usize,
        events: usize,
        now: Millis,
    ) -> Result<(), RateExceeded> {
        self.spend(index, events.max(1), MILLITOKENS, now)
    }

    /// Takes the tokens of the further `events` of a request whose first event has been admitted.
    pub(crate) fn allow_rest(
        &self,
        index: usize,
        events: usize,
        now: Millis,
    ) -> Result<(), RateExceeded> {
        if events == 0 { Ok(()) } else { self.spend(index, events, 0, now) }
    }

    /// Takes a token for each event if at least `least` millitokens are left.
    fn spend(
        &self,
        index: usize,
        events: usize,
        least: i64,
        now: Millis,
    ) -> Result<(), RateExceeded> {
        if self.per_second == 0 {
            return Ok(());
        }
        let Some(bucket) = self.buckets.get(index) else {
            return Err(RateExceeded { retry_after_seconds: 1 });
        };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock step backwards neither refills nor costs tokens.
        let elapsed = now.0.saturating_sub(bucket.filled_at.0).max(0);
        let depth = i64::from(self.per_second) * MILLITOKENS;
        let refill = elapsed.saturating_mul(i64::from(self.per_second));
        bucket.millitokens = bucket.millitokens.saturating_add(refill).min(depth);
        bucket.filled_at = now;
        if bucket.millitokens < least {
            return Err(self.exceeded(bucket.millitokens));
        }
        let price = i64::try_from(events).unwrap_or(i64::MAX).saturating_mul(MILLITOKENS);
        bucket.millitokens = bucket.millitokens.saturating_sub(price);
        Ok(())
    }

    /// Computes the wait until the debt is repaid and one token is available.
    fn exceeded(&self, millitokens: i64) -> RateExceeded {
        let missing = MILLITOKENS.saturating_sub(millitokens).max(0);
        let per_second = i64::from(self.per_second) * MILLITOKENS;
        let seconds = missing / per_second + i64::from(missing % per_second > 0);
        RateExceeded { retry_after_seconds: u32::try_from(seconds).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(rates: &RateLimiter, index: usize, now: i64, tries: usize) -> usize {
        (0..tries).filter(|_| rates.allow(index, Millis(now)).is_ok()).count()
    }

    #[test]
    fn a_second_admits_the_configured_number_and_no_more() {
        let rates = RateLimiter::new(10, 1, Millis(0));
        assert_eq!(admitted(&rates, 0, 0, 100), 10);
        assert_eq!(admitted(&rates, 0, 500, 100), 5);
        assert_eq!(
            admitted(&rates, 0, 60_000, 100),
            10,
            "a long pause refills one second, not sixty"
        );
    }

    #[test]
    fn one_principal_does_not_use_up_the_tokens_of_another() {
        let rates = RateLimiter::new(1, 2, Millis(0));
        assert_eq!(admitted(&rates, 0, 0, 100), 1);
        assert_eq!(admitted(&rates, 1, 0, 100), 1);
    }

    #[test]
    fn zero_disables_the_limit() {
        assert_eq!(admitted(&RateLimiter::new(0, 1, Millis(0)), 0, 0, 1_000), 1_000);
    }

    #[test]
    fn a_clock_stepping_back_neither_fills_nor_blocks() {
        let rates = RateLimiter::new(2, 1, Millis(10_000));
        assert_eq!(admitted(&rates, 0, 10_000, 1), 1);
        assert_eq!(admitted(&rates, 0, 0, 5), 1);
        assert_eq!(admitted(&rates, 0, 1_000, 5), 2);
    }

    #[test]
    fn a_batch_costs_its_events_and_may_leave_a_debt() {
        let rates = RateLimiter::new(10, 1, Millis(0));
        assert!(
            rates.allow_batch(0, 35, Millis(0)).is_ok(),
            "more than the capacity of the bucket"
        );
        assert!(
            rates.allow(0, Millis(2_500)).is_err(),
            "the debt is repaid, but no token is available yet"
        );
        assert!(rates.allow_batch(0, 2, Millis(2_500)).is_err());
        assert_eq!(admitted(&rates, 0, 2_700, 10), 2);
    }

    #[test]
    fn the_rest_of_a_batch_is_admitted_unless_another_one_left_a_debt() {
        let rates = RateLimiter::new(2, 1, Millis(0));
        assert_eq!(admitted(&rates, 0, 0, 2), 2, "two requests begin");
        assert!(rates.allow_rest(0, 99, Millis(0)).is_ok(), "no debt yet");
        assert!(rates.allow_rest(0, 99, Millis(0)).is_err(), "one debt at a time");
        assert!(
            rates.allow_rest(0, 0, Millis(0)).is_ok(),
            "a request of one event needs no further tokens"
        );
    }

    #[test]
    fn the_retry_hint_of_a_debt_is_the_time_until_it_is_repaid() {
        let rates = RateLimiter::new(5, 1, Millis(0));
        let seconds = |now| rates.allow(0, Millis(now)).unwrap_err().retry_after_seconds;
        assert!(rates.allow_batch(0, 500, Millis(0)).is_ok());
        // A debt of 495, and the next event needs a token: 496 / 5.
        assert_eq!(seconds(0), 100);
        assert_eq!(seconds(50_000), 50);
        let rest = rates.allow_rest(0, 9, Millis(50_000));
        assert_eq!(rest, Err(RateExceeded { retry_after_seconds: 50 }));
        assert_eq!(seconds(99_000), 1);
        assert!(rates.allow(0, Millis(99_200)).is_ok());
        assert_eq!(seconds(99_200), 1, "never 0");
    }
}
