//! Compact JSON output in insertion order, for replies and receipts.

use super::escape::quote;
use super::float;
use super::object::Object;
use super::value::Value;

/// Appends `value` to `out` as compact JSON: entries in insertion order, text outside ASCII raw,
/// floats as CPython writes them.
///
/// Writing cannot fail: a float that is not finite, which only code can make, is written as `null`.
pub fn write(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::Int(digits) => out.extend_from_slice(digits.as_bytes()),
        Value::Float(number) => {
            if !float::write_repr(*number, out) {
                out.extend_from_slice(b"null");
            }
        }
        Value::String(text) => quote(text, out),
        Value::Array(elements) => {
            let mut before = b'[';
            for element in elements {
                out.push(before);
                write(element, out);
                before = b',';
            }
            close(before, b"[]", out);
        }
        Value::Object(object) => write_object(object, out),
    }
}

/// Appends `object` to `out`, as [`write()`] does.
pub fn write_object(object: &Object<'_>, out: &mut Vec<u8>) {
    let mut before = b'{';
    for (key, value) in object {
        out.push(before);
        quote(key, out);
        out.push(b':');
        write(value, out);
        before = b',';
    }
    close(before, b"{}", out);
}

/// Ends an array or object; one without elements has not been opened yet.
pub(super) fn close(before: u8, brackets: &[u8; 2], out: &mut Vec<u8>) {
    if before == brackets[0] {
        out.push(brackets[0]);
    }
    out.push(brackets[1]);
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, parse};
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut out = Vec::new();
        write(&parse(text.as_bytes(), &Limits::default()).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reply_keeps_the_order_it_was_built_in() {
        assert_eq!(
            rewritten("{ \"b\" : [ ] , \"a\" : { } , \"b\" : [ 1 , { \"é\\u0007\" : -0.0 } ] }"),
            "{\"b\":[],\"a\":{},\"b\":[1,{\"é\\u0007\":-0.0}]}"
        );
    }

    #[test]
    fn a_float_that_is_not_finite_is_written_as_null() {
        let mut out = Vec::new();
        write(&vec![f64::NAN, 1.0].into(), &mut out);
        assert_eq!(out, b"[null,1.0]");
    }
}
