//! Due date of a task: an ISO date or datetime, or a word relative to the day of arrival.
//!
//! `<weekday>` and `next <weekday>` are both the first such day after today; `next week` and `next
//! week monday` are both the first Monday at least seven days away.

use admit_core::Millis;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::iso::is_iso;
use super::python_values::trimmed;

/// Resolves the due date `text` as of `now` in `zone`. An ISO date or datetime is returned
/// unchanged. `None` for any other text.
pub(super) fn resolve(text: &str, zone: &TimeZone, now: Millis) -> Option<String> {
    let word = trimmed(text);
    let today = Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
    if let Some(day) = by_word(&word.to_lowercase(), today) {
        return Some(day?.to_string());
    }
    is_iso(word).then(|| text.to_owned())
}

/// Date of a relative word: `None` if it is none, `Some(None)` for a day beyond the calendar.
fn by_word(word: &str, today: Date) -> Option<Option<Date>> {
    let after = |days: i64| today.checked_add(days.days()).ok();
    let since_monday = i64::from(today.weekday().to_monday_zero_offset());
    match word {
        "today" => return Some(Some(today)),
        "tomorrow" => return Some(after(1)),
        "next week" | "next week monday" => {
            return Some(after(7 + (7 - since_monday).rem_euclid(7)));
        }
        _ => {}
    }
    let day = weekday(word.strip_prefix("next ").unwrap_or(word))?;
    let ahead = (i64::from(day.to_monday_zero_offset()) - since_monday).rem_euclid(7);
    Some(after(if ahead == 0 { 7 } else { ahead }))
}

fn weekday(word: &str) -> Option<Weekday> {
    Some(match word {
        "monday" => Weekday::Monday,
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-07-15T23:30:00Z, a Wednesday in UTC and a Thursday in London.
    const NOW: Millis = Millis(1_784_158_200_000);

    fn resolved(text: &str, zone: &str) -> Option<String> {
        resolve(text, &TimeZone::get(zone).unwrap(), NOW)
    }

    #[test]
    fn relative_dates_use_the_day_in_the_zone() {
        let table = [
            ("today", "2026-07-16", "2026-07-15"),
            ("Tomorrow", "2026-07-17", "2026-07-16"),
            ("friday", "2026-07-17", "2026-07-17"),
            ("thursday", "2026-07-23", "2026-07-16"),
            ("wednesday", "2026-07-22", "2026-07-22"),
            ("next friday", "2026-07-17", "2026-07-17"),
            (" next week ", "2026-07-27", "2026-07-27"),
            ("next week monday", "2026-07-27", "2026-07-27"),
        ];
        for (word, london, utc) in table {
            assert_eq!(
                resolved(word, "Europe/London").as_deref(),
                Some(london),
                "{word} in London"
            );
            assert_eq!(resolved(word, "UTC").as_deref(), Some(utc), "{word} in UTC");
        }
    }

    #[test]
    fn any_other_text_is_an_iso_date_or_nothing() {
        for text in ["2026-02-10", "2026-02-10T09:00", "20260210", "2026-W07-2", " 2026-02-10 "] {
            assert_eq!(resolved(text, "Europe/London").as_deref(), Some(text), "no zone is added");
        }
        for text in ["", "soon", "2026-02-30", "next", "next year", "10/02/2026", "fri", "nextweek"]
        {
            assert_eq!(resolved(text, "Europe/London"), None, "{text}");
        }
    }
}
