//! Conversions from Rust types to JSON values, for replies and receipts.

use std::borrow::Cow;

use super::object::Object;
use super::value::Value;

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::String(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
}

impl<'a> From<Cow<'a, str>> for Value<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl<'a> From<Object<'a>> for Value<'a> {
    fn from(object: Object<'a>) -> Self {
        Self::Object(object)
    }
}

impl<'a, T: Into<Value<'a>>> From<Vec<T>> for Value<'a> {
    fn from(elements: Vec<T>) -> Self {
        elements.into_iter().collect()
    }
}

/// `None` is `null`.
impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a, T: Into<Value<'a>>> FromIterator<T> for Value<'a> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self::Array(elements.into_iter().map(Into::into).collect())
    }
}

macro_rules! from_integers {
    ($($integer:ty)*) => {$(
        impl From<$integer> for Value<'_> {
            fn from(number: $integer) -> Self {
                Self::Int(Cow::Owned(number.to_string()))
            }
        }
    )*};
}

from_integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    #[test]
    fn a_reply_is_built_from_plain_rust_values() {
        let reply = Object::from_iter([
            ("status", "accepted".into()),
            ("seq", 7u64.into()),
            ("lag", (-1).into()),
            ("error", None::<&str>.into()),
            ("rate", 0.5.into()),
            ("tags", vec!["a", "b"].into()),
            ("nested", Object::from_iter([("ok".to_owned(), true.into())]).into()),
        ]);
        let mut out = Vec::new();
        write(&reply.into(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"status":"accepted","seq":7,"lag":-1,"error":null,"rate":0.5,"tags":["a","b"],"nested":{"ok":true}}"#
        );
    }
}
