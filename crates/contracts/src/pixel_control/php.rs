//! JSON as PHP writes it: an empty map arrives as `[]`, a whole number may arrive as `1.0`.
//!
//! Everything in this contract that reads below the ten envelope fields reads through here, so that
//! `[]` means `{}` in every place an object is expected.

use admit_core::json::{Object, Value};

/// What an empty array is read as.
static EMPTY: Object<'static> = Object::new();

/// The object, where one is expected: also an empty array, which is PHP's empty map.
pub(super) fn object<'v, 'a>(value: &'v Value<'a>) -> Option<&'v Object<'a>> {
    match value {
        Value::Object(object) => Some(object),
        Value::Array(elements) if elements.is_empty() => Some(&EMPTY),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Array(_) => None,
    }
}

/// The value reached by going down through objects by name.
pub(super) fn find<'v, 'a>(value: &'v Value<'a>, path: &[&str]) -> Option<&'v Value<'a>> {
    path.iter().try_fold(value, |value, name| object(value)?.get(name))
}

/// The integer that is not negative, in the sense of JSON Schema: `1`, `1.0` and `1e0` are all one.
/// Beyond `u64` it is `u64::MAX`.
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

/// The value with every shadowed copy of a repeated key taken out, or `None` when there is none,
/// which is the rule. Readers that walk the entries of an object need it; reading by name does not.
pub(super) fn without_shadowed<'a>(value: &Value<'a>) -> Option<Value<'a>> {
    has_repeated_key(value).then(|| last_copies(value))
}

/// Up to this many keys it is cheaper to compare all pairs than to sort.
const PAIRS_KEYS_MAX: usize = 16;

fn has_repeated_key(value: &Value<'_>) -> bool {
    match value {
        Value::Object(object) => {
            repeats(object) || object.iter().any(|(_, value)| has_repeated_key(value))
        }
        Value::Array(elements) => elements.iter().any(has_repeated_key),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => false,
    }
}

fn repeats(object: &Object<'_>) -> bool {
    if object.len() > PAIRS_KEYS_MAX {
        return object.repeated_key().is_some();
    }
    let mut keys = object.iter();
    while let Some((key, _)) = keys.next() {
        if keys.clone().any(|(later, _)| later == key) {
            return true;
        }
    }
    false
}

fn last_copies<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Object(object) => {
            let mut seen = std::collections::HashSet::new();
            let entries: Vec<_> = object.iter().collect();
            let mut kept: Vec<_> =
                entries.into_iter().rev().filter(|(key, _)| seen.insert(*key)).collect();
            kept.reverse();
            let owned = |(key, value): (&str, &Value<'a>)| (key.to_owned(), last_copies(value));
            kept.into_iter().map(owned).collect::<Object<'a>>().into()
        }
        Value::Array(elements) => elements.iter().map(last_copies).collect(),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => {
            value.clone()
        }
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
        assert_eq!(find(&read(r#"{"a":[]}"#), &["a", "b"]), None);
        assert_eq!(find(&read(r#"{"a":{"b":1}}"#), &["a", "b"]), Some(&read("1")));
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

    #[test]
    fn of_repeated_keys_only_the_last_copy_is_left() {
        assert_eq!(without_shadowed(&read(r#"{"a":1,"b":[{"c":1}]}"#)), None);
        let cleaned = without_shadowed(&read(r#"{"a":1,"b":[{"c":1,"d":2,"c":3}],"a":2}"#));
        assert_eq!(cleaned, Some(read(r#"{"b":[{"d":2,"c":3}],"a":2}"#)));
        let many: String = (0..40).map(|n| format!(r#""k{n}":{n},"#)).collect();
        assert_eq!(without_shadowed(&read(&format!(r#"{{{many}"z":0}}"#))), None);
        let text = format!(r#"{{{many}"k7":0}}"#);
        let cleaned = without_shadowed(&read(&text)).unwrap();
        assert_eq!(cleaned.as_object().map(Object::len), Some(40));
        assert_eq!(cleaned.get("k7"), Some(&read("0")));
    }
}
