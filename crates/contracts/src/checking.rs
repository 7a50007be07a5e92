//! Checks our values against JSON Schemas, and says what is wrong without repeating it.

use admit_core::json::Value;
use jsonschema::Validator;

/// How many violations are told.
const TOLD_MAX: usize = 20;

/// Longest text of one violation, in characters.
const TEXT_CHARS_MAX: usize = 240;

/// What is wrong with a value: the first few violations in words. Values are the sender's own; a
/// message that repeats them may be logged.
pub(crate) fn told(validator: &Validator, value: &serde_json::Value) -> Vec<String> {
    let errors = validator.iter_errors(value).take(TOLD_MAX);
    errors
        .map(|error| {
            let path = error.instance_path().as_str();
            bounded(&format!("{}: {}", if path.is_empty() { "/" } else { path }, error.masked()))
        })
        .collect()
}

/// The text, or the beginning of it.
pub(crate) fn bounded(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A copy for the validator. Numbers it cannot hold become the nearest it can.
pub(crate) fn to_serde(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(_) | Value::Float(_) => {
            let exact = value.as_u64().map(Into::into).or_else(|| value.as_i64().map(Into::into));
            let near = || {
                let number = value.as_f64().unwrap_or_default().clamp(f64::MIN, f64::MAX);
                serde_json::Number::from_f64(number).unwrap_or_else(|| 0.into())
            };
            serde_json::Value::Number(exact.unwrap_or_else(near))
        }
        Value::String(text) => text.as_ref().into(),
        Value::Array(elements) => elements.iter().map(to_serde).collect(),
        Value::Object(object) => object.iter().map(|(key, value)| (key, to_serde(value))).collect(),
    }
}
