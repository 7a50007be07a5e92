//! Conversion of source values into one form: numbers in texts, sides, end reasons.

use admit_core::json::Value;

/// Integer value: a number, truncated at the decimal point, or a text that contains one.
pub(super) fn int(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(_) => value.as_i64(),
        Value::Float(number) => whole(*number),
        Value::String(text) => int_text(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses an integer text.
pub(super) fn int_text(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        if is_number { whole(text.parse().ok()?) } else { None }
    })
}

/// Integer part, if it fits.
fn whole(number: f64) -> Option<i64> {
    let is_in_range = number.is_finite() && number.abs() < 9.0e15;
    is_in_range.then_some(number.trunc() as i64)
}

/// First number in a text such as `612 sec`.
pub(super) fn leading(text: &str) -> Option<i64> {
    int_text(text.split_whitespace().next()?)
}

/// Count and seconds of `2 (35 sec)`.
pub(super) fn count_and_seconds(text: &str) -> (Option<i64>, Option<i64>) {
    let count = leading(text.split('(').next().unwrap_or_default());
    let seconds = text.split_once('(').and_then(|(_, rest)| leading(rest.trim_end_matches(')')));
    (count, seconds)
}

/// Side: 1 is Axis, 2 is Allies, and 0 is everything else.
pub(super) fn side(value: &Value<'_>) -> i64 {
    let number = || int(value).map(|number| number.to_string());
    let text = value.as_str().map(|text| text.trim().to_lowercase());
    let word = text.or_else(number).unwrap_or_default();
    match word.as_str() {
        "1" | "axis" => 1,
        "2" | "allies" => 2,
        _ => 0,
    }
}

/// End reason of a round, as one of five constants.
pub(super) fn end_reason(value: &Value<'_>) -> &'static str {
    let text = value.as_str().unwrap_or_default().trim().to_lowercase();
    match text.replace(['_', ' ', '-'], "").as_str() {
        "surrender" | "forfeit" => "SURRENDER",
        "mapchange" => "MAP_CHANGE",
        "maprestart" => "MAP_RESTART",
        "serverrestart" | "serverchange" => "SERVER_RESTART",
        _ => "NORMAL",
    }
}

/// Parses `20:00`, minutes and seconds; a number alone is minutes.
pub(super) fn clock_seconds(text: &str) -> Option<i64> {
    let (minutes, seconds) = text.trim().split_once(':').unwrap_or((text.trim(), "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(minutes) || !is_digits(seconds) {
        return None;
    }
    let seconds = seconds.parse::<i64>().ok().filter(|seconds| *seconds < 60)?;
    minutes.parse::<i64>().ok()?.checked_mul(60)?.checked_add(seconds)
}

/// A round that ended within this many seconds of its limit counts as a full hold.
const FULL_HOLD_SECONDS: i64 = 30;

/// Stopwatch state of a round and, for a first round that set a time, the time to beat in seconds
/// and in whole minutes.
pub(super) fn stopwatch(
    end_reason: &str,
    duration: i64,
    limit_seconds: i64,
    number: i64,
) -> (&'static str, Option<(i64, i64)>) {
    match end_reason {
        "SURRENDER" => ("SURRENDER_END", None),
        "MAP_CHANGE" => ("MAP_CHANGE_END", None),
        "MAP_RESTART" => ("MAP_RESTART_END", None),
        "SERVER_RESTART" => ("SERVER_RESTART_END", None),
        _ if duration >= limit_seconds.saturating_sub(FULL_HOLD_SECONDS) => ("FULL_HOLD", None),
        _ if number == 1 && duration > 0 => {
            let minutes = duration / 60 + i64::from(duration % 60 > 0);
            ("TIME_SET", Some((duration, minutes)))
        }
        _ => ("TIME_SET", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_from_texts_and_truncated() {
        assert_eq!(int(&"2".into()), Some(2));
        assert_eq!(int(&" 1770843143.9 ".into()), Some(1_770_843_143));
        assert_eq!(int(&1_770_843_143.7.into()), Some(1_770_843_143));
        assert_eq!(int(&7.into()), Some(7));
        for wrong in ["two", "", "1e3", "0x10", "inf", "nan", "1.2.3", "--1"] {
            assert_eq!(int(&wrong.into()), None, "{wrong}");
        }
        assert_eq!(int(&f64::MAX.into()), None);
        assert_eq!(int(&true.into()), None);
        assert_eq!(leading("612 sec"), Some(612));
        assert_eq!(count_and_seconds("2 (35 sec)"), (Some(2), Some(35)));
        assert_eq!(count_and_seconds("0"), (Some(0), None));
        assert_eq!(count_and_seconds("none"), (None, None));
    }

    #[test]
    fn sides_are_axis_allies_or_unknown() {
        let sides = ["1", "Axis", "2", " ALLIES ", "0", "draw", "unknown", "3", ""];
        assert_eq!(sides.map(|text| side(&text.into())), [1, 1, 2, 2, 0, 0, 0, 0, 0]);
        assert_eq!(side(&2.into()), 2);
        assert_eq!(side(&2.0.into()), 2);
        assert_eq!(side(&Value::Null), 0);
    }

    #[test]
    fn end_reasons_are_one_of_five_constants() {
        for normal in ["objective", "time_expired", "timelimit", "time limit", "unknown", "", "?"] {
            assert_eq!(end_reason(&normal.into()), "NORMAL", "{normal}");
        }
        assert_eq!(end_reason(&Value::Null), "NORMAL");
        assert_eq!(end_reason(&"Forfeit".into()), "SURRENDER");
        for spelt in ["map_change", "map change", "mapchange", "MAP_CHANGE"] {
            assert_eq!(end_reason(&spelt.into()), "MAP_CHANGE", "{spelt}");
        }
        assert_eq!(end_reason(&"server restart".into()), "SERVER_RESTART");
        assert_eq!(end_reason(&"map_restart".into()), "MAP_RESTART");
    }

    #[test]
    fn a_clock_is_minutes_and_seconds() {
        assert_eq!(
            ["20:00", "9:39", " 12 ", "0:00"].map(clock_seconds),
            [1200, 579, 720, 0].map(Some)
        );
        for wrong in ["", "9:60", "-1:00", "9:3x", "1:2:3", ":", "999999999999999999:00"] {
            assert_eq!(clock_seconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_stopwatch_round_is_a_full_hold_or_sets_a_time_to_beat() {
        assert_eq!(stopwatch("NORMAL", 1170, 1200, 1), ("FULL_HOLD", None));
        assert_eq!(stopwatch("NORMAL", 1169, 1200, 1), ("TIME_SET", Some((1169, 20))));
        assert_eq!(stopwatch("NORMAL", 541, 1200, 1), ("TIME_SET", Some((541, 10))));
        assert_eq!(stopwatch("NORMAL", 541, 1200, 2), ("TIME_SET", None));
        assert_eq!(stopwatch("SURRENDER", 541, 1200, 1), ("SURRENDER_END", None));
    }
}
