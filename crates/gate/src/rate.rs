//! Rate limits: a token bucket that is a second deep, for each principal or each webhook stream.
//!
//! Every event costs a token. A batch is let in while its bucket is not in debt, and may leave it in
//! debt: otherwise a batch larger than the bucket could never be sent. Until the debt is paid the
//! bucket lets nothing else pass.

use std::sync::{Mutex, PoisonError};

use admit_core::Millis;

/// All buckets of one kind.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: u32,
    buckets: Vec<Mutex<Bucket>>,
}

/// Tokens in thousandths, so that whole milliseconds refill it without rounding; a debt is negative.
#[derive(Debug)]
struct Bucket {
    millitokens: i64,
    filled_at: Millis,
}

const MILLITOKENS: i64 = 1_000;

impl Rates {
    /// So many buckets, full; `per_second` 0 lets everything pass.
    pub(crate) fn new(per_second: u32, buckets: usize, now: Millis) -> Self {
        let full = i64::from(per_second) * MILLITOKENS;
        let bucket = || Mutex::new(Bucket { millitokens: full, filled_at: now });
        let buckets = (0..buckets).map(|_| bucket()).collect();
        Self { per_second, buckets }
    }

    /// Whether one event may pass now in the bucket at `place`.
    pub(crate) fn allow(&self, place: usize, now: Millis) -> bool {
        self.spend(place, 1, MILLITOKENS, now)
    }

    /// Whether a request of `events` may pass now.
    pub(crate) fn allow_batch(&self, place: usize, events: usize, now: Millis) -> bool {
        self.spend(place, events.max(1), MILLITOKENS, now)
    }

    /// Whether the `events` of a request may pass besides the first, which has passed.
    pub(crate) fn allow_rest(&self, place: usize, events: usize, now: Millis) -> bool {
        events == 0 || self.spend(place, events, 0, now)
    }

    /// Spends a token for each event if there are `least` millitokens.
    fn spend(&self, place: usize, events: usize, least: i64, now: Millis) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let Some(bucket) = self.buckets.get(place) else { return false };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that steps back fills nothing and costs nothing.
        let elapsed = now.0.saturating_sub(bucket.filled_at.0).max(0);
        let depth = i64::from(self.per_second) * MILLITOKENS;
        let refill = elapsed.saturating_mul(i64::from(self.per_second));
        bucket.millitokens = bucket.millitokens.saturating_add(refill).min(depth);
        bucket.filled_at = now;
        let allowed = bucket.millitokens >= least;
        if allowed {
            let price = i64::try_from(events).unwrap_or(i64::MAX).saturating_mul(MILLITOKENS);
            bucket.millitokens = bucket.millitokens.saturating_sub(price);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(rates: &Rates, place: usize, now: i64, tries: usize) -> usize {
        (0..tries).filter(|_| rates.allow(place, Millis(now))).count()
    }

    #[test]
    fn a_second_holds_what_was_configured_and_no_more() {
        let rates = Rates::new(10, 1, Millis(0));
        assert_eq!(passed(&rates, 0, 0, 100), 10);
        assert_eq!(passed(&rates, 0, 500, 100), 5);
        assert_eq!(
            passed(&rates, 0, 60_000, 100),
            10,
            "a long pause saves up one second, not sixty"
        );
    }

    #[test]
    fn one_loud_principal_does_not_use_up_anothers_share() {
        let rates = Rates::new(1, 2, Millis(0));
        assert_eq!(passed(&rates, 0, 0, 100), 1);
        assert_eq!(passed(&rates, 1, 0, 100), 1);
    }

    #[test]
    fn zero_turns_it_off() {
        assert_eq!(passed(&Rates::new(0, 1, Millis(0)), 0, 0, 1_000), 1_000);
    }

    #[test]
    fn a_clock_stepping_back_neither_fills_nor_blocks() {
        let rates = Rates::new(2, 1, Millis(10_000));
        assert_eq!(passed(&rates, 0, 10_000, 1), 1);
        assert_eq!(passed(&rates, 0, 0, 5), 1);
        assert_eq!(passed(&rates, 0, 1_000, 5), 2);
    }

    #[test]
    fn a_batch_costs_its_events_and_may_leave_a_debt() {
        let rates = Rates::new(10, 1, Millis(0));
        assert!(rates.allow_batch(0, 35, Millis(0)), "more than the bucket ever holds");
        assert!(!rates.allow(0, Millis(2_500)), "the debt is paid, but no token is there yet");
        assert!(!rates.allow_batch(0, 2, Millis(2_500)));
        assert_eq!(passed(&rates, 0, 2_700, 10), 2);
    }

    #[test]
    fn the_rest_of_a_batch_is_let_in_unless_another_one_left_a_debt() {
        let rates = Rates::new(2, 1, Millis(0));
        assert!(rates.allow(0, Millis(0)) && rates.allow(0, Millis(0)), "two requests begin");
        assert!(rates.allow_rest(0, 99, Millis(0)), "nothing is owed yet");
        assert!(!rates.allow_rest(0, 99, Millis(0)), "one debt at a time");
        assert!(rates.allow_rest(0, 0, Millis(0)), "a request of one event owes nothing more");
    }
}
