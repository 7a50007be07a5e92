//! How far back the ledger remembers, and the rule that keeps "forgotten" from becoming "admitted
//! twice".
//!
//! Nothing is forgotten unless an operator sets an age. Then bodies older than the age go, and after
//! them the keys of events that carry the producer's own wall time. Invariant: by the time a key may
//! go, every copy of its event is [outside](Horizon::is_outside), and it stays outside whatever the
//! age is set to later. An event without a wall time is never outside, so its key never goes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::time::Millis;

/// A length of time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Age(u64);

/// How much longer than the age a key is kept. It covers what may lie between the look at an
/// event's time and its record: the wait for the ledger, and a clock that is set back.
pub const KEY_MARGIN: Age = Age::from_millis(60 * 60 * 1000);

/// The units of an age as people write it, largest first.
const UNITS: [(&str, u64); 5] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];

impl Age {
    /// An age of so many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// An age of so many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// The age in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time at which something from `at` has this age.
    pub fn after(self, at: Millis) -> Millis {
        Millis(at.0.saturating_add_unsigned(self.0))
    }
}

impl fmt::Display for Age {
    /// In the largest unit that says it exactly: `90d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, millis)| self.0 != 0 && self.0.is_multiple_of(*millis)) {
            Some((unit, millis)) => write!(f, "{}{unit}", self.0 / millis),
            None => write!(f, "{}ms", self.0),
        }
    }
}

/// A text that is not an age.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an age looks like 90d (w, d, h, m or s), and is not zero")]
pub struct NotAnAge;

impl FromStr for Age {
    type Err = NotAnAge;

    fn from_str(text: &str) -> Result<Self, NotAnAge> {
        let (unit, millis) = UNITS.iter().find(|(unit, _)| text.ends_with(unit)).ok_or(NotAnAge)?;
        let number = text.strip_suffix(unit).unwrap_or_default();
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NotAnAge);
        }
        let count: u64 = number.parse().map_err(|_| NotAnAge)?;
        match count.checked_mul(*millis) {
            // Longer than a signed clock can say is no age either.
            Some(age) if age > 0 && i64::try_from(age).is_ok() => Ok(Self(age)),
            _ => Err(NotAnAge),
        }
    }
}

/// How far back a ledger remembers. Clones share what was forgotten, so a contract that holds one
/// sees it at once.
#[derive(Clone, Debug)]
pub struct Horizon {
    age: Option<Age>,
    /// The newest wall time of an event whose key is gone; `i64::MIN` when none is.
    forgotten_to: Arc<AtomicI64>,
}

impl Default for Horizon {
    /// A ledger that forgets nothing.
    fn default() -> Self {
        Self::new(None, None)
    }
}

impl Horizon {
    /// The horizon of a ledger that keeps things for `age` (`None`: for ever), and has forgotten
    /// keys of events up to the wall time `forgotten_to` under this or an earlier age.
    pub fn new(age: Option<Age>, forgotten_to: Option<Millis>) -> Self {
        let to = forgotten_to.map_or(i64::MIN, |at| at.0);
        Self { age, forgotten_to: Arc::new(AtomicI64::new(to)) }
    }

    /// How long things are kept; `None` is for ever.
    pub fn age(&self) -> Option<Age> {
        self.age
    }

    /// The newest wall time of an event whose key may be gone.
    pub fn forgotten_to(&self) -> Option<Millis> {
        Some(self.forgotten_to.load(Ordering::Acquire)).filter(|to| *to != i64::MIN).map(Millis)
    }

    /// Notes that keys of events up to this wall time go; said before the first of them does.
    pub fn forget_to(&self, at: Millis) {
        self.forgotten_to.fetch_max(at.0, Ordering::AcqRel);
    }

    /// `true` when the ledger may no longer know the event that happened then, so that admitting
    /// it could be a second time. The contract then answers `outside_horizon`.
    pub fn is_outside(&self, happened_at: Option<Millis>, received_at: Millis) -> bool {
        let Some(at) = happened_at else { return false };
        self.forgotten_to().is_some_and(|to| at <= to)
            || self.age.is_some_and(|age| age.after(at) < received_at)
    }

    /// What happened before this time is outside at `now`; `None` while everything is inside.
    pub fn reaches_to(&self, now: Millis) -> Option<Millis> {
        let by_age = self.age.map(|age| Millis(now.0.saturating_sub_unsigned(age.0)));
        let forgotten = self.forgotten_to().map(|to| Millis(to.0.saturating_add(1)));
        by_age.max(forgotten)
    }

    /// After this time the body of something received at `received_at` may go.
    pub fn body_due(&self, received_at: Millis) -> Option<Millis> {
        self.age.map(|age| age.after(received_at))
    }

    /// After this time an admission, and the key it claimed, may go; `None` is never.
    pub fn key_due(&self, received_at: Millis, happened_at: Option<Millis>) -> Option<Millis> {
        let age = self.age?;
        Some(KEY_MARGIN.after(age.after(happened_at?.max(received_at))))
    }

    /// What happened and was received before this time may go at `now`: the other side of
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
    fn an_event_without_a_wall_time_is_never_outside_and_never_forgotten() {
        let horizon = Horizon::new(Some(DAY), Some(Millis(i64::MAX - 1)));
        assert!(!horizon.is_outside(None, Millis(i64::MAX)));
        assert_eq!(horizon.key_due(Millis(0), None), None);
    }

    #[test]
    fn what_was_forgotten_stays_outside_when_the_age_is_raised_or_taken_away() {
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
    fn ages_read_back_and_nonsense_does_not() {
        for text in ["1s", "90m", "36h", "90d", "52w"] {
            let age: Age = text.parse().expect("an age");
            assert_eq!(age.to_string().parse(), Ok(age), "{text}");
        }
        assert_eq!("90d".parse::<Age>().map(|age| age.to_string()), Ok("90d".to_owned()));
        for text in ["", "d", "90", "0d", "-1d", "+1d", "1.5d", "90 d", "1y", "99999999999999w"] {
            assert_eq!(text.parse::<Age>(), Err(NotAnAge), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_copy_is_outside_whenever_its_key_may_be_gone(
            happened_at in any::<i32>(), received_at in any::<i32>(),
            age in 1u64..4_000_000_000, later in 1i64..4_000_000_000, set_back in 0u64..=3_600_000,
        ) {
            let horizon = Horizon::new(Some(Age::from_millis(age)), None);
            let happened_at = Millis(i64::from(happened_at));
            let due = horizon
                .key_due(Millis(i64::from(received_at)), Some(happened_at))
                .expect("it has a wall time");
            let now = Millis(due.0 + later);
            // The copy arrives after the key went, on a clock that may have been set back since.
            let copy_at = Millis(now.0 - i64::try_from(set_back).expect("small"));
            prop_assert!(horizon.is_outside(Some(happened_at), copy_at));
        }
    }
}
