//! JSON as PHP writes it: an empty map arrives as `[]`, a whole number may arrive as `1.0`.
//!
//! Everything in this contract below the ten envelope fields is read through these functions, so
//! that `[]` means `{}` wherever an object is expected.

use admit_core::json::{Object, Value};

use crate::schema::EmptyArray;

/// Returns the object; an empty array, PHP's empty map, counts as an empty object.
pub(super) fn object<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Object<'a>> {
    EmptyArray::ArrayOrObject.object(value)
}

/// Returns the value at a path of object member names.
pub(super) fn value_at<'v, 'a>(value: &'v Value<'a>, path: &[&str]) -> Option<&'v Value<'a>> {
    path.iter().try_fold(value, |value, name| object(value)?.get(name))
}

/// Returns a non-negative integer in the sense of JSON Schema: `1`, `1.0` and `1e0` are all one.
/// Values beyond `u64` saturate.
pub(super) fn whole(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Int(digits) if digits.starts_with('-') => None,
        Value::Int(digits) => Some(digits.parse().unwrap_or(u64::MAX)),
        Value::Float(number) if number.fract() == 0.0 && *number >= 0.0 => Some(*number as u64),
        Value::Null
        | Value::Bool(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};

    use super::*;

    fn read(text: &str) -> Value<'_> {
        parse(text.as_bytes(), &Limits::default()).unwrap()
    }

    #[test]
    fn an_empty_array_is_an_empty_object_and_a_full_one_is_not() {
        assert!(object(&read("[]")).is_some_and(Object::is_empty));
        assert!(object(&read("{}")).is_some_and(Object::is_empty));
        assert_eq!(object(&read("[1]")), None);
        assert_eq!(object(&read("null")), None);
        assert_eq!(value_at(&read(r#"{"a":[]}"#), &["a", "b"]), None);
        assert_eq!(value_at(&read(r#"{"a":{"b":1}}"#), &["a", "b"]), Some(&read("1")));
    }

    #[test]
    fn a_whole_number_may_be_written_as_a_float() {
        let cases = [
            ("0", Some(0)),
            ("7", Some(7)),
            ("1.0", Some(1)),
            ("2e3", Some(2000)),
            ("-0.0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("1e300", Some(u64::MAX)),
            ("-1", None),
            ("-1.0", None),
            ("1.5", None),
            ("\"1\"", None),
            ("true", None),
        ];
        for (text, expected) in cases {
            assert_eq!(whole(&read(text)), expected, "{text}");
        }
    }
}
