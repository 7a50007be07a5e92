//! Division of one limit between principals, with a guaranteed part and a maximum for each.
//!
//! Half of the limit is divided equally and guaranteed: a principal can use its part at any time,
//! however much the others hold. The rest is common, first come first served, up to the maximum of each
//! principal. So a single principal can use much, and any number of others cannot starve it.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::SeqCst};

/// Counts the usage of one limit by each principal.
///
/// Invariant, while no call is in progress: `common` is the sum over all principals of their usage beyond
/// `guaranteed`. Every change of `held` is followed by the corresponding change of `common`, also when an
/// addition is undone. In between, `common` may be too high or negative.
#[derive(Debug)]
pub(crate) struct Shares {
    /// Guaranteed part of each principal.
    guaranteed: usize,
    /// Maximum of one principal.
    share_max: usize,
    held: Vec<AtomicUsize>,
    common: AtomicIsize,
    common_max: isize,
}

impl Shares {
    /// Undivided limit: first come, first served.
    pub(crate) fn undivided(whole: usize, principals: usize) -> Self {
        Self::new(whole, principals, whole, 0)
    }

    /// Divides `whole` between `principals` principals. At least `common_min` stays common, so that a principal
    /// can use that much even if there are very many.
    pub(crate) fn divided(
        whole: usize,
        principals: usize,
        share_max: usize,
        common_min: usize,
    ) -> Self {
        let guaranteed = (whole / 2).min(whole.saturating_sub(common_min));
        Self::new(whole, principals, share_max, guaranteed / principals.max(1))
    }

    fn new(whole: usize, principals: usize, share_max: usize, guaranteed: usize) -> Self {
        let common_max = whole.saturating_sub(guaranteed.saturating_mul(principals));
        Self {
            guaranteed,
            share_max,
            held: (0..principals).map(|_| AtomicUsize::new(0)).collect(),
            common: AtomicIsize::new(0),
            common_max: isize::try_from(common_max).unwrap_or(isize::MAX),
        }
    }

    /// Adds `more` to the usage of the principal at `index`; adds nothing and returns false over a limit.
    pub(crate) fn try_add(&self, index: usize, more: usize) -> bool {
        let Some(held) = self.held.get(index) else { return false };
        if more == 0 {
            return true;
        }
        let before = held.fetch_add(more, SeqCst);
        let after = before.saturating_add(more);
        let beyond = self.beyond(after) - self.beyond(before);
        // The guaranteed part does not depend on the usage of others.
        let fits_common =
            beyond == 0 || self.common.fetch_add(beyond, SeqCst) + beyond <= self.common_max;
        let fits = fits_common && after <= self.share_max;
        if !fits {
            self.remove(index, more);
        }
        fits
    }

    /// Whether [`Shares::try_add`] would succeed now.
    pub(crate) fn would_fit(&self, index: usize, more: usize) -> bool {
        let Some(held) = self.held.get(index) else { return false };
        let before = held.load(SeqCst);
        let after = before.saturating_add(more);
        let beyond = self.beyond(after) - self.beyond(before);
        after <= self.share_max
            && (beyond == 0 || self.common.load(SeqCst).saturating_add(beyond) <= self.common_max)
    }

    /// Subtracts `less` from the usage of the principal at `index`.
    pub(crate) fn remove(&self, index: usize, less: usize) {
        let Some(held) = self.held.get(index).filter(|_| less > 0) else { return };
        let before = held.fetch_sub(less, SeqCst);
        let beyond = self.beyond(before) - self.beyond(before.saturating_sub(less));
        if beyond > 0 {
            self.common.fetch_sub(beyond, SeqCst);
        }
    }

    /// Part of `held` beyond the guaranteed part.
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

    /// Adds one at a time up to the limit. Returns the number added.
    fn fill(shares: &Shares, index: usize) -> usize {
        (0..1_000).take_while(|_| shares.try_add(index, 1)).count()
    }

    #[test]
    fn any_number_of_greedy_principals_leave_each_other_the_guaranteed_part() {
        let shares = Shares::divided(120, 3, 60, 1);
        assert_eq!(fill(&shares, 0), 60, "its maximum");
        assert_eq!(fill(&shares, 1), 40, "its guaranteed part, and the rest of the common part");
        assert_eq!(fill(&shares, 2), 20, "its guaranteed sixth");
        assert_eq!(shares.held(), 120);
    }

    #[test]
    fn released_usage_is_available_to_others() {
        let shares = Shares::divided(120, 3, 60, 1);
        (0..3).for_each(|index| assert!(fill(&shares, index) >= 20));
        shares.remove(0, 60);
        assert_eq!((fill(&shares, 2), fill(&shares, 0)), (40, 20));
        [(0, 20), (1, 40), (2, 60)].iter().for_each(|(index, held)| shares.remove(*index, *held));
        assert_eq!((shares.held(), shares.common.load(SeqCst)), (0, 0));
    }

    #[test]
    fn try_add_agrees_with_would_fit() {
        let shares = Shares::divided(120, 3, 60, 1);
        assert!(shares.would_fit(0, 60) && !shares.would_fit(0, 61) && !shares.would_fit(3, 0));
        assert!(shares.try_add(0, 60) && shares.would_fit(1, 40) && !shares.would_fit(1, 41));
        assert!(!shares.try_add(1, 41) && shares.try_add(1, 40) && shares.would_fit(2, 20));
        assert!(!shares.try_add(3, 1), "no such principal");
    }

    #[test]
    fn with_very_many_principals_a_common_part_is_left() {
        let shares = Shares::divided(10, 1_000, 8, 8);
        assert_eq!((fill(&shares, 0), fill(&shares, 1), fill(&shares, 2)), (8, 2, 0));
    }

    #[test]
    fn an_undivided_limit_is_first_come_first_served() {
        let shares = Shares::undivided(10, 2);
        assert_eq!((fill(&shares, 0), fill(&shares, 1)), (10, 0));
    }

    #[test]
    fn concurrent_changes_neither_lose_nor_exceed_anything() {
        let shares = Shares::divided(16, 3, 8, 1);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            for index in [0, 0, 1, 1, 2] {
                let (shares, most) = (&shares, &most);
                scope.spawn(move || {
                    for number in 0..20_000 {
                        let more = 1 + number % 3;
                        if shares.try_add(index, more) {
                            most.fetch_max(usize::from(index == 2), SeqCst);
                            shares.remove(index, more);
                        } else if index == 2 && more <= 2 {
                            panic!("two are guaranteed");
                        }
                    }
                });
            }
        });
        assert_eq!((shares.held(), shares.common.load(SeqCst)), (0, 0));
        assert_eq!(most.load(SeqCst), 1);
    }
}
