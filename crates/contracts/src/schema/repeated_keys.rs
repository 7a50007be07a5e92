//! Repeated object keys, of which the last one wins.

use admit_core::json::{Object, Value};

/// Returns the value without the shadowed copies of repeated keys, or `None` if there are none,
/// which is the normal case. Readers that iterate over an object need it; lookups by name do not.
pub(crate) fn without_shadowed<'a>(value: &Value<'a>) -> Option<Value<'a>> {
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
            let mut members: Vec<_> =
                entries.into_iter().rev().filter(|(key, _)| seen.insert(*key)).collect();
            members.reverse();
            let owned = |(key, value): (&str, &Value<'a>)| (key.to_owned(), last_copies(value));
            members.into_iter().map(owned).collect::<Object<'a>>().into()
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
