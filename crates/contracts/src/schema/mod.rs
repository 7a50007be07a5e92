//! Validates values against JSON Schemas; violations do not repeat the values.

mod cost;
pub(crate) mod meter;
mod node;
mod pattern;
mod repeated_keys;

use std::fmt;

use admit_core::json::{Object, Value};
use jsonschema::{PatternOptions, Validator};

use crate::text::{VIOLATION_CHARS_MAX, bounded};
use cost::Costs;
use repeated_keys::without_shadowed;

pub(crate) use meter::CheckAborted;
pub(crate) use node::{AdmitJson, Node, to_serde};

/// Maximum number of violations reported.
const VIOLATIONS_MAX: usize = 20;

/// An event of more values than this is only reported as invalid: the validator collects every
/// violation before it returns the first, and a hostile event has one for each of its values.
const LISTED_VALUES_MAX: usize = 2_048;

/// Largest compiled pattern, in bytes: room for a hundred letters of any script, `\p{L}{1,100}`.
const PATTERN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum memory for the combinations of states of one pattern, in bytes per thread.
const PATTERN_CACHE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Interpretation of an empty array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyArray {
    /// An array only.
    Array,
    /// Also an empty object, which PHP writes as `[]`.
    ArrayOrObject,
}

/// Object that an empty array is read as where it may be one.
static EMPTY: Object<'static> = Object::new();

impl EmptyArray {
    /// Returns `value` as an object, where one is expected.
    pub(crate) fn object<'v, 'a>(self, value: &'v Value<'a>) -> Option<&'v Object<'a>> {
        let is_empty_map =
            self == Self::ArrayOrObject && value.as_array().is_some_and(<[_]>::is_empty);
        if is_empty_map { Some(&EMPTY) } else { value.as_object() }
    }
}

/// Compiled schema.
pub(crate) struct CompiledSchema {
    validator: Validator<AdmitJson>,
    empty: EmptyArray,
    costs: Costs,
}

impl fmt::Debug for CompiledSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledSchema").field("empty", &self.empty).finish_non_exhaustive()
    }
}

impl CompiledSchema {
    /// Compiles a schema.
    ///
    /// Patterns are matched in time linear to the text. Unsupported (look-around, back-references)
    /// and too large patterns are errors that name the pattern and its location.
    pub(crate) fn compile(schema: &serde_json::Value, empty: EmptyArray) -> Result<Self, String> {
        let patterns = PatternOptions::regex()
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_CACHE_BYTES_MAX);
        let validator = jsonschema::options_for::<AdmitJson>()
            .with_pattern_options(patterns)
            .with_format("regex", pattern::is_regex)
            .build(schema);
        let validator = validator.map_err(|error| pattern::message(&error))?;
        Ok(Self { validator, empty, costs: Costs::of(schema) })
    }

    /// Calls `inspect` on a value that is invalid. `None` if it is valid.
    ///
    /// # Errors
    /// If the check was too costly, or the validator panicked.
    pub(crate) fn when_invalid<T>(
        &self,
        value: &Value<'_>,
        inspect: impl FnOnce(&Validator<AdmitJson>, Node<'_>) -> T,
    ) -> Result<Option<T>, CheckAborted> {
        let unshadowed = without_shadowed(value);
        let node = Node { value: unshadowed.as_ref().unwrap_or(value), empty: self.empty };
        meter::at(self.costs, || {
            let sized = || steps_of(value, self.costs);
            if meter::check(sized, || self.validator.is_valid(node))? {
                return Ok(None);
            }
            meter::details(|| inspect(&self.validator, node)).map(Some)
        })
    }

    /// Returns the first few violations of an invalid value. They may contain the sender's own
    /// values; a message that repeats them may be logged.
    pub(crate) fn violations(&self, value: &Value<'_>) -> Option<Vec<String>> {
        let violations = self.when_invalid(value, |validator, node| {
            let mut left = LISTED_VALUES_MAX;
            if !has_at_most(value, &mut left) {
                let text = "invalid; too large to list the violations";
                return vec![format!("/: {text} (more than {LISTED_VALUES_MAX} values)")];
            }
            let errors = validator.iter_errors(node).take(VIOLATIONS_MAX);
            errors
                .map(|error| {
                    let path = error.instance_path().as_str();
                    let path = if path.is_empty() { "/" } else { path };
                    bounded(&format!("{path}: {}", error.masked()), VIOLATION_CHARS_MAX)
                })
                .collect()
        });
        violations.unwrap_or_else(|stopped| Some(vec![format!("/: {}", stopped.message())]))
    }
}

/// Steps that the check of a value may take for its size, including all nested values.
fn steps_of(value: &Value<'_>, costs: Costs) -> u64 {
    let looks = |steps: u64| steps.saturating_mul(meter::READS_PER_TEXT);
    let inside = match value {
        Value::String(text) => looks(costs.text.steps(text.len())),
        Value::Array(elements) => {
            elements.iter().map(|value| steps_of(value, costs)).fold(0, u64::saturating_add)
        }
        Value::Object(object) => {
            let member = |(key, value): (&str, &Value<'_>)| {
                looks(costs.key.steps(key.len())).saturating_add(steps_of(value, costs))
            };
            object.iter().map(member).fold(0, u64::saturating_add)
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
    };
    inside.saturating_add(meter::STEPS_PER_VALUE)
}

/// Whether a value contains at most `left` values, itself included; counts down.
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
    fn the_violations_of_a_huge_event_are_not_listed() {
        let schema =
            json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"minimum": 3}]}});
        let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
        let violations = |count: usize| {
            let text = format!("[{}]", vec!["1"; count].join(","));
            schema.violations(&parse(text.as_bytes(), &Limits::default()).unwrap()).unwrap()
        };
        assert_eq!(violations(LISTED_VALUES_MAX - 1).len(), VIOLATIONS_MAX);
        let huge = violations(LISTED_VALUES_MAX);
        assert_eq!(huge.len(), 1);
        assert!(huge[0].starts_with("/: invalid; too large"), "{huge:?}");
    }
    fn read(text: &str) -> Value<'_> {
        parse(text.as_bytes(), &Limits::default()).unwrap()
    }

    #[test]
    fn a_pattern_that_takes_more_than_linear_time_is_refused_with_its_location() {
        for (pattern, at) in [
            (r"^(?=.*[0-9]).+$", "/properties/a/pattern"),
            (r"^(?!x)(a|b)*$", "/properties/a/pattern"),
            (r"(?<=a)b", "/properties/a/pattern"),
            (r"^(a+)\1$", "/properties/a/pattern"),
        ] {
            for draft in [
                "http://json-schema.org/draft-07/schema#",
                "https://json-schema.org/draft/2020-12/schema",
            ] {
                let schema = json!({"$schema": draft, "properties": {"a": {"pattern": pattern}}});
                let error = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap_err();
                let named = error.contains(&format!("{pattern:?}")) && error.contains(at);
                assert!(named && error.contains("look-around"), "{error}");
            }
        }
        let keys = json!({"patternProperties": {"^(?!x)": {}}});
        let error = CompiledSchema::compile(&keys, EmptyArray::Array).unwrap_err();
        assert!(error.contains("^(?!x)") && error.contains("/patternProperties"), "{error}");
        let broken = json!({"pattern": "("});
        assert!(CompiledSchema::compile(&broken, EmptyArray::Array).unwrap_err().contains("\"(\""));
    }

    #[test]
    fn supported_ecmascript_patterns_match_as_before() {
        for (pattern, good, bad) in [
            (r"^\d{3}$", "123", "12a"),
            (r"^\w+$", "a_1", "é"),
            (r"^\S+$", "ab", "a b"),
            (r"^[\p{L}]+$", "é", "1"),
            (r"^(?<year>\d{4})-\d\d$", "2026-11", "26-11"),
            ("^(a+)+$", "aaaa", "aaab"),
        ] {
            let schema =
                CompiledSchema::compile(&json!({"pattern": pattern}), EmptyArray::Array).unwrap();
            assert_eq!(schema.violations(&Value::from(good)), None, "{pattern}");
            assert!(schema.violations(&Value::from(bad)).is_some(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_would_backtrack_forever_is_decided_at_once() {
        let schema = json!({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"});
        let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
        let text = "a".repeat(1024 * 1024);
        assert!(schema.violations(&Value::from(text.as_str())).is_some());
    }

    #[test]
    fn a_match_counts_as_the_length_of_the_text_times_the_size_of_the_pattern() {
        let wide = "^([ab]*a[ab]{600}c)?$";
        let random: String = (0..600_u32).map(|n| if n % 7 < 3 { 'a' } else { 'b' }).collect();
        let over = "ab".repeat(200_000);
        for (schema, text, longer) in [
            (json!({"items": {"pattern": wide}}), format!("[{random:?}]"), format!("[{over:?}]")),
            (
                json!({"patternProperties": {wide: {}}}),
                format!("{{{random:?}:0}}"),
                format!("{{{over:?}:0}}"),
            ),
            (
                json!({"propertyNames": {"maxLength": 1_000_000, "not": {"pattern": wide}}}),
                format!("{{{random:?}:0}}"),
                format!("{{{over:?}:0}}"),
            ),
        ] {
            let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
            let (text, longer) = (read(&text), read(&longer));
            let mut budget = meter::Budget::of_request();
            let inline = meter::within(&mut budget, || schema.violations(&text));
            assert_eq!(inline, None, "a check that takes long leaves the serving thread");
            drop(schema.violations(&text));
            let violations = schema.violations(&longer).unwrap();
            assert!(violations[0].contains("check aborted"), "{violations:?}");
        }
    }

    #[test]
    fn a_long_text_that_a_simple_pattern_matches_is_valid() {
        let schema = json!({"properties": {"a": {"pattern": "^[A-Za-z0-9+/]*={0,2}$"}}});
        let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
        let text = format!(r#"{{"a":{:?}}}"#, "ab".repeat(500_000));
        assert_eq!(schema.violations(&read(&text)), None);
    }

    #[test]
    fn a_pattern_that_is_too_large_is_refused_with_its_location() {
        for pattern in ["([ab]{1000}){1000}", r"^\p{L}{1,220}$"] {
            let schema = json!({"properties": {"a": {"pattern": pattern}}});
            let error = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap_err();
            let named = error.contains(&format!("{pattern:?}"));
            assert!(named && error.contains("/properties/a/pattern"), "{error}");
        }
        let names = json!({"pattern": r"^[\p{L} ]{1,90}$"});
        assert!(CompiledSchema::compile(&names, EmptyArray::Array).is_ok());
    }

    /// Twice the work for each level of the event.
    fn doubling() -> CompiledSchema {
        let branch = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}});
        let schema = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"oneOf": [
                {"allOf": [branch, {"required": ["x"]}]},
                {"allOf": [branch, {"required": ["y"]}]},
                {"type": "string"}
            ]}}
        });
        CompiledSchema::compile(&schema, EmptyArray::Array).unwrap()
    }

    #[test]
    fn a_check_that_grows_with_the_power_of_the_event_ends_in_a_violation() {
        let text = format!("{}1{}", r#"{"x":0,"y":0,"a":"#.repeat(100), "}".repeat(100));
        let violations = doubling().violations(&read(&text)).unwrap();
        assert!(!violations.is_empty() && violations.len() <= VIOLATIONS_MAX, "{violations:?}");
    }

    #[test]
    fn a_request_that_exceeds_the_budget_is_returned() {
        let schema = json!({"items": {"enum": [1, 2, 3]}});
        let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
        let small = read("[1,2]");
        let long = format!("[{}1]", "1,".repeat(100_000));
        let long = read(&long);
        let mut budget = meter::Budget::of_request();
        assert_eq!(meter::within(&mut budget, || schema.violations(&small)), Some(None));
        assert_eq!(meter::within(&mut budget, || schema.violations(&long)), None);
        assert_eq!(
            schema.violations(&long),
            None,
            "with its own allowance it is checked to the end"
        );
    }

    #[test]
    fn an_expression_with_many_group_names_in_an_event_ends_the_check() {
        let draft = "http://json-schema.org/draft-07/schema#";
        let schema = json!({"$schema": draft, "items": {"format": "regex"}});
        let schema = CompiledSchema::compile(&schema, EmptyArray::Array).unwrap();
        assert_eq!(schema.violations(&read(r#"["^a+$", "(?=a)b", "(a)\\1"]"#)), None);
        assert!(schema.violations(&read(r#"["("]"#)).is_some());
        let names: String = (0..50_000).map(|n| format!("(?<a{n}>b)")).collect();
        let violations = schema.violations(&read(&format!("[{names:?}]")));
        assert!(violations.is_some_and(|violations| violations[0].contains("check aborted")));
    }
}
