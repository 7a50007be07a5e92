//! Regular expressions in schemas and in events.

use std::sync::LazyLock;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::{Value, json};

use super::meter::charge;
use crate::text::bounded;

/// Longest pattern repeated in an error, in characters.
const PATTERN_CHARS_MAX: usize = 200;

/// Comparisons of group names that count as one step.
const COMPARISONS_PER_STEP: u64 = 16;

/// Error message for a schema that cannot be compiled, with the pattern and its location if a
/// pattern is the cause.
pub(super) fn message(error: &ValidationError<'_>) -> String {
    let is_pattern =
        matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex");
    let instance = error.instance();
    let Some(pattern) = instance.as_str().filter(|_| is_pattern) else {
        return error.to_string();
    };
    // During meta-schema validation the schema is the instance; later it is the schema.
    let within = error.instance_path().as_str();
    let place = if within.is_empty() { error.schema_path().as_str() } else { within };
    format!(
        "the pattern {:?} at {place} cannot be used: it is no regular expression, too large, or has \
         look-around or back-references, which cannot be matched in linear time; write it without, \
         or check this in the producer",
        bounded(pattern, PATTERN_CHARS_MAX)
    )
}

/// The validator's own `regex` format check, for one text.
static IS_REGEX: LazyLock<Validator> = LazyLock::new(|| {
    let draft = "http://json-schema.org/draft-07/schema#";
    let schema = json!({ "$schema": draft, "format": "regex" });
    jsonschema::validator_for(&schema).expect("the schema is fixed and tested")
});

/// Whether a text in an event is a regular expression. The validator compares all group names with
/// each other, which is quadratic in their number.
pub(super) fn is_regex(text: &str) -> bool {
    let names = (text.matches("(?<").count() + text.matches("\\k<").count()) as u64;
    charge(1 + names.saturating_mul(names) / COMPARISONS_PER_STEP);
    IS_REGEX.is_valid(&Value::from(text))
}
