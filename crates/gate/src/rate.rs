//! How often each principal may knock: a token bucket that is a second deep.

use std::sync::{Mutex, PoisonError};

use admit_core::Millis;

/// The buckets of all principals.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: u32,
    buckets: Vec<Mutex<Bucket>>,
}

/// Tokens in thousandths, so that whole milliseconds refill it without rounding.
#[derive(Debug)]
struct Bucket {
    millitokens: u64,
    filled_at: Millis,
}

const MILLITOKENS: u64 = 1_000;

impl Rates {
    /// Buckets for `principals` principals, full; `per_second` 0 lets everything pass.
    pub(crate) fn new(per_second: u32, principals: usize, now: Millis) -> Self {
        let full = u64::from(per_second) * MILLITOKENS;
        let bucket = || Mutex::new(Bucket { millitokens: full, filled_at: now });
        let buckets = (0..principals).map(|_| bucket()).collect();
        Self { per_second, buckets }
    }

    /// Whether the principal at `place` may pass now.
    pub(crate) fn allow(&self, place: usize, now: Millis) -> bool {
        if self.per_second == 0 {
            return true;
        }
        let Some(bucket) = self.buckets.get(place) else { return false };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        // A clock that steps back fills nothing and costs nothing.
        let elapsed = u64::try_from(now.0 - bucket.filled_at.0).unwrap_or(0);
        let depth = u64::from(self.per_second) * MILLITOKENS;
        let refill = elapsed.saturating_mul(u64::from(self.per_second));
        bucket.millitokens = bucket.millitokens.saturating_add(refill).min(depth);
        bucket.filled_at = now;
        let allowed = bucket.millitokens >= MILLITOKENS;
        if allowed {
            bucket.millitokens -= MILLITOKENS;
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
}
