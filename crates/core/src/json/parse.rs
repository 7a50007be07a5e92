//! Reads JSON in one pass over the bytes, strictly by RFC 8259, borrowing all text it can.
//!
//! Invariant: nesting is checked before it is entered, so neither reading, writing nor dropping a
//! value can overflow the stack, for any input.

use std::borrow::Cow;

use super::error::JsonError;
use super::number;
use super::object::{Object, ObjectEntry};
use super::scan;
use super::value::Value;

/// No [`Limits::depth_max`] reaches beyond this: values are walked by recursion, and a thread's
/// stack must hold it.
pub const DEPTH_CEILING: usize = 512;

/// Most digits of an integer, as in CPython, where turning digits into a number is quadratic.
pub const INTEGER_DIGITS_MAX: usize = 4300;

/// Room for the entries of a usual event, so that reading one does not grow the list step by step.
const ENTRIES_FIRST: usize = 32;

/// Limits of one call of [`parse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum nesting of arrays and objects; a plain value has depth 0. Limited to
    /// [`DEPTH_CEILING`].
    pub depth_max: usize,
    /// Longest text, in bytes. A hostile text takes about 40 times its size in memory while it is
    /// read, so raise it with that in mind.
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth_max: 128, bytes_max: 1 << 20 }
    }
}

/// Reads one JSON value.
///
/// # Errors
/// If the bytes are not exactly one JSON value in UTF-8 with optional white space around it, or
/// exceed our limits: a number that overflows a double, an integer of more than
/// [`INTEGER_DIGITS_MAX`] digits, a lone surrogate, or more than `limits` allow.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Value<'a>, JsonError> {
    if bytes.len() > limits.bytes_max {
        return Err(JsonError::TooLarge { bytes_max: limits.bytes_max, at: limits.bytes_max });
    }
    if bytes.starts_with("\u{feff}".as_bytes()) {
        return Err(JsonError::ByteOrderMark { at: 0 });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| JsonError::InvalidUtf8 { at: error.valid_up_to() })?;
    let depth_max = limits.depth_max.min(DEPTH_CEILING);
    let mut parser =
        Parser { text, bytes, at: 0, depth: 0, depth_max, entries: Vec::new(), values: Vec::new() };
    parser.skip_space();
    let value = parser.value()?;
    parser.skip_space();
    if parser.at < bytes.len() {
        return Err(JsonError::TrailingBytes { at: parser.at });
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// Next byte to read. Always on a character boundary when text is cut out.
    at: usize,
    depth: usize,
    depth_max: usize,
    /// Entries of all objects now open, the innermost last. Each object takes its own off the end
    /// when it closes, so it is allocated once and at its exact size.
    entries: Vec<ObjectEntry<'a>>,
    /// Elements of all arrays now open, likewise.
    values: Vec<Value<'a>>,
}

impl<'a> Parser<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[cold]
    fn expected(&self, what: &'static str) -> JsonError {
        let at = self.at;
        match self.peek() {
            Some(_) => JsonError::Expected { what, at },
            None => JsonError::UnexpectedEnd { what, at },
        }
    }

    fn value(&mut self) -> Result<Value<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", "'true'", Value::Bool(true)),
            Some(b'f') => self.word("false", "'false'", Value::Bool(false)),
            Some(b'n') => self.word("null", "'null'", Value::Null),
            Some(_) if self.rest_starts_with("NaN") || self.rest_starts_with("Infinity") => {
                Err(JsonError::NumberNotFinite { at: self.at })
            }
            Some(_) | None => Err(self.expected("a value")),
        }
    }

    fn rest_starts_with(&self, word: &str) -> bool {
        self.bytes[self.at..].starts_with(word.as_bytes())
    }

    fn word(
        &mut self,
        word: &str,
        what: &'static str,
        value: Value<'a>,
    ) -> Result<Value<'a>, JsonError> {
        if !self.rest_starts_with(word) {
            return Err(self.expected(what));
        }
        self.at += word.len();
        Ok(value)
    }

    /// Steps over an opening bracket, if the nesting allows it.
    #[inline]
    fn open(&mut self) -> Result<(), JsonError> {
        if self.depth == self.depth_max {
            return Err(JsonError::TooDeep { depth_max: self.depth_max, at: self.at });
        }
        self.depth += 1;
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn object(&mut self) -> Result<Value<'a>, JsonError> {
        self.open()?;
        let start = self.entries.len();
        let mut more = !self.take(b'}');
        if more && self.entries.capacity() == 0 {
            self.entries.reserve(ENTRIES_FIRST);
        }
        while more {
            if self.peek() != Some(b'"') {
                let first = self.entries.len() == start;
                return Err(self.expected(if first { "a key or '}'" } else { "a key" }));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.expected("':'"));
            }
            self.skip_space();
            let value = self.value()?;
            self.entries.push((key, value));
            more = self.comma_or(b'}', "',' or '}'")?;
        }
        self.depth -= 1;
        Ok(Value::Object(Object::from_entries(self.entries.drain(start..).collect())))
    }

    fn array(&mut self) -> Result<Value<'a>, JsonError> {
        self.open()?;
        let start = self.values.len();
        let mut more = !self.take(b']');
        while more {
            let value = self.value()?;
            self.values.push(value);
            more = self.comma_or(b']', "',' or ']'")?;
        }
        self.depth -= 1;
        Ok(Value::Array(self.values.drain(start..).collect()))
    }

    /// Whether another element follows the one just read.
    #[inline]
    fn comma_or(&mut self, closing: u8, what: &'static str) -> Result<bool, JsonError> {
        self.skip_space();
        if self.take(b',') {
            self.skip_space();
            return Ok(true);
        }
        if self.take(closing) { Ok(false) } else { Err(self.expected(what)) }
    }

    fn number(&mut self) -> Result<Value<'a>, JsonError> {
        let start = self.at;
        let negative = self.take(b'-');
        if negative && self.rest_starts_with("Infinity") {
            return Err(JsonError::NumberNotFinite { at: start });
        }
        let first_digit = self.at;
        self.digits()?;
        if self.bytes[first_digit] == b'0' && self.at > first_digit + 1 {
            return Err(JsonError::LeadingZero { at: first_digit });
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            return self.integer(start, first_digit);
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let number = number::float(&self.text[start..self.at]);
        number.map(Value::Float).ok_or(JsonError::NumberOverflow { at: start })
    }

    fn integer(&self, start: usize, first_digit: usize) -> Result<Value<'a>, JsonError> {
        if self.at - first_digit > INTEGER_DIGITS_MAX {
            return Err(JsonError::IntegerTooLong { digits_max: INTEGER_DIGITS_MAX, at: start });
        }
        let zero = self.bytes[first_digit] == b'0';
        let digits = &self.text[if zero { first_digit } else { start }..self.at];
        Ok(Value::Int(Cow::Borrowed(digits)))
    }

    /// Steps over at least one digit.
    #[inline]
    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        let start = self.at + 1;
        self.at = scan::special(self.bytes, start);
        if self.peek() == Some(b'"') {
            let text = &self.text[start..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(text));
        }
        self.string_with_escapes(start).map(Cow::Owned)
    }

    /// Goes on where [`string`](Self::string) met something that is not plain text.
    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Result<String, JsonError> {
        let mut text = String::with_capacity(self.at - start + 16);
        text.push_str(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(byte) => return Err(JsonError::ControlCharacter { byte, at: self.at }),
                None => return Err(self.expected("'\"'")),
            }
            let plain = self.at;
            self.at = scan::special(self.bytes, plain);
            text.push_str(&self.text[plain..self.at]);
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 2;
        let character = match self.bytes.get(start + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(*byte),
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) => return Err(JsonError::UnknownEscape { at: start }),
            None => {
                return Err(JsonError::UnexpectedEnd { what: "an escape", at: self.bytes.len() });
            }
        };
        Ok(character)
    }

    /// The character of `\uXXXX`, or of two of them that make a pair.
    fn unicode_escape(&mut self, start: usize) -> Result<char, JsonError> {
        let first = self.unit(start)?;
        let lone = JsonError::LoneSurrogate { at: start };
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or(lone);
        }
        let second_start = self.at;
        if !self.rest_starts_with("\\u") {
            return Err(lone);
        }
        self.at += 2;
        let second = self.unit(second_start)?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(lone);
        }
        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(lone)
    }

    /// Four hex digits of the escape that started at `start`.
    fn unit(&mut self, start: usize) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4).unwrap_or_default();
        let unit = digits
            .iter()
            .try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)?));
        match unit {
            Some(unit) if digits.len() == 4 => {
                self.at += 4;
                Ok(unit)
            }
            Some(_) | None => Err(JsonError::UnknownEscape { at: start }),
        }
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
