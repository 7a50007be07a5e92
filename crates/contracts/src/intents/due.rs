//! When a task is due: an ISO date or time, or a word that depends on the day it is said.
//!
//! A weekday is the next such day after today; `next <weekday>` is that day of the coming calendar
//! week; `next week` is its Monday. Weeks begin on Monday.

use admit_core::Millis;
use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// What `text` means when it is said at `now` in `zone`, or `None` when it means nothing.
pub(super) fn resolve(text: &str, zone: &TimeZone, now: Millis) -> Option<String> {
    let text = text.trim();
    let today = Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone.clone()).date();
    if let Some(day) = by_word(&text.to_lowercase(), today) {
        return Some(day?.to_string());
    }
    if text.len() == 10 {
        return text.parse::<Date>().ok().map(|date| date.to_string());
    }
    if !text.contains(['T', 't', ' ']) {
        return None;
    }
    if text.parse::<Timestamp>().is_ok() {
        return Some(text.to_owned());
    }
    let local: DateTime = text.parse().ok()?;
    let zoned = local.to_zoned(zone.clone()).ok()?;
    Some(zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
}

/// The day of a word: `None` when it is no word, `Some(None)` when the day is beyond the calendar.
fn by_word(word: &str, today: Date) -> Option<Option<Date>> {
    let after = |days: i64| today.checked_add(days.days()).ok();
    let since_monday = i64::from(today.weekday().to_monday_zero_offset());
    match word {
        "today" => return Some(Some(today)),
        "tomorrow" => return Some(after(1)),
        "next week" => return Some(after(7 - since_monday)),
        _ => {}
    }
    if let Some(day) = word.strip_prefix("next ").and_then(|day| weekday(day.trim_start())) {
        return Some(after(7 - since_monday + i64::from(day.to_monday_zero_offset())));
    }
    let day = weekday(word)?;
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

    /// Said at 2026-07-15T23:30:00Z, a Wednesday in UTC and a Thursday in London.
    const NOW: Millis = Millis(1_784_158_200_000);

    fn said(text: &str, zone: &str) -> Option<String> {
        resolve(text, &TimeZone::get(zone).unwrap(), NOW)
    }

    #[test]
    fn words_are_meant_on_the_day_of_the_zone() {
        let table = [
            ("today", "2026-07-16", "2026-07-15"),
            ("Tomorrow", "2026-07-17", "2026-07-16"),
            ("friday", "2026-07-17", "2026-07-17"),
            ("thursday", "2026-07-23", "2026-07-16"),
            ("wednesday", "2026-07-22", "2026-07-22"),
            ("next friday", "2026-07-24", "2026-07-24"),
            ("next  monday", "2026-07-20", "2026-07-20"),
            (" next week ", "2026-07-20", "2026-07-20"),
            ("sunday", "2026-07-19", "2026-07-19"),
            ("next sunday", "2026-07-26", "2026-07-26"),
        ];
        for (word, london, utc) in table {
            assert_eq!(said(word, "Europe/London").as_deref(), Some(london), "{word} in London");
            assert_eq!(said(word, "UTC").as_deref(), Some(utc), "{word} in UTC");
        }
    }

    #[test]
    fn iso_dates_and_times_are_kept_and_local_times_get_their_offset() {
        let table = [
            ("2026-02-10", "2026-02-10"),
            ("2026-02-10T09:00:00Z", "2026-02-10T09:00:00Z"),
            ("2026-02-10T09:00:00+05:30", "2026-02-10T09:00:00+05:30"),
            ("2026-02-10T09:00", "2026-02-10T09:00:00+00:00"),
            ("2026-07-10 09:00:00", "2026-07-10T09:00:00+01:00"),
        ];
        for (text, meant) in table {
            assert_eq!(said(text, "Europe/London").as_deref(), Some(meant), "{text}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in ["", "soon", "2026-02-30", "next", "next year", "10/02/2026", "fri", "20260210"]
        {
            assert_eq!(said(text, "Europe/London"), None, "{text}");
        }
    }
}
