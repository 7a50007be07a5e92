//! Wall-clock time as a plain value; the caller owns the clock.

use std::fmt;

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub i64);

impl Millis {
    /// `2026-02-19T18:14:02Z`: whole seconds, as the contracts write their times.
    pub fn to_rfc3339_seconds(self) -> String {
        format!("{:.0}", self.timestamp())
    }

    /// `2026-02-19T18:14:02.123Z`: milliseconds, as our own receipts and logs write them.
    pub fn to_rfc3339_millis(self) -> String {
        format!("{:.3}", self.timestamp())
    }

    /// Parses an RFC 3339 text; `None` if it is invalid.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|at| Self(at.as_millisecond()))
    }

    /// Clamps out-of-range values: times are for display and never a reason to fail.
    fn timestamp(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        })
    }
}

/// Source of wall-clock time: the system clock in the gate, simulated clocks in tests.
pub trait Clock: Send + Sync {
    /// Current time.
    fn now(&self) -> Millis;
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_contracts_write_them() {
        let at = Millis(1_771_524_842_123);
        assert_eq!(at.to_rfc3339_seconds(), "2026-02-19T18:14:02Z");
        assert_eq!(at.to_rfc3339_millis(), "2026-02-19T18:14:02.123Z");
        assert_eq!(Millis::parse_rfc3339("2026-02-19T18:14:02.123Z"), Some(at));
    }

    #[test]
    fn a_time_out_of_range_is_clamped_not_a_panic() {
        assert!(Millis(i64::MAX).to_rfc3339_seconds().starts_with("9999"));
        assert!(Millis(i64::MIN).to_rfc3339_seconds().starts_with('-'));
    }
}
