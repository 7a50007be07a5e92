//! ISO 8601 dates and datetimes, exactly those that `datetime.fromisoformat` of CPython 3.11
//! accepts.
//!
//! That is more than RFC 3339 (basic forms, weeks, any character between date and time) and less
//! than ISO 8601 (no ordinal dates). Users who migrate from a Python normaliser get the same dates.

use jiff::civil::{Date, ISOWeekDate, Weekday};

/// Seconds of a day: an offset must be smaller.
const DAY_SECONDS: u32 = 24 * 60 * 60;

/// Significant digits of a fraction; further digits are ignored.
const FRACTION_DIGITS: usize = 6;

/// Shortest valid text, in characters: `2026W49`.
const CHARS_MIN: usize = 7;

/// Whether `text` is an ISO date or datetime.
pub(super) fn is_iso(text: &str) -> bool {
    if text.chars().count() < CHARS_MIN {
        return false;
    }
    let bytes = text.as_bytes();
    let Some(end) = date_end(bytes) else { return false };
    if !bytes.get(..end).is_some_and(is_date) {
        return false;
    }
    // Any character separates date and time.
    let Some(rest) = text.get(end..) else { return false };
    let mut characters = rest.chars();
    match characters.next() {
        None => true,
        Some(_) => !characters.as_str().is_empty() && is_time(characters.as_str().as_bytes()),
    }
}

fn digit_at(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(u8::is_ascii_digit)
}

/// Length of the date part. Only some forms have separators, and a week may have a day.
fn date_end(bytes: &[u8]) -> Option<usize> {
    if bytes.len() == 7 {
        return Some(7);
    }
    match (bytes.get(4)?, bytes.get(5)?) {
        (b'-', b'W') if bytes.get(8) == Some(&b'-') => match bytes.len() {
            9 => None,
            // `YYYY-Www-HH` is likelier than a digit between date and time.
            _ if digit_at(bytes, 10) => Some(8),
            _ => Some(10),
        },
        (b'-', b'W') => Some(8),
        (b'-', _) => Some(10),
        (b'W', _) => {
            let digits = bytes.iter().skip(7).take_while(|byte| byte.is_ascii_digit()).count();
            Some(match 7 + digits {
                end @ 0..9 => end,
                end if end % 2 == 0 => 7,
                _ => 8,
            })
        }
        _ => Some(8),
    }
}

/// Parses a number of exactly this many digits.
fn number(bytes: &[u8]) -> Option<u32> {
    let is_number = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes).ok().filter(|_| is_number)?.parse().ok()
}

fn is_date(bytes: &[u8]) -> bool {
    read_date(bytes).is_some()
}

fn read_date(bytes: &[u8]) -> Option<Date> {
    let year = i16::try_from(number(bytes.get(..4)?)?).ok().filter(|year| *year > 0)?;
    let (rest, has_separator) = match bytes.get(4)? {
        b'-' => (bytes.get(5..)?, true),
        _ => (bytes.get(4..)?, false),
    };
    if let Some(week) = rest.strip_prefix(b"W") {
        let day = match (week.get(2..)?, has_separator) {
            ([], _) => 1,
            ([b'-', day], true) | ([day], false) => number(std::slice::from_ref(day))?,
            _ => return None,
        };
        let week = i8::try_from(number(week.get(..2)?)?).ok()?;
        let day = Weekday::from_monday_one_offset(i8::try_from(day).ok()?).ok()?;
        return Some(ISOWeekDate::new(year, week, day).ok()?.date());
    }
    let (month, day) = match (rest, has_separator) {
        ([month @ .., b'-', a, b], true) if month.len() == 2 => (month, [*a, *b]),
        ([month @ .., a, b], false) if month.len() == 2 => (month, [*a, *b]),
        _ => return None,
    };
    let part = |bytes: &[u8]| number(bytes).and_then(|number| i8::try_from(number).ok());
    Date::new(year, part(month)?, part(&day)?).ok()
}

fn is_time(bytes: &[u8]) -> bool {
    let offset = bytes.iter().position(|byte| matches!(byte, b'+' | b'-' | b'Z'));
    let (clock, offset) = bytes.split_at(offset.unwrap_or(bytes.len()));
    let is_clock = read_clock(clock).is_some_and(|([hour, minute, second], has_rest)| {
        // CPython ignores trailing characters before an offset, as in `10:30 +01:00`.
        let is_whole = !has_rest || !offset.is_empty();
        is_whole && hour < 24 && minute < 60 && second < 60
    });
    let is_offset = match offset {
        [] | [b'Z'] => true,
        [b'Z', ..] => false,
        [_, offset @ ..] => {
            read_clock(offset).is_some_and(|([hours, minutes, seconds], has_rest)| {
                // Only the sum has a limit.
                !has_rest && hours * 3_600 + minutes * 60 + seconds < DAY_SECONDS
            })
        }
    };
    is_clock && is_offset
}

/// Parses `HH[[:]MM[[:]SS]]` with a fraction after any part; returns the parts and whether
/// characters are left. Follows CPython, which is lenient about what comes after the parts.
fn read_clock(bytes: &[u8]) -> Option<([u32; 3], bool)> {
    let mut parts = [0; 3];
    let mut has_separator = false;
    let mut rest = bytes;
    for (place, part) in parts.iter_mut().enumerate() {
        *part = number(rest.get(..2)?)?;
        let Some((next, after)) = rest.get(2..)?.split_first() else { return Some((parts, false)) };
        if place == 0 {
            has_separator = *next == b':';
        }
        if after.is_empty() {
            return Some((parts, true));
        }
        match next {
            b':' if has_separator => rest = after,
            b'.' | b',' => {
                rest = after;
                break;
            }
            _ if has_separator => return None,
            _ => rest = rest.get(2..)?,
        }
    }
    let (fraction, rest) = rest.split_at(rest.len().min(FRACTION_DIGITS));
    number(fraction)?;
    Some((parts, rest.iter().any(|byte| !byte.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_accepted_exactly_as_in_cpython_3_11() {
        for text in [
            "2026-12-01T10:30 +01:00",
            "2026-12-01T10.5",
            "2026-12-01T10:30:15:5",
            "20261201T10301555",
            "2026W49101",
            "2026-12-01T10:30+01:99",
        ] {
            assert!(is_iso(text), "{text}");
        }
        for text in
            ["2026-12-01T10:30  +01:00", "2026-12-01T10:30 ", "2026-12-01T24:00", "2026-12-01T"]
        {
            assert!(!is_iso(text), "{text}");
        }
    }
}
