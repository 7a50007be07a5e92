//! Timestamp of an envelope: RFC 3339 `date-time` strictly by its grammar, with seconds.

use admit_core::Millis;

/// `YYYY-MM-DDThh:mm:ss`; a `0` stands for any digit.
const DATE_AND_TIME: &[u8] = b"0000-00-00T00:00:00";

/// `hh:mm` after the sign of an offset.
const OFFSET: &[u8] = b"00:00";

/// Longest text whose fraction is dropped before the rest is parsed.
const CHARS_MAX: usize = 64;

/// Returns whether `text` is an RFC 3339 timestamp with seconds. General parsers also accept texts
/// without seconds, with a space, or without separators, which other readers of the envelope would
/// reject.
pub(super) fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() > CHARS_MAX || !bytes.is_ascii() || bytes.len() <= DATE_AND_TIME.len() {
        return false;
    }
    let (date_and_time, rest) = text.split_at(DATE_AND_TIME.len());
    let Some(offset) = after_fraction(rest) else { return false };
    let offset = match offset.as_bytes() {
        [b'Z' | b'z'] => "Z",
        [b'+' | b'-', time @ ..] if has_shape(time, OFFSET) && is_time_of_day(time) => match offset
        {
            "-00:00" => "Z",
            offset => offset,
        },
        _ => return false,
    };
    has_shape(date_and_time.as_bytes(), DATE_AND_TIME)
        && Millis::parse_rfc3339(&format!("{date_and_time}{offset}")).is_some()
}

/// Skips an optional fraction of a second; `None` if the fraction has no digit.
fn after_fraction(text: &str) -> Option<&str> {
    let Some(fraction) = text.strip_prefix('.') else { return Some(text) };
    let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

fn has_shape(text: &[u8], shape: &[u8]) -> bool {
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte.eq_ignore_ascii_case(shape),
    };
    text.len() == shape.len() && text.iter().zip(shape).all(fits)
}

/// Whether `hh:mm` is at most 23:59.
fn is_time_of_day(time: &[u8]) -> bool {
    time < b"24:00".as_slice() && time[3] < b'6'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_date_seconds_and_an_offset() {
        for text in [
            "2026-02-16T23:10:21Z",
            "2026-02-16t23:10:21z",
            "2026-02-16T23:10:21.5Z",
            "2026-02-16T23:10:21.123456789012Z",
            "2026-02-16T23:10:21+01:00",
            "2026-02-16T23:10:21-00:00",
            "2024-02-29T00:00:00-23:59",
            "2016-12-31T23:59:60Z",
        ] {
            assert!(is_rfc3339(text), "{text}");
        }
    }

    #[test]
    fn texts_outside_the_grammar_are_refused() {
        for text in [
            "",
            "yesterday",
            "2026-02-16",
            "2026-02-16T23:10Z",
            "2026-02-16T23Z",
            "2026-02-16 23:10:21Z",
            "2026-02-16T23:10:21",
            "2026-02-16T23:10:21.Z",
            "2026-02-16T23:10:21,5Z",
            "2026-02-16T23:10:21+0100",
            "2026-02-16T23:10:21+01",
            "2026-02-16T23:10:21+24:00",
            "2026-02-16T23:10:21+01:60",
            "2026-02-16T23:10:21Z[UTC]",
            "2026-02-16T24:00:00Z",
            "2026-02-30T23:10:21Z",
            "2026-13-01T23:10:21Z",
            "20260216T231021Z",
            "+002026-02-16T23:10:21Z",
            "2026-W08-1T23:10:21Z",
            "2026-02-16T23:10:21\u{ff3a}",
            " 2026-02-16T23:10:21Z",
            "2026-02-16T23:10:21Z ",
        ] {
            assert!(!is_rfc3339(text), "{text}");
        }
    }
}
