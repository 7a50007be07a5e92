//! Shares of one limit: what each principal may hold of it, and what is kept for each of them.
//!
//! Half of the limit is divided equally: so much of it every principal can have at any time, however
//! much the others hold. The rest is common: it belongs to the first principals that want more, up to
//! the share of each. So one principal alone can use much, and any number of others cannot shut it out.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};

/// Counts what each principal holds of one limit.
///
/// Invariant, while no call is under way: `common` is the sum over all principals of what each holds
/// beyond `guaranteed`. Every change of `held` is followed by the change of `common` that it causes,
/// also where an addition is taken back. In between `common` may be too high, or below zero.
#[derive(Debug)]
pub(crate) struct Shares {
    /// What is kept for each principal.
    guaranteed: usize,
    /// The most that one principal may hold.
    share_max: usize,
    held: Vec<AtomicUsize>,
    common: AtomicIsize,
    common_max: isize,
}

impl Shares {
    /// One limit without shares: the first principals that come may hold all of it.
    pub(crate) fn undivided(whole: usize, places: usize) -> Self {
        Self::new(whole, places, whole, 0)
    }

    /// Shares of `whole` for principals with so many `places`. At least `common_min` is not kept for
    /// single principals, so that a principal may hold that much where there are very many.
    pub(crate) fn divided(
        whole: usize,
        places: usize,
        share_max: usize,
        common_min: usize,
    ) -> Self {
        let kept = (whole / 2).min(whole.saturating_sub(common_min));
        Self::new(whole, places, share_max, kept / places.max(1))
    }

    fn new(whole: usize, places: usize, share_max: usize, guaranteed: usize) -> Self {
        let common_max = whole.saturating_sub(guaranteed.saturating_mul(places));
        Self {
            guaranteed,
            share_max,
            held: (0..places).map(|_| AtomicUsize::new(0)).collect(),
            common: AtomicIsize::new(0),
            common_max: isize::try_from(common_max).unwrap_or(isize::MAX),
        }
    }

    /// Adds `more` to what the principal at `place` holds, or nothing where that is too much.
    pub(crate) fn try_add(&self, place: usize, more: usize) -> bool {
        let Some(held) = self.held.get(place) else { return false };
        if more == 0 {
            return true;
        }
        let before = held.fetch_add(more, SeqCst);
        let after = before.saturating_add(more);
        let beyond = self.beyond(after) - self.beyond(before);
        // What is kept for a principal does not depend on what others hold.
        let fits_common =
            beyond == 0 || self.common.fetch_add(beyond, SeqCst) + beyond <= self.common_max;
        let fits = fits_common && after <= self.share_max;
        if !fits {
            self.remove(place, more);
        }
        fits
    }

    /// Whether [`Shares::try_add`] would add `more` now.
    pub(crate) fn would_fit(&self, place: usize, more: usize) -> bool {
        let Some(held) = self.held.get(place) else { return false };
        let before = held.load(SeqCst);
        let after = before.saturating_add(more);
        let beyond = self.beyond(after) - self.beyond(before);
        after <= self.share_max
            && (beyond == 0 || self.common.load(SeqCst).saturating_add(beyond) <= self.common_max)
    }

    /// Removes `less` from what the principal at `place` holds.
    pub(crate) fn remove(&self, place: usize, less: usize) {
        let Some(held) = self.held.get(place).filter(|_| less > 0) else { return };
        let before = held.fetch_sub(less, SeqCst);
        let beyond = self.beyond(before) - self.beyond(before.saturating_sub(less));
        if beyond > 0 {
            self.common.fetch_sub(beyond, SeqCst);
        }
    }

    /// How much of `held` is not kept for its principal.
    fn beyond(&self, held: usize) -> isize {
        isize::try_from(held.saturating_sub(self.guaranteed)).unwrap_or(isize::MAX)
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.iter().map(|held| held.load(SeqCst)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Adds one at a time until there is no room; how many were added.
    fn fill(shares: &Shares, place: usize) -> usize {
        (0..1_000).take_while(|_| shares.try_add(place, 1)).count()
    }

    #[test]
    fn any_number_of_greedy_principals_leave_each_other_what_is_kept_for_it() {
        let shares = Shares::divided(120, 3, 60, 1);
        assert_eq!(fill(&shares, 0), 60, "its share");
        assert_eq!(fill(&shares, 1), 40, "what is kept for it, and the rest of what is common");
        assert_eq!(fill(&shares, 2), 20, "a sixth, whatever the others hold");
        assert_eq!(shares.held(), 120);
    }

    #[test]
    fn what_is_given_back_can_be_used_again_by_others() {
        let shares = Shares::divided(120, 3, 60, 1);
        (0..3).for_each(|place| assert!(fill(&shares, place) >= 20));
        shares.remove(0, 60);
        assert_eq!((fill(&shares, 2), fill(&shares, 0)), (40, 20));
        [(0, 20), (1, 40), (2, 60)].iter().for_each(|(place, held)| shares.remove(*place, *held));
        assert_eq!((shares.held(), shares.common.load(SeqCst)), (0, 0));
    }

    #[test]
    fn so_much_fits_as_was_said_to_fit() {
        let shares = Shares::divided(120, 3, 60, 1);
        assert!(shares.would_fit(0, 60) && !shares.would_fit(0, 61) && !shares.would_fit(3, 0));
        assert!(shares.try_add(0, 60) && shares.would_fit(1, 40) && !shares.would_fit(1, 41));
        assert!(!shares.try_add(1, 41) && shares.try_add(1, 40) && shares.would_fit(2, 20));
        assert!(!shares.try_add(3, 1), "there is no such principal");
    }

    #[test]
    fn where_there_are_very_many_something_is_left_that_is_common() {
        let shares = Shares::divided(10, 1_000, 8, 8);
        assert_eq!((fill(&shares, 0), fill(&shares, 1), fill(&shares, 2)), (8, 2, 0));
    }

    #[test]
    fn a_limit_that_is_not_divided_is_of_whoever_comes_first() {
        let shares = Shares::undivided(10, 2);
        assert_eq!((fill(&shares, 0), fill(&shares, 1)), (10, 0));
    }

    #[test]
    fn nothing_is_lost_or_exceeded_where_many_threads_add_and_remove() {
        let shares = Shares::divided(16, 3, 8, 1);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            for place in [0, 0, 1, 1, 2] {
                let (shares, most) = (&shares, &most);
                scope.spawn(move || {
                    for number in 0..20_000 {
                        let more = 1 + number % 3;
                        if shares.try_add(place, more) {
                            most.fetch_max(usize::from(place == 2), SeqCst);
                            shares.remove(place, more);
                        } else if place == 2 && more <= 2 {
                            panic!("two are kept for it");
                        }
                    }
                });
            }
        });
        assert_eq!((shares.held(), shares.common.load(SeqCst)), (0, 0));
        assert_eq!(most.load(SeqCst), 1);
    }
}
