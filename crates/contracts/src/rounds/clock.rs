//! The clocks of the game servers: local times in file names and match ids, and what they mean.

use admit_core::hash::sha256_hex;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// The last second that a time may be; what is beyond is in milliseconds, or nonsense.
const UNIX_MAX: i64 = 99_999_999_999;

/// A local time as seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// The time, or the first reading of it.
    pub(super) unix: i64,
    /// The second reading, in the hour that comes twice when clocks are turned back.
    pub(super) late: Option<i64>,
}

/// A date as `2026-02-11`, if the text is one.
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

/// A time as `220205`, if the text is one; colons do not matter.
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

/// Seconds since the epoch, where a number can be such; zero and less are "not known".
pub(super) fn unix(seconds: i64) -> Option<i64> {
    (1..=UNIX_MAX).contains(&seconds).then_some(seconds)
}

/// What a date and a time on a clock of `zone` mean.
pub(super) fn moment(zone: &TimeZone, date: &str, time: &str) -> Option<Moment> {
    let date: Date = date.parse().ok()?;
    let local = DateTime::from_parts(date, civil_time(time)?);
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let is_fold = matches!(ambiguous.offset(), AmbiguousOffset::Fold { .. });
    // A time that the clock skips is read with the offset before, as clocks that lag do.
    let unix = if is_fold { ambiguous.earlier() } else { ambiguous.compatible() };
    let late = if is_fold { ambiguous.later().ok() } else { None };
    Some(Moment { unix: unix.ok()?.as_second(), late: late.map(Timestamp::as_second) })
}

/// The day of a time on a clock of `zone`.
pub(super) fn local_date(zone: &TimeZone, unix: i64) -> Option<String> {
    let at = Timestamp::from_second(unix).ok()?;
    Some(at.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string())
}

/// The match id of the script: its local time when the round ended, `2026-02-11-220202`.
pub(super) fn match_id(zone: &TimeZone, end: i64) -> Option<String> {
    let at = Timestamp::from_second(end).ok()?;
    Some(at.to_zoned(zone.clone()).strftime("%Y-%m-%d-%H%M%S").to_string())
}

/// The time that a match id of the script stands for.
pub(super) fn of_match_id(zone: &TimeZone, match_id: &str) -> Option<Moment> {
    let (day, clock) = match_id.rsplit_once('-')?;
    moment(zone, &date(day)?, &time(clock)?)
}

/// A short name for anything, to be a hard key where a text would be too long.
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
        assert_eq!(file, Moment { unix: 1_770_843_725, late: None });
        assert_eq!(match_id(&TimeZone::UTC, 1_770_843_722).as_deref(), Some("2026-02-11-210202"));
    }

    #[test]
    fn the_hour_that_comes_twice_has_two_readings_and_one_match_id() {
        let zone = ljubljana();
        let twice = moment(&zone, "2026-10-25", "023000").unwrap();
        assert_eq!(twice, Moment { unix: 1_792_888_200, late: Some(1_792_891_800) });
        for end in [1_792_888_200, 1_792_891_800] {
            assert_eq!(match_id(&zone, end).as_deref(), Some("2026-10-25-023000"));
        }
        assert_eq!(of_match_id(&zone, "2026-10-25-023000"), Some(twice));
    }

    #[test]
    fn the_hour_that_is_skipped_is_read_with_the_offset_before() {
        let skipped = moment(&ljubljana(), "2026-03-29", "023000").unwrap();
        assert_eq!(match_id(&ljubljana(), skipped.unix).as_deref(), Some("2026-03-29-033000"));
        assert_eq!(skipped.late, None);
    }

    #[test]
    fn colons_in_a_time_do_not_matter_and_everything_else_does() {
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
    fn zero_negative_and_absurd_times_are_not_known() {
        assert_eq!([0, -1, i64::MIN, 1_770_843_722_000].map(unix), [None; 4]);
        assert_eq!(unix(1_770_843_722), Some(1_770_843_722));
    }
}
