//! Loosely typed values of packets, converted by CPython's rules.

use admit_core::json::Value;

/// Trims whitespace, which in CPython includes four more characters.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

/// Number value of a number or a numeric text. `None` for any other value.
pub(super) fn number(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Int(_) | Value::Float(_) => value.as_f64(),
        Value::String(text) => read_float(trimmed(text)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses like `float(text)`: digits may be grouped by single underscores.
fn read_float(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut underscores = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    if !underscores.all(|(at, _)| digit(at.checked_sub(1)) && digit(Some(at + 1))) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Whether a value counts as absent: null, "", false and zero.
pub(super) fn is_blank(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Int(_) | Value::Float(_) => value.as_f64() == Some(0.0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_texts_are_accepted_as_in_python() {
        for (text, expected) in [
            ("0.5", Some(0.5)),
            (" 1e-1\n", Some(0.1)),
            ("1_0.2_5", Some(10.25)),
            ("+.5", Some(0.5)),
            ("5.", Some(5.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1__0", None),
            ("_1", None),
            ("1_.0", None),
            ("0x1", None),
            ("high", None),
            ("", None),
        ] {
            assert_eq!(number(&Value::from(text)), expected, "{text:?}");
        }
        assert!(number(&Value::from("nan")).is_some_and(f64::is_nan));
    }
}
