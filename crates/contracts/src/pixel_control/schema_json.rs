//! Lets the schema validator read our own JSON values in place, without a copy of the event.
//!
//! Invariant: an empty array answers to both `type: object` and `type: array`. That is how `[]`
//! counts as `{}` at every level, in exactly the places where a schema expects an object.

use std::borrow::Cow;

use admit_core::json::{self, Value};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, JsonNumber, Node, NodeIdentity, Object, cmp, unique};

use super::php;

/// The representation: [`json::Value`] as PHP means it.
///
/// Objects must not repeat a key; see [`php::without_shadowed`].
pub(super) struct PhpJson;

/// Errors are told by path and rule, never by value, so none needs a copy of what it is about.
/// Comparisons, the other use of a copy, are answered without it.
static NO_INSTANCE: serde_json::Value = serde_json::Value::Null;

impl Json for PhpJson {
    type Node<'a> = &'a Value<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        _buffer: &mut (),
        string: &str,
        f: impl FnOnce(Self::Node<'_>) -> T,
    ) -> T {
        f(&Value::from(string))
    }
}

impl<'a> Node<'a, PhpJson> for &'a Value<'a> {
    type Object = &'a json::Object<'a>;
    type Array = &'a [Value<'a>];
    type Number = Number<'a>;

    fn as_object(&self) -> Option<Self::Object> {
        php::object(self)
    }

    fn as_array(&self) -> Option<Self::Array> {
        Value::as_array(self)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        Value::as_str(self).map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<Number<'a>> {
        self.is_number().then_some(Number(self))
    }

    fn as_boolean(&self) -> Option<bool> {
        self.as_bool()
    }

    fn is_null(&self) -> bool {
        Value::is_null(self)
    }

    fn is_number(&self) -> bool {
        matches!(self, Value::Int(_) | Value::Float(_))
    }

    fn is_string(&self) -> bool {
        matches!(self, Value::String(_))
    }

    fn json_type(&self) -> JsonType {
        match self {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Int(_) | Value::Float(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &serde_json::Value) -> bool {
        match (self, expected) {
            (Value::String(text), serde_json::Value::String(expected)) => text == expected,
            _ => cmp::equal(&to_serde(self), expected),
        }
    }

    fn to_value(&self) -> Cow<'a, serde_json::Value> {
        Cow::Borrowed(&NO_INSTANCE)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Value<'a>>(self).addr()))
    }
}

impl<'a> Object<'a, PhpJson> for &'a json::Object<'a> {
    type Node = &'a Value<'a>;
    type MemberName = &'a str;
    type MembersIter = json::Iter<'a, 'a>;

    fn len(&self) -> usize {
        json::Object::len(self)
    }

    fn get(&self, key: &String) -> Option<Self::Node> {
        json::Object::get(self, key)
    }

    fn members(&self) -> Self::MembersIter {
        self.iter()
    }
}

impl<'a> Array<'a, PhpJson> for &'a [Value<'a>] {
    type Node = &'a Value<'a>;
    type ElementsIter = std::slice::Iter<'a, Value<'a>>;

    fn len(&self) -> usize {
        <[Value<'a>]>::len(self)
    }

    fn elements(&self) -> Self::ElementsIter {
        self.iter()
    }

    fn is_unique(&self) -> bool {
        unique::is_unique(&self.iter().map(to_serde).collect::<Vec<_>>())
    }
}

/// A value that is known to be a number.
pub(super) struct Number<'a>(&'a Value<'a>);

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
}

/// The nearest number the other library can hold.
fn to_number(value: &Value<'_>) -> serde_json::Number {
    let exact = value.as_u64().map(Into::into).or_else(|| value.as_i64().map(Into::into));
    exact
        .or_else(|| serde_json::Number::from_f64(value.as_f64()?.clamp(f64::MIN, f64::MAX)))
        .unwrap_or_else(|| 0.into())
}

/// A copy for the other library; only comparisons with what is not a string need one.
fn to_serde(value: &Value<'_>) -> serde_json::Value {
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

    use super::*;

    fn valid(schema: &serde_json::Value, text: &str) -> bool {
        let validator = jsonschema::options_for::<PhpJson>().build(schema).unwrap();
        validator.is_valid(&parse(text.as_bytes(), &Limits::default()).unwrap())
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
    fn numbers_are_what_json_schema_says_they_are() {
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
                prop::collection::vec(inner.clone(), 1..4).prop_map(|values| json!(values)),
                prop::collection::btree_map("[ab]{1,2}", inner, 0..4)
                    .prop_map(|values| json!(values)),
            ]
        })
    }

    proptest! {
        /// Without empty arrays the validator must say of our values what it says of its own.
        #[test]
        fn our_values_are_judged_like_the_validators_own(value in any_json()) {
            let schema = json!({
                "$defs": {"node": {
                    "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/node"}},
                    "required": ["a"],
                    "additionalProperties": {"anyOf": [{"type": ["string", "null"]}, {"const": 1}]},
                    "items": {"enum": ["a", 1, null, {"a": 1}]},
                    "minLength": 1,
                    "minimum": 0
                }},
                "$ref": "#/$defs/node"
            });
            let theirs = jsonschema::validator_for(&schema).unwrap();
            prop_assert_eq!(valid(&schema, &value.to_string()), theirs.is_valid(&value));
        }
    }
}
