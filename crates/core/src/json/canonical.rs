//! Canonical bytes for keys and digests: one spelling per value.
//!
//! Three forms. `utf8` and `ascii` are CPython's `json.dumps(…, sort_keys=True,
//! separators=(",", ":"))` with `ensure_ascii` off and on: integers of any size are exact, all
//! other numbers are doubles. `jcs` is RFC 8785, for contracts that name it; because it reads every number as a double,
//! it refuses the integers a double might confuse.

use std::cmp::Ordering;

use super::error::CanonicalError;
use super::escape::{quote, quote_ascii};
use super::float;
use super::object::{Object, ObjectEntry};
use super::value::Value;
use super::write::close;

/// The largest integer all of whose neighbours are doubles too (RFC 7493 §2.2): 2^53 - 1. 2^53
/// itself is refused, because 2^53 + 1 reads as the same double.
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// Digits of a rejected integer shown in its error.
const DIGITS_SHOWN_MAX: usize = 40;

/// Which spelling is canonical; a setting of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Keys by code point, text outside ASCII raw, numbers as CPython writes them.
    Utf8,
    /// As [`Form::Utf8`], with 0x7f and everything outside ASCII as `\uXXXX`.
    Ascii,
    /// RFC 8785: keys by UTF-16 code unit, numbers as ECMAScript writes them.
    Jcs,
}

/// Returns the canonical bytes of `value`.
///
/// # Errors
/// See [`canonical_into`].
pub fn canonical(value: &Value<'_>, form: Form) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(512);
    canonical_into(value, form, &mut out)?;
    Ok(out)
}

/// Appends the canonical bytes of `value` to `out`, which is left as it was on an error.
///
/// Of repeated keys the last counts.
///
/// # Errors
/// [`Form::Jcs`] refuses repeated keys and integers beyond ±(2^53 - 1). Every form refuses floats
/// that are not finite, which [`parse`](super::parse()) never makes.
pub fn canonical_into(
    value: &Value<'_>,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<(), CanonicalError> {
    let before = out.len();
    let mut writer = CanonicalWriter { form, out, sorted: Vec::new() };
    let result = writer.value(value);
    if result.is_err() {
        out.truncate(before);
    }
    result
}

struct CanonicalWriter<'v, 'a, 'o> {
    form: Form,
    out: &'o mut Vec<u8>,
    /// The entries of every object now open, each sorted; one list, so that it is allocated once.
    sorted: Vec<&'v ObjectEntry<'a>>,
}

impl<'v, 'a> CanonicalWriter<'v, 'a, '_> {
    fn value(&mut self, value: &'v Value<'a>) -> Result<(), CanonicalError> {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Int(digits) => self.int(digits)?,
            Value::Float(number) => self.float(*number)?,
            Value::String(text) => self.string(text),
            Value::Array(elements) => self.array(elements)?,
            Value::Object(object) => self.object(object)?,
        }
        Ok(())
    }

    fn int(&mut self, digits: &str) -> Result<(), CanonicalError> {
        let safe = |number: i64| number.unsigned_abs() <= SAFE_INTEGER_MAX;
        if self.form == Form::Jcs && !digits.parse().is_ok_and(safe) {
            let digits = digits.chars().take(DIGITS_SHOWN_MAX).collect();
            return Err(CanonicalError::UnsafeInteger { digits });
        }
        self.out.extend_from_slice(digits.as_bytes());
        Ok(())
    }

    fn float(&mut self, number: f64) -> Result<(), CanonicalError> {
        let written = match self.form {
            Form::Utf8 | Form::Ascii => float::write_repr(number, self.out),
            Form::Jcs => float::write_es6(number, self.out),
        };
        if written { Ok(()) } else { Err(CanonicalError::NotFinite) }
    }

    fn string(&mut self, text: &str) {
        match self.form {
            Form::Utf8 | Form::Jcs => quote(text, self.out),
            Form::Ascii => quote_ascii(text, self.out),
        }
    }

    fn array(&mut self, elements: &'v [Value<'a>]) -> Result<(), CanonicalError> {
        let mut before = b'[';
        for element in elements {
            self.out.push(before);
            self.value(element)?;
            before = b',';
        }
        close(before, b"[]", self.out);
        Ok(())
    }

    fn object(&mut self, object: &'v Object<'a>) -> Result<(), CanonicalError> {
        let order = match self.form {
            Form::Utf8 | Form::Ascii => by_code_point,
            Form::Jcs => by_utf16_unit,
        };
        let entries = object.entries();
        let mut before = b'{';
        if entries.is_sorted_by(|a, b| order(&a.0, &b.0) == Ordering::Less) {
            for entry in entries {
                self.entry(entry, &mut before)?;
            }
            close(before, b"{}", self.out);
            return Ok(());
        }
        let start = self.sorted.len();
        self.sorted.extend(entries);
        // Stable, so that of repeated keys the last to appear stays last.
        self.sorted[start..].sort_by(|a, b| order(&a.0, &b.0));
        let end = self.sorted.len();
        for index in start..end {
            let entry = self.sorted[index];
            let repeated = index + 1 < end && self.sorted[index + 1].0 == entry.0;
            if !repeated {
                self.entry(entry, &mut before)?;
            } else if self.form == Form::Jcs {
                return Err(CanonicalError::RepeatedKey { key: entry.0.to_string() });
            }
        }
        self.sorted.truncate(start);
        close(before, b"{}", self.out);
        Ok(())
    }

    fn entry(&mut self, entry: &'v ObjectEntry<'a>, before: &mut u8) -> Result<(), CanonicalError> {
        self.out.push(*before);
        *before = b',';
        self.string(&entry.0);
        self.out.push(b':');
        self.value(&entry.1)
    }
}

/// UTF-8 sorts by code point, so comparing bytes will do.
fn by_code_point(a: &str, b: &str) -> Ordering {
    a.as_bytes().cmp(b.as_bytes())
}

/// Differs from code point order only between U+E000..U+FFFF and what lies above: in UTF-16 the
/// latter starts with a surrogate, which is smaller.
fn by_utf16_unit(a: &str, b: &str) -> Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

#[cfg(test)]
mod tests {
    use super::super::{Limits, parse};
    use super::*;

    fn read(text: &str) -> Value<'_> {
        parse(text.as_bytes(), &Limits::default()).unwrap()
    }

    fn written(text: &str, form: Form) -> String {
        String::from_utf8(canonical(&read(text), form).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_sorted_at_every_level() {
        let text = r#" { "b" : [ { "z" : 1 , "a" : 2 } ] , "a" : { "d" : { } , "c" : [ ] } } "#;
        for form in [Form::Utf8, Form::Ascii, Form::Jcs] {
            assert_eq!(written(text, form), r#"{"a":{"c":[],"d":{}},"b":[{"a":2,"z":1}]}"#);
        }
    }

    #[test]
    fn keys_beyond_the_basic_plane_sort_by_the_rule_of_the_form() {
        let text = "{\"\u{ff5e}\":1,\"\u{1f600}\":2}";
        assert_eq!(written(text, Form::Utf8), text);
        assert_eq!(written(text, Form::Ascii), r#"{"\uff5e":1,"\ud83d\ude00":2}"#);
        assert_eq!(written(text, Form::Jcs), "{\"\u{1f600}\":2,\"\u{ff5e}\":1}");
    }

    #[test]
    fn the_last_of_repeated_keys_wins() {
        let text = r#"{"b":1,"a":{"x":1},"b":2,"a":3,"b":4}"#;
        assert_eq!(written(text, Form::Utf8), r#"{"a":3,"b":4}"#);
        assert_eq!(written(text, Form::Ascii), r#"{"a":3,"b":4}"#);
        assert_eq!(written(r#"{"a":1,"a":2}"#, Form::Utf8), r#"{"a":2}"#);
        assert_eq!(written("{\"\\u0061\":1,\"a\":2}", Form::Utf8), r#"{"a":2}"#);
    }

    #[test]
    fn jcs_refuses_a_repeated_key() {
        let error = canonical(&read(r#"[{"b":1,"a":2,"b":3}]"#), Form::Jcs).unwrap_err();
        assert_eq!(error, CanonicalError::RepeatedKey { key: "b".to_owned() });
        assert_eq!(error.kind(), "repeated_key");
        assert_eq!(error.to_string(), r#"key "b" is repeated"#);
    }

    #[test]
    fn jcs_takes_integers_up_to_two_to_the_fifty_third_minus_one() {
        for safe in ["9007199254740991", "-9007199254740991", "0"] {
            assert_eq!(written(safe, Form::Jcs), safe);
        }
        assert_eq!(written("-0", Form::Jcs), "0");
        for unsafe_integer in ["9007199254740992", "-9007199254740992", "9007199254740993"] {
            let error = canonical(&read(unsafe_integer), Form::Jcs).unwrap_err();
            assert_eq!(error, CanonicalError::UnsafeInteger { digits: unsafe_integer.to_owned() });
        }
        let huge = "9".repeat(4300);
        let error = canonical(&read(&huge), Form::Jcs).unwrap_err();
        assert_eq!(error, CanonicalError::UnsafeInteger { digits: "9".repeat(40) });
    }

    #[test]
    fn different_integers_stay_different() {
        for form in [Form::Utf8, Form::Ascii] {
            for text in ["9007199254740992", "9007199254740993", "-123456789012345678901234567890"]
            {
                assert_eq!(written(text, form), text);
            }
            assert_eq!(written("[1,1.0,1e0,-0,-0.0]", form), "[1,1.0,1.0,0,-0.0]");
        }
    }

    #[test]
    fn an_error_leaves_the_output_as_it_was() {
        let mut out = b"before".to_vec();
        let value = Value::from(vec![1.0, f64::NAN]);
        for form in [Form::Utf8, Form::Ascii, Form::Jcs] {
            let error = canonical_into(&value, form, &mut out).unwrap_err();
            assert_eq!(error, CanonicalError::NotFinite);
            assert_eq!(out, b"before");
        }
    }
}
