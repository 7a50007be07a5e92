//! Identity of a plain event: a header, some of its fields, or the whole body.

use std::fmt;

use admit_core::Submission;
use admit_core::json::Value;

use super::KEY_CHARS_MAX;

/// Default header with the key of a plain event, in lower case.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Field path in a JSON body: a pointer such as `/order/id` or a dotted path such as `order.id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    pointer: String,
}

impl FieldPath {
    /// Parses either notation; a leading `/` marks a pointer. `None` for an empty path.
    pub fn parse(text: &str) -> Option<Self> {
        let is_path = |text: &str| text.split('.').all(|step| !step.is_empty());
        let pointer = match text {
            "" | "/" => return None,
            pointer if pointer.starts_with('/') => pointer.to_owned(),
            path if is_path(path) => {
                let steps = path.split('.').map(|step| step.replace('~', "~0").replace('/', "~1"));
                steps.fold(String::new(), |pointer, step| pointer + "/" + &step)
            }
            _ => return None,
        };
        Some(Self { pointer })
    }

    /// Value at the path, unless it is missing or `null`.
    pub(super) fn of<'v, 'a>(&self, value: &'v Value<'a>) -> Option<&'v Value<'a>> {
        value.pointer(&self.pointer).filter(|value| !value.is_null())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pointer)
    }
}

/// Reason why a header yields no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// Absent.
    Missing,
    /// Present more than once.
    Repeated,
    /// Empty, too long, or with invalid characters.
    Invalid,
}

/// Reads the key from the header `name`: a quoted string (RFC 8941), or the same without quotes.
pub(super) fn key_in(submission: &Submission, name: &str) -> Result<String, NoKey> {
    let mut values = submission.headers.iter().filter(|(known, _)| known == name);
    let (_, value) = values.next().ok_or(NoKey::Missing)?;
    if values.next().is_some() {
        return Err(NoKey::Repeated);
    }
    let value = value.trim_matches([' ', '\t']);
    let key = match value.strip_prefix('"') {
        Some(rest) => parse_quoted(rest).ok_or(NoKey::Invalid)?,
        None => value.to_owned(),
    };
    let is_bare = !value.starts_with('"');
    let is_plain = |byte: u8| byte.is_ascii_graphic() || (byte == b' ' && !is_bare);
    if key.is_empty() || key.len() > KEY_CHARS_MAX || !key.bytes().all(is_plain) {
        return Err(NoKey::Invalid);
    }
    Ok(key)
}

/// Parses a quoted string after its opening quote; nothing may follow the closing one.
fn parse_quoted(rest: &str) -> Option<String> {
    let mut text = String::with_capacity(rest.len());
    let mut chars = rest.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(text),
            '\\' => text.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse};
    use admit_core::{Millis, Principal};

    use super::*;

    fn key(values: &[&str]) -> Result<String, NoKey> {
        let headers = values.iter().map(|value| (IDEMPOTENCY_KEY.to_owned(), (*value).to_owned()));
        let submission = Submission {
            principal: Principal::new("local"),
            received_at: Millis(0),
            body: bytes::Bytes::new(),
            headers: headers.collect(),
            nonce: [0; 16],
        };
        key_in(&submission, IDEMPOTENCY_KEY)
    }

    #[test]
    fn a_quoted_key_and_a_bare_one_are_the_same_key() {
        assert_eq!(key(&["\"8e03-1\""]), Ok("8e03-1".to_owned()));
        assert_eq!(key(&["8e03-1"]), Ok("8e03-1".to_owned()));
        assert_eq!(key(&[r#""a \"b\" \\c""#]), Ok(r#"a "b" \c"#.to_owned()));
        assert_eq!(key(&["  x\t"]), Ok("x".to_owned()));
    }

    #[test]
    fn a_key_that_cannot_be_one_is_refused() {
        assert_eq!(key(&[]), Err(NoKey::Missing));
        assert_eq!(key(&["a", "a"]), Err(NoKey::Repeated));
        let long = "k".repeat(KEY_CHARS_MAX + 1);
        for bad in ["", "\"\"", "\"a", "\"a\"b", "\"a\";p=1", r#""a\n""#, "a b", "é", "a\u{7f}"] {
            assert_eq!(key(&[bad]), Err(NoKey::Invalid), "{bad}");
        }
        assert_eq!(key(&[&long]), Err(NoKey::Invalid));
        assert_eq!(key(&[&long[1..]]).unwrap().len(), KEY_CHARS_MAX);
    }

    #[test]
    fn a_field_is_a_pointer_or_a_dotted_path() {
        let body = parse(br#"{"order":{"id":7,"none":null},"a/b":{"~":[1]}}"#, &Limits::default());
        let body = body.unwrap();
        let found = |text| FieldPath::parse(text).unwrap().of(&body).and_then(Value::as_i64);
        assert_eq!(found("/order/id"), Some(7));
        assert_eq!(found("order.id"), Some(7));
        assert_eq!(found("a/b.~.0"), Some(1));
        assert_eq!(found("order.none"), None);
        assert_eq!(found("order.lost"), None);
        for bad in ["", "/", ".", "a..b", "a."] {
            assert_eq!(FieldPath::parse(bad), None, "{bad}");
        }
    }
}
