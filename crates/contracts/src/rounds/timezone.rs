//! Local times of the game servers, as used in file names and match ids, and their conversion.

use admit_core::hash::sha256_hex;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// Latest valid time, in seconds; larger values are milliseconds or garbage.
const UNIX_MAX: i64 = 99_999_999_999;

/// Local time converted to seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedTime {
    /// The time; in a repeated hour, the earlier reading.
    pub(super) unix: i64,
    /// Later reading in the hour that is repeated when clocks are turned back.
    pub(super) late: Option<i64>,
}

/// Parses a date such as `2026-02-11`.
pub(super) fn date(text: &str) -> Option<String> {
    let text = text.trim();
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let is_plain = [(year, 4), (month, 2), (day, 2)]
        .iter()
        .all(|(part, len)| part.len() == *len && part.bytes().all(|byte| byte.is_ascii_digit()));
    if parts.next().is_some() || !is_plain {
        return None;
    }
    Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(text.to_owned())
}

/// Parses a time such as `220205`; colons are ignored.
pub(super) fn time(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().filter(|c| *c != ':').collect();
    if digits.len() != 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    civil_time(&digits).map(|_| digits)
}

fn civil_time(digits: &str) -> Option<Time> {
    let part = |from: usize| digits.get(from..from + 2)?.parse::<i8>().ok();
    Time::new(part(0)?, part(2)?, part(4)?, 0).ok()
}

/// Validates seconds since the epoch; zero and negative values mean "unknown".
pub(super) fn unix(seconds: i64) -> Option<i64> {
    (1..=UNIX_MAX).contains(&seconds).then_some(seconds)
}

/// Converts a local date and time in `zone`.
pub(super) fn moment(zone: &TimeZone, date: &str, time: &str) -> Option<ResolvedTime> {
    let date: Date = date.parse().ok()?;
    let local = DateTime::from_parts(date, civil_time(time)?);
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let is_fold = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
    // A time skipped by the clock change is read with the offset before it, like a clock that was
    // not adjusted yet.
    let unix = if is_fold { ambiguous.earlier() } else { ambiguous.compatible() };
    let late = if is_fold { ambiguous.later().ok() } else { None };
    Some(ResolvedTime { unix: unix.ok()?.as_second(), late: late.map(Timestamp::as_second) })
}

/// Local date of a time in `zone`.
pub(super) fn local_date(zone: &TimeZone, unix: i64) -> Option<String> {
    let at = Timestamp::from_second(unix).ok()?;
    Some(at.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string())
}

/// Match id of the script: the local time when the round ended, `2026-02-11-220202`.
pub(super) fn match_id(zone: &TimeZone, end: i64) -> Option<String> {
    let at = Timestamp::from_second(end).ok()?;
    Some(at.to_zoned(zone.clone()).strftime("%Y-%m-%d-%H%M%S").to_string())
}

/// Time that a match id of the script represents.
pub(super) fn of_match_id(zone: &TimeZone, match_id: &str) -> Option<ResolvedTime> {
    let (day, clock) = match_id.rsplit_once('-')?;
    moment(zone, &date(day)?, &time(clock)?)
}

/// Short hash of a text, as a hard key where the text itself would be too long.
pub(super) fn short(text: &str) -> String {
    sha256_hex(text.as_bytes())[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ljubljana() -> TimeZone {
        TimeZone::get("Europe/Ljubljana").unwrap()
    }

    #[test]
    fn the_reference_round_ended_at_two_past_ten_in_ljubljana() {
        let zone = ljubljana();
        assert_eq!(match_id(&zone, 1_770_843_722).as_deref(), Some("2026-02-11-220202"));
        let file = moment(&zone, "2026-02-11", "220205").unwrap();
        assert_eq!(file, ResolvedTime { unix: 1_770_843_725, late: None });
        assert_eq!(match_id(&TimeZone::UTC, 1_770_843_722).as_deref(), Some("2026-02-11-210202"));
    }

    #[test]
    fn the_repeated_hour_has_two_readings_and_one_match_id() {
        let zone = ljubljana();
        let twice = moment(&zone, "2026-10-25", "023000").unwrap();
        assert_eq!(twice, ResolvedTime { unix: 1_792_888_200, late: Some(1_792_891_800) });
        for end in [1_792_888_200, 1_792_891_800] {
            assert_eq!(match_id(&zone, end).as_deref(), Some("2026-10-25-023000"));
        }
        assert_eq!(of_match_id(&zone, "2026-10-25-023000"), Some(twice));
    }

    #[test]
    fn the_skipped_hour_is_read_with_the_offset_before_it() {
        let skipped = moment(&ljubljana(), "2026-03-29", "023000").unwrap();
        assert_eq!(match_id(&ljubljana(), skipped.unix).as_deref(), Some("2026-03-29-033000"));
        assert_eq!(skipped.late, None);
    }

    #[test]
    fn colons_in_a_time_are_ignored_and_nothing_else_is() {
        assert_eq!(time("22:02:05").as_deref(), Some("220205"));
        assert_eq!(time(" 220205 ").as_deref(), Some("220205"));
        for wrong in ["", "2202", "240000", "226005", "220260", "22-02-05", "22020５"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
        assert_eq!(date("2026-02-11").as_deref(), Some("2026-02-11"));
        for wrong in ["", "2026-02-30", "2026-2-11", "26-02-11", "2026-02-11-01", "2026-13-01"] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn zero_negative_and_absurd_times_are_unknown() {
        assert_eq!([0, -1, i64::MIN, 1_770_843_722_000].map(unix), [None; 4]);
        assert_eq!(unix(1_770_843_722), Some(1_770_843_722));
    }
}
