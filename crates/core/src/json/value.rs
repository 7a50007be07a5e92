//! A JSON value that borrows its text from the bytes it was read from.

use std::borrow::Cow;

use super::object::Object;

/// Any JSON value.
///
/// Integers keep their exact digits, so no two of them ever become one. An integer is what CPython
/// makes an `int` of: a number without a point and without an exponent.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value<'a> {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// The decimal digits of an integer of any size, with `-` in front when it is negative.
    /// Zero is `0`, never `-0`. Code that builds one goes through `From`, which keeps that form.
    Int(Cow<'a, str>),
    /// A number with a point or an exponent. [`parse`](super::parse()) makes only finite ones.
    Float(f64),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Value<'a>>),
    /// An object.
    Object(Object<'a>),
}

impl<'a> Value<'a> {
    /// JSON Schema type name.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "number",
            Self::String(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Whether this is `null`.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether this is an object.
    pub const fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// A boolean.
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// An integer that fits. `1.0` is not an integer.
    pub fn as_i64(&self) -> Option<i64> {
        if let Self::Int(digits) = self { digits.parse().ok() } else { None }
    }

    /// A non-negative integer that fits. `1.0` is not an integer.
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::Int(digits) = self { digits.parse().ok() } else { None }
    }

    /// The nearest double of a number of either kind. An integer too large for one is infinite.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(digits) => digits.parse().ok(),
            Self::Float(number) => Some(*number),
            Self::Null | Self::Bool(_) | Self::String(_) | Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Value<'a>]> {
        if let Self::Array(elements) = self { Some(elements) } else { None }
    }

    /// An object.
    pub const fn as_object(&self) -> Option<&Object<'a>> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    /// The value under `name`, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.as_object()?.get(name)
    }

    /// The value a JSON pointer (RFC 6901) leads to: `""` is this value, `"/pins/0/seed"` goes
    /// down by key and index, `~1` stands for `/` and `~0` for `~` in a key.
    pub fn pointer(&self, pointer: &str) -> Option<&Value<'a>> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, |value, step| match value {
            Self::Object(object) if step.contains('~') => {
                object.get(&step.replace("~1", "/").replace("~0", "~"))
            }
            Self::Object(object) => object.get(step),
            Self::Array(elements) => elements.get(array_index(step)?),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::String(_) => None,
        })
    }

    /// The same value, owning its text.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(digits) => Value::Int(Cow::Owned(digits.into_owned())),
            Self::Float(number) => Value::Float(number),
            Self::String(text) => Value::String(Cow::Owned(text.into_owned())),
            Self::Array(elements) => {
                Value::Array(elements.into_iter().map(Value::into_owned).collect())
            }
            Self::Object(object) => Value::Object(object.into_owned()),
        }
    }
}

/// An index as RFC 6901 writes it: digits, no sign, no leading zero.
fn array_index(step: &str) -> Option<usize> {
    let plain = step.bytes().all(|byte| byte.is_ascii_digit());
    let padded = step.len() > 1 && step.starts_with('0');
    if plain && !padded { step.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, parse};
    use super::*;

    fn read(text: &str) -> Value<'_> {
        parse(text.as_bytes(), &Limits::default()).unwrap()
    }

    #[test]
    fn a_pointer_follows_keys_and_indexes() {
        let value = read(r#"{"a":[{"b":1},2],"":3,"x/y":4,"~1":5}"#);
        let found = |pointer| value.pointer(pointer).and_then(Value::as_i64);
        assert_eq!(found("/a/0/b"), Some(1));
        assert_eq!(found("/a/1"), Some(2));
        assert_eq!(found("/"), Some(3));
        assert_eq!(found("/x~1y"), Some(4));
        assert_eq!(found("/~01"), Some(5));
        assert_eq!(value.pointer(""), Some(&value));
        for nowhere in ["a", "/a/2", "/a/01", "/a/+1", "/a/", "/a/0/b/c", "/z"] {
            assert_eq!(value.pointer(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn an_integer_is_read_only_where_it_fits() {
        assert_eq!(read("9223372036854775807").as_i64(), Some(i64::MAX));
        assert_eq!(read("9223372036854775808").as_i64(), None);
        assert_eq!(read("18446744073709551615").as_u64(), Some(u64::MAX));
        assert_eq!(read("-1").as_u64(), None);
        assert_eq!(read("-0").as_u64(), Some(0));
        assert_eq!(read("1.0").as_i64(), None);
        assert_eq!(read("12").as_f64(), Some(12.0));
        assert_eq!(read("1.5").as_f64(), Some(1.5));
    }

    #[test]
    fn kinds_are_named_as_json_schema_names_them() {
        let kinds = ["null", "true", "1", "1.0", r#""""#, "[]", "{}"].map(|text| read(text).kind());
        assert_eq!(kinds, ["null", "boolean", "integer", "number", "string", "array", "object"]);
    }

    #[test]
    fn an_owned_value_is_the_same_value() {
        let text = r#"{"a":[1,2.5,"x",null,true],"b":{"c":"\n"}}"#;
        assert_eq!(read(text).into_owned(), read(text));
    }
}
