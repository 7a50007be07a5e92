//! Retention horizon, and the rule that prevents a purged event from being admitted twice.
//!
//! Nothing is purged unless an operator sets an age. Bodies older than the age are deleted first,
//! then the keys of events that carry the producer's own wall time. Invariant: by the time a key
//! may be deleted, every copy of its event is [outside](Horizon::is_outside), and it stays outside
//! even if the age is changed later. An event without a wall time is never outside, so its key is
//! never deleted.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::Millis;

/// Retention age in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(u64);

/// How much longer than the age a key is kept. Covers the time between the horizon check and the
/// record commit: ledger queueing, and a clock that is set back.
pub const KEY_MARGIN: Age = Age::from_millis(60 * 60 * 1000);

/// Units of the text form, largest first.
const UNITS: [(&str, u64); 5] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl Age {
    /// Creates an age from milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Creates an age from seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// The age in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time at which something from `at` reaches this age.
    pub fn after(self, at: Millis) -> Millis {
        Millis(at.0.saturating_add_unsigned(self.0))
    }
}

impl fmt::Display for Age {
    /// Largest unit without remainder: `90d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, millis)| self.0 != 0 && self.0.is_multiple_of(*millis)) {
            Some((unit, millis)) => write!(f, "{}{unit}", self.0 / millis),
            None => write!(f, "{}ms", self.0),
        }
    }
}

/// Text that is not a valid age.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid age: expected a number greater than zero with a unit w, d, h, m or s, such as 90d"
)]
pub struct InvalidAge;

impl FromStr for Age {
    type Err = InvalidAge;

    fn from_str(text: &str) -> Result<Self, InvalidAge> {
        let (unit, millis) =
            UNITS.iter().find(|(unit, _)| text.ends_with(unit)).ok_or(InvalidAge)?;
        let number = text.strip_suffix(unit).unwrap_or_default();
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidAge);
        }
        let count: u64 = number.parse().map_err(|_| InvalidAge)?;
        match count.checked_mul(*millis) {
            // Ages beyond the range of `i64` milliseconds are invalid.
            Some(age) if age > 0 && i64::try_from(age).is_ok() => Ok(Self(age)),
            _ => Err(InvalidAge),
        }
    }
}

/// Retention horizon of a ledger. Clones share the purge mark, so a contract that holds one sees a
/// purge at once.
#[derive(Clone, Debug)]
pub struct Horizon {
    age: Option<Age>,
    /// Newest wall time of an event whose key was purged; `i64::MIN` if none.
    forgotten_to: Arc<AtomicI64>,
}

impl Default for Horizon {
    /// Keeps everything.
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Horizon {
    /// Creates the horizon of a ledger with retention `age` (`None`: unlimited) that has purged
    /// keys of events up to the wall time `forgotten_to`.
    pub fn new(age: Option<Age>, forgotten_to: Option<Millis>) -> Self {
        let to = forgotten_to.map_or(i64::MIN, |at| at.0);
        Self { age, forgotten_to: Arc::new(AtomicI64::new(to)) }
    }

    /// Retention age; `None` is unlimited.
    pub fn age(&self) -> Option<Age> {
        self.age
    }

    /// Newest wall time of an event whose key may be purged.
    pub fn forgotten_to(&self) -> Option<Millis> {
        Some(self.forgotten_to.load(Ordering::Acquire)).filter(|to| *to != i64::MIN).map(Millis)
    }

    /// Marks keys of events up to this wall time as purged. Called before the first of them is
    /// deleted.
    pub fn forget_to(&self, at: Millis) {
        self.forgotten_to.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Returns whether the ledger may have purged the event that happened then, so that admitting
    /// it could be a second admission. The contract then refuses with `outside_horizon`.
    pub fn is_outside(&self, happened_at: Option<Millis>, received_at: Millis) -> bool {
        let Some(at) = happened_at else { return false };
        self.forgotten_to().is_some_and(|to| at <= to)
            || self.age.is_some_and(|age| age.after(at) < received_at)
    }

    /// Events from before this time are outside at `now`; `None` while everything is inside.
    pub fn reaches_to(&self, now: Millis) -> Option<Millis> {
        let by_age = self.age.map(|age| Millis(now.0.saturating_sub_unsigned(age.0)));
        let forgotten = self.forgotten_to().map(|to| Millis(to.0.saturating_add(1)));
        by_age.max(forgotten)
    }

    /// Time after which the body of a submission received at `received_at` may be deleted.
    pub fn body_due(&self, received_at: Millis) -> Option<Millis> {
        self.age.map(|age| age.after(received_at))
    }

    /// Time after which an admission and its key may be deleted; `None` is never.
    pub fn key_due(&self, received_at: Millis, happened_at: Option<Millis>) -> Option<Millis> {
        let age = self.age?;
        Some(KEY_MARGIN.after(age.after(happened_at?.max(received_at))))
    }

    /// Events that happened and were received before this time may be deleted at `now`: inverse of
    /// [`Self::key_due`].
    pub fn key_cut(&self, now: Millis) -> Option<Millis> {
        let kept = self.age?.0.saturating_add(KEY_MARGIN.0);
        Some(Millis(now.0.saturating_sub_unsigned(kept)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: Age = Age::from_secs(86_400);

    #[test]
    fn an_event_is_outside_once_it_is_older_than_the_age() {
        let horizon = Horizon::new(Some(DAY), None);
        let at = Millis(1_000);
        assert!(!horizon.is_outside(Some(at), DAY.after(at)), "the age itself is inside");
        assert!(horizon.is_outside(Some(at), DAY.after(Millis(1_001))));
        assert!(!horizon.is_outside(Some(Millis(i64::MAX)), at), "the future is inside");
    }

    #[test]
    fn an_event_without_a_wall_time_is_never_outside_and_never_purged() {
        let horizon = Horizon::new(Some(DAY), Some(Millis(i64::MAX - 1)));
        assert!(!horizon.is_outside(None, Millis(i64::MAX)));
        assert_eq!(horizon.key_due(Millis(0), None), None);
    }

    #[test]
    fn purged_events_stay_outside_when_the_age_is_raised_or_removed() {
        for age in [None, Some(Age::from_secs(u64::MAX / 1_000))] {
            let horizon = Horizon::new(age, Some(Millis(500)));
            assert!(horizon.is_outside(Some(Millis(500)), Millis(600)));
            assert!(!horizon.is_outside(Some(Millis(501)), Millis(600)));
            assert_eq!(horizon.forgotten_to(), Some(Millis(500)));
        }
        let (horizon, copy) = (Horizon::default(), Horizon::default());
        let shared = horizon.clone();
        horizon.forget_to(Millis(7));
        horizon.forget_to(Millis(3));
        assert_eq!(shared.forgotten_to(), Some(Millis(7)));
        assert_eq!(copy.forgotten_to(), None);
    }

    #[test]
    fn ages_round_trip_and_invalid_texts_are_rejected() {
        for text in ["1s", "90m", "36h", "90d", "52w"] {
            let age: Age = text.parse().expect("an age");
            assert_eq!(age.to_string().parse(), Ok(age), "{text}");
        }
        assert_eq!("90d".parse::<Age>().map(|age| age.to_string()), Ok("90d".to_owned()));
        for text in ["", "d", "90", "0d", "-1d", "+1d", "1.5d", "90 d", "1y", "99999999999999w"] {
            assert_eq!(text.parse::<Age>(), Err(InvalidAge), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_copy_is_outside_whenever_its_key_may_be_deleted(
            happened_at in any::<i32>(), received_at in any::<i32>(),
            age in 1u64..4_000_000_000, later in 1i64..4_000_000_000, set_back in 0u64..=3_600_000,
        ) {
            let horizon = Horizon::new(Some(Age::from_millis(age)), None);
            let happened_at = Millis(i64::from(happened_at));
            let due = horizon
                .key_due(Millis(i64::from(received_at)), Some(happened_at))
                .expect("it has a wall time");
            let now = Millis(due.0 + later);
            // The copy arrives after the key was deleted, on a clock that may have been set back
            // since.
            let copy_at = Millis(now.0 - i64::try_from(set_back).expect("small"));
            prop_assert!(horizon.is_outside(Some(happened_at), copy_at));
        }
    }
}
