//! Adapter that lets the schema validator read our own JSON values in place, without a copy of the
//! event.
//!
//! Invariant: if configured, an empty array matches both `type: object` and `type: array`. That is
//! how PHP's `[]` counts as `{}` at every level, in exactly the places where a schema expects an
//! object.
//!
//! All contracts share one representation on purpose: the validator is compiled anew for each.

use std::borrow::Cow;
use std::collections::HashSet;
use std::slice;

use admit_core::json::{self, Form, Value};
use jsonschema::JsonType;
use jsonschema::json::{self as theirs, Json, JsonNumber, NodeIdentity, cmp};

use super::EmptyArray;
use super::meter::{charge, charge_key, charge_text};

/// JSON representation for the validator: [`json::Value`]. Objects must not repeat a key; see
/// [`without_shadowed`](super::repeated_keys::without_shadowed).
pub(crate) struct AdmitJson;

/// Value, and how to read an empty array.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    pub(super) value: &'a Value<'a>,
    pub(super) empty: EmptyArray,
}

/// Errors are reported by path and rule, never by value, so they need no copy of the instance.
/// Comparisons, the other use of a copy, work without it.
static NO_INSTANCE: serde_json::Value = serde_json::Value::Null;

impl Json for AdmitJson {
    type Node<'a> = Node<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(_buffer: &mut (), string: &str, f: impl FnOnce(Node<'_>) -> T) -> T {
        f(Node { value: &Value::from(string), empty: EmptyArray::Array })
    }
}

impl<'a> theirs::Node<'a, AdmitJson> for Node<'a> {
    type Object = NodeObject<'a>;
    type Array = Array<'a>;
    type Number = Number<'a>;

    fn as_object(&self) -> Option<NodeObject<'a>> {
        charge(1);
        let object = self.empty.object(self.value)?;
        Some(NodeObject { object, empty: self.empty })
    }

    fn as_array(&self) -> Option<Array<'a>> {
        charge(1);
        Some(Array { elements: self.value.as_array()?, empty: self.empty })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.value.as_str();
        charge_text(text.unwrap_or_default());
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<Number<'a>> {
        charge(1);
        self.is_number().then_some(Number(self.value))
    }

    fn as_boolean(&self) -> Option<bool> {
        charge(1);
        self.value.as_bool()
    }

    fn is_null(&self) -> bool {
        charge(1);
        self.value.is_null()
    }

    fn is_number(&self) -> bool {
        charge(1);
        matches!(self.value, Value::Int(_) | Value::Float(_))
    }

    fn is_string(&self) -> bool {
        charge(1);
        matches!(self.value, Value::String(_))
    }

    fn json_type(&self) -> JsonType {
        charge(1);
        match self.value {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Int(_) | Value::Float(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &serde_json::Value) -> bool {
        charge(1);
        equal(self.value, expected)
    }

    fn to_value(&self) -> Cow<'a, serde_json::Value> {
        Cow::Borrowed(&NO_INSTANCE)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.value).addr()))
    }
}

/// Bytes of the normal form of a value that count as one step.
const BYTES_PER_STEP: usize = 16;

/// Members of an object that a lookup passes in one step.
const MEMBERS_PER_STEP: usize = 16;

fn per_step(normal_form: &[u8]) -> u64 {
    (normal_form.len() / BYTES_PER_STEP) as u64
}

/// Object, and how to read empty arrays in it.
pub(crate) struct NodeObject<'a> {
    object: &'a json::Object<'a>,
    empty: EmptyArray,
}

impl<'a> theirs::Object<'a, AdmitJson> for NodeObject<'a> {
    type Node = Node<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.object.len()
    }

    fn get(&self, key: &String) -> Option<Node<'a>> {
        // A lookup scans the members.
        charge(1 + (self.object.len() / MEMBERS_PER_STEP) as u64);
        Some(Node { value: self.object.get(key)?, empty: self.empty })
    }

    fn members(&self) -> Members<'a> {
        Members { members: self.object.iter(), empty: self.empty }
    }
}

/// Members of an object.
pub(crate) struct Members<'a> {
    members: json::Iter<'a, 'a>,
    empty: EmptyArray,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let Some((name, value)) = self.members.next() else {
            charge(1);
            return None;
        };
        charge_key(name);
        Some((name, Node { value, empty: self.empty }))
    }
}

/// Array, and how to read empty arrays in it.
pub(crate) struct Array<'a> {
    elements: &'a [Value<'a>],
    empty: EmptyArray,
}

impl<'a> theirs::Array<'a, AdmitJson> for Array<'a> {
    type Node = Node<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.elements.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements { elements: self.elements.iter(), empty: self.empty }
    }

    fn is_unique(&self) -> bool {
        let mut seen = HashSet::with_capacity(self.elements.len());
        self.elements.iter().all(|element| {
            let normal_form = normal_form(element);
            charge(1 + per_step(&normal_form));
            seen.insert(normal_form)
        })
    }
}

/// Elements of an array.
pub(crate) struct Elements<'a> {
    elements: slice::Iter<'a, Value<'a>>,
    empty: EmptyArray,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        charge(1);
        let value = self.elements.next()?;
        Some(Node { value, empty: self.empty })
    }
}

/// Value that is known to be a number.
pub(crate) struct Number<'a>(&'a Value<'a>);

impl JsonNumber for Number<'_> {
    fn as_u64(&self) -> Option<u64> {
        self.0.as_u64()
    }

    fn as_i64(&self) -> Option<i64> {
        self.0.as_i64()
    }

    fn as_f64(&self) -> Option<f64> {
        self.0.as_f64()
    }

    fn as_str(&self) -> Cow<'_, str> {
        match self.0 {
            Value::Int(digits) => Cow::Borrowed(digits),
            Value::Float(number) => Cow::Owned(number.to_string()),
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Cow::Borrowed("0"),
        }
    }

    fn to_number(&self) -> Cow<'_, serde_json::Number> {
        Cow::Owned(to_number(self.0))
    }

    fn is_integer(&self) -> bool {
        match self.0 {
            Value::Float(number) => number.fract() == 0.0,
            Value::Int(_)
            | Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => true,
        }
    }
    fn is_written_as_integer(&self) -> bool {
        matches!(self.0, Value::Int(_))
    }
}

/// Whether a value equals a value in a schema, without a copy of it.
fn equal(value: &Value<'_>, expected: &serde_json::Value) -> bool {
    use serde_json::Value as Named;
    match (value, expected) {
        (Value::Null, Named::Null) => true,
        (Value::Bool(value), Named::Bool(expected)) => value == expected,
        (Value::String(text), Named::String(expected)) => text == expected,
        (Value::Int(_) | Value::Float(_), Named::Number(_)) => {
            cmp::equal(&to_number(value).into(), expected)
        }
        (Value::Array(elements), Named::Array(expected)) => {
            elements.len() == expected.len()
                && elements.iter().zip(expected).all(|(value, expected)| equal(value, expected))
        }
        (Value::Object(object), Named::Object(expected)) => {
            let named = |(key, value)| expected.get(key).is_some_and(|named| equal(value, named));
            object.len() == expected.len() && object.iter().all(named)
        }
        _ => false,
    }
}

/// Normal form: equal for values that JSON Schema calls equal, and for no others.
fn normal_form(value: &Value<'_>) -> Vec<u8> {
    json::canonical(&with_whole_numbers(value), Form::Utf8).expect("what was read is finite")
}

/// Replaces floats such as `1.0` by the integer `1`.
fn with_whole_numbers<'a>(value: &Value<'a>) -> Value<'a> {
    match value {
        Value::Float(0.0) => 0.into(),
        Value::Float(number) if number.fract() == 0.0 => Value::Int(format!("{number:.0}").into()),
        Value::Array(elements) => Value::Array(elements.iter().map(with_whole_numbers).collect()),
        Value::Object(object) => {
            let members = object.iter();
            let whole = members.map(|(key, value)| (key.to_owned(), with_whole_numbers(value)));
            Value::Object(whole.collect())
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_) => {
            value.clone()
        }
    }
}

/// Nearest number that the other library can represent.
fn to_number(value: &Value<'_>) -> serde_json::Number {
    let exact = value.as_u64().map(Into::into).or_else(|| value.as_i64().map(Into::into));
    exact
        .or_else(|| serde_json::Number::from_f64(value.as_f64()?.clamp(f64::MIN, f64::MAX)))
        .unwrap_or_else(|| 0.into())
}

/// Copy of a schema for the other library. Numbers it cannot represent become the nearest it can.
pub(crate) fn to_serde(value: &Value<'_>) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(_) | Value::Float(_) => to_number(value).into(),
        Value::String(text) => text.as_ref().into(),
        Value::Array(elements) => elements.iter().map(to_serde).collect(),
        Value::Object(object) => object.iter().map(|(key, value)| (key, to_serde(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::CompiledSchema;
    use super::*;

    fn valid_if(empty: EmptyArray, schema: &serde_json::Value, text: &str) -> bool {
        let schema = CompiledSchema::compile(schema, empty).unwrap();
        schema.violations(&parse(text.as_bytes(), &Limits::default()).unwrap()).is_none()
    }

    /// Validates with PHP's empty arrays.
    fn valid(schema: &serde_json::Value, text: &str) -> bool {
        valid_if(EmptyArray::ArrayOrObject, schema, text)
    }

    #[test]
    fn an_empty_array_is_valid_where_an_object_is_expected_and_where_an_array_is() {
        let object = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let array = json!({"type": "array", "items": {"type": "object"}});
        for text in ["[]", "{}", r#"{"a":[]}"#, r#"{"a":{}}"#] {
            assert!(valid(&object, text), "{text}");
        }
        for text in ["[1]", r#"{"a":[1]}"#, "null", "\"\""] {
            assert!(!valid(&object, text), "{text}");
        }
        for text in ["[]", "[[]]", "[{}]"] {
            assert!(valid(&array, text), "{text}");
        }
        for text in ["{}", "[[1]]", "[1]"] {
            assert!(!valid(&array, text), "{text}");
        }
        assert!(!valid(&json!({"type": "object", "required": ["a"]}), "[]"));
        assert!(valid(&json!({"type": "object", "additionalProperties": false}), "[]"));
    }

    #[test]
    fn numbers_follow_json_schema() {
        let integer = json!({"type": "integer", "minimum": 1});
        for text in ["1", "1.0", "1e300", "99999999999999999999999999", &"9".repeat(4000)] {
            assert!(valid(&integer, text), "{text}");
        }
        for text in ["0", "0.0", "1.5", "-1", "-99999999999999999999999", "\"1\"", "true"] {
            assert!(!valid(&integer, text), "{text}");
        }
        let ratio = json!({"type": "number", "minimum": 0, "maximum": 1});
        for text in ["0", "1", "0.25", "1.0", "-0.0"] {
            assert!(valid(&ratio, text), "{text}");
        }
        assert!(!valid(&ratio, "1.01"));
        assert!(valid(&json!({"const": 1}), "1.0"));
        assert!(valid(&json!({"enum": [null, [1]]}), "[1]"));
        assert!(valid(&json!({"uniqueItems": true}), "[1,2]"));
        assert!(!valid(&json!({"uniqueItems": true}), "[1,1.0]"));
        assert!(!valid(&json!({"uniqueItems": true}), r#"[{"a":0,"b":-0.0},{"b":0,"a":0}]"#));
        let neighbours = "[18446744073709551616,18446744073709551617]";
        assert!(valid(&json!({"uniqueItems": true}), neighbours));
    }

    #[test]
    fn by_default_an_empty_array_is_not_an_object() {
        let object = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        for text in ["[]", r#"{"a":[]}"#] {
            assert!(!valid_if(EmptyArray::Array, &object, text), "{text}");
        }
        assert!(valid_if(EmptyArray::Array, &object, r#"{"a":{}}"#));
        assert!(valid_if(EmptyArray::Array, &json!({"type": "array"}), "[]"));
    }

    #[test]
    fn in_draft_4_an_integer_is_written_as_one() {
        let draft = "http://json-schema.org/draft-04/schema#";
        let schema = json!({"$schema": draft, "type": "integer"});
        assert!(valid(&schema, "1") && valid(&schema, &"9".repeat(40)));
        assert!(!valid(&schema, "1.0") && !valid(&schema, "1e2"));
    }

    #[test]
    fn of_repeated_keys_the_last_is_validated() {
        let schema = json!({"properties": {"a": {"type": "integer"}}, "maxProperties": 1});
        assert!(valid(&schema, r#"{"a":"x","a":1}"#));
        assert!(!valid(&schema, r#"{"a":1,"a":"x"}"#));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|value| json!(value)),
            (-3i64..3).prop_map(|value| json!(value)),
            prop_oneof![Just(0.5), Just(1.0), Just(-1.0)].prop_map(|value| json!(value)),
            "[ab]{0,2}".prop_map(|value| json!(value)),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|values| json!(values)),
                prop::collection::btree_map("[ab]{1,2}", inner, 0..4)
                    .prop_map(|values| json!(values)),
            ]
        })
    }

    /// Schemas that together use most of the keywords.
    fn schemas() -> Vec<serde_json::Value> {
        vec![
            json!({
                "$defs": {"node": {
                    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/node"}},
                    "required": ["a"],
                    "additionalProperties": {"anyOf": [{"type": ["string", "null"]}, {"const": 1}]},
                    "items": {"enum": ["a", 1, null, {"a": 1}]},
                    "minLength": 1,
                    "minimum": 0
                }},
                "$ref": "#/$defs/node"
            }),
            json!({"type": ["array", "number"], "uniqueItems": true, "multipleOf": 0.5, "exclusiveMaximum": 1}),
            json!({"prefixItems": [{"type": "string"}], "unevaluatedItems": {"type": "number"}, "maxItems": 2}),
            json!({"contains": {"const": 1}, "minContains": 1, "maxContains": 1, "maximum": 0.5}),
            json!({"propertyNames": {"maxLength": 1}, "minProperties": 1, "patternProperties": {"^a": {"not": {"type": "null"}}}}),
            json!({"properties": {"a": true}, "unevaluatedProperties": {"type": "boolean"}, "exclusiveMinimum": -1}),
            json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"maxProperties": 1}}, "pattern": "^a"}),
            json!({"if": {"type": "object"}, "then": {"required": ["a"]}, "else": {"oneOf": [{"minItems": 1}, {"type": "number"}]}}),
            json!({"const": [{"a": 1.0}]}),
            json!({"allOf": [{"type": "array"}, {"enum": [[], [0], [[]], [{}]]}]}),
        ]
    }

    proptest! {
        /// The validator must return the same for our values as for its own.
        #[test]
        fn our_values_validate_like_the_validators_own(value in any_json()) {
            for schema in schemas() {
                let theirs = jsonschema::validator_for(&schema).unwrap();
                let ours = valid_if(EmptyArray::Array, &schema, &value.to_string());
                prop_assert_eq!(ours, theirs.is_valid(&value), "{} by {}", value, schema);
            }
        }
    }
}
