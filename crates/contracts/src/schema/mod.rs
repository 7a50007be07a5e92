//! Checks our values against JSON Schemas, and says what is wrong without repeating it.

mod node;
mod shadow;

use std::fmt;

use admit_core::json::{Object, Value};
use jsonschema::Validator;

use crate::text::{VIOLATION_CHARS_MAX, bounded};
use shadow::without_shadowed;

pub(crate) use node::{Node, Ours, to_serde};

/// How many violations are told.
const TOLD_MAX: usize = 20;

/// An event of more values than this is only told that it is not valid: the validator gathers every
/// violation before it names the first, and a hostile event has one for each of its values.
const TOLD_VALUES_MAX: usize = 2_048;

/// What an empty array may stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyArray {
    /// Itself.
    Array,
    /// Also an empty object, which PHP writes as `[]`.
    ArrayOrObject,
}

/// What an empty array is read as where it may be an object.
static EMPTY: Object<'static> = Object::new();

impl EmptyArray {
    /// The object that `value` is, where one is expected.
    pub(crate) fn object<'v, 'a>(self, value: &'v Value<'a>) -> Option<&'v Object<'a>> {
        let is_empty_map =
            self == Self::ArrayOrObject && value.as_array().is_some_and(<[_]>::is_empty);
        if is_empty_map { Some(&EMPTY) } else { value.as_object() }
    }
}

/// A compiled schema.
pub(crate) struct Schema {
    validator: Validator<Ours>,
    empty: EmptyArray,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("empty", &self.empty).finish_non_exhaustive()
    }
}

impl Schema {
    /// Compiles a schema; the error says why it is none.
    pub(crate) fn compile(schema: &serde_json::Value, empty: EmptyArray) -> Result<Self, String> {
        let validator = jsonschema::options_for::<Ours>().build(schema);
        Ok(Self { validator: validator.map_err(|error| error.to_string())?, empty })
    }

    /// Has `tell` look closer at a value that is not valid. `None` when it is.
    pub(crate) fn when_invalid<T>(
        &self,
        value: &Value<'_>,
        tell: impl FnOnce(&Validator<Ours>, Node<'_>) -> T,
    ) -> Option<T> {
        let unshadowed = without_shadowed(value);
        let node = Node { value: unshadowed.as_ref().unwrap_or(value), empty: self.empty };
        (!self.validator.is_valid(node)).then(|| tell(&self.validator, node))
    }

    /// What is wrong with a value that is not valid: the first few violations in words. Values are
    /// the sender's own; a message that repeats them may be logged.
    pub(crate) fn told(&self, value: &Value<'_>) -> Option<Vec<String>> {
        self.when_invalid(value, |validator, node| {
            let mut left = TOLD_VALUES_MAX;
            if !has_at_most(value, &mut left) {
                let text = "not valid, and too large to look for what is wrong";
                return vec![format!("/: {text} (more than {TOLD_VALUES_MAX} values)")];
            }
            let errors = validator.iter_errors(node).take(TOLD_MAX);
            errors
                .map(|error| {
                    let path = error.instance_path().as_str();
                    let path = if path.is_empty() { "/" } else { path };
                    bounded(&format!("{path}: {}", error.masked()), VIOLATION_CHARS_MAX)
                })
                .collect()
        })
    }
}

/// Whether a value and all in it are no more than `left`; counts down.
fn has_at_most(value: &Value<'_>, left: &mut usize) -> bool {
    let Some(rest) = left.checked_sub(1) else { return false };
    *left = rest;
    match value {
        Value::Array(elements) => elements.iter().all(|value| has_at_most(value, left)),
        Value::Object(object) => object.iter().all(|(_, value)| has_at_most(value, left)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_huge_event_is_not_looked_for() {
        let schema =
            json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"minimum": 3}]}});
        let schema = Schema::compile(&schema, EmptyArray::Array).unwrap();
        let told = |count: usize| {
            let text = format!("[{}]", vec!["1"; count].join(","));
            schema.told(&parse(text.as_bytes(), &Limits::default()).unwrap()).unwrap()
        };
        assert_eq!(told(TOLD_VALUES_MAX - 1).len(), TOLD_MAX);
        let huge = told(TOLD_VALUES_MAX);
        assert_eq!(huge.len(), 1);
        assert!(huge[0].starts_with("/: not valid, and too large"), "{huge:?}");
    }
}
