//! YAML reader limited to what all dialects agree on.
//!
//! YAML 1.1 and 1.2 parse a bare `yes`, `012` or `1e3` differently, and a policy must not depend on
//! the parser. Ambiguous scalars are rejected with their line; quoting resolves them. Anchors, tags
//! and merges are rejected too; a policy is short enough to be written out.

use admit_core::json::{self, Limits, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::DEPTH_MAX;
use super::node::{MapEntry, NodeData, PolicyNode, PolicySyntaxError, unique_keys};

/// Parses one document.
pub(super) fn read(text: &str) -> Result<PolicyNode, PolicySyntaxError> {
    let mut reader = YamlReader { parser: Parser::new_from_str(text), line: 1 };
    let mut document = None;
    loop {
        match reader.next()? {
            Event::DocumentStart(_) => {
                if document.is_some() {
                    return Err(reader.refuse("there is a second document; one file holds one"));
                }
                let first = reader.next()?;
                document = Some(reader.node(first, 0)?);
            }
            Event::StreamEnd => break,
            Event::Nothing
            | Event::StreamStart
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => {}
        }
    }
    document.ok_or_else(|| PolicySyntaxError::new(1, "the file is empty"))
}

struct YamlReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    line: usize,
}

impl<'t> YamlReader<'t> {
    fn next(&mut self) -> Result<Event<'t>, PolicySyntaxError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => {
                self.line = span.start.line().max(1);
                Ok(event)
            }
            Some(Err(error)) => {
                Err(PolicySyntaxError::new(error.marker().line().max(1), error.info().to_owned()))
            }
            None => Err(PolicySyntaxError::new(self.line, "the file ends too early")),
        }
    }

    fn refuse(&self, message: &str) -> PolicySyntaxError {
        PolicySyntaxError::new(self.line, message)
    }

    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<PolicyNode, PolicySyntaxError> {
        let line = self.line;
        if depth > DEPTH_MAX {
            return Err(self.refuse("the data is nested too deeply"));
        }
        let data = match event {
            Event::Scalar(_, _, anchor, ref tag) if anchor != 0 || tag.is_some() => {
                return Err(self.refuse(UNSUPPORTED));
            }
            Event::SequenceStart(anchor, ref tag) | Event::MappingStart(anchor, ref tag)
                if anchor != 0 || tag.is_some() =>
            {
                return Err(self.refuse(UNSUPPORTED));
            }
            Event::Alias(_) => return Err(self.refuse(UNSUPPORTED)),
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                plain_scalar(&text).map_err(|message| PolicySyntaxError::new(line, message))?
            }
            Event::Scalar(text, ..) => NodeData::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut nodes = Vec::new();
                loop {
                    let event = self.next()?;
                    if event == Event::SequenceEnd {
                        break NodeData::List(nodes);
                    }
                    nodes.push(self.node(event, depth + 1)?);
                }
            }
            Event::MappingStart(..) => self.map(depth)?,
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(self.refuse("a value is missing")),
        };
        Ok(PolicyNode { line, data })
    }

    fn map(&mut self, depth: usize) -> Result<NodeData, PolicySyntaxError> {
        let mut members = Vec::new();
        loop {
            let event = self.next()?;
            if event == Event::MappingEnd {
                return unique_keys(members);
            }
            let key = self.node(event, depth + 1)?;
            let line = key.line;
            let NodeData::Text(key) = key.data else {
                let message = format!("a key must be a text, not {}; put it in quotes", key.kind());
                return Err(PolicySyntaxError::new(line, message));
            };
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            members.push(MapEntry { key, line, value });
        }
    }
}

const UNSUPPORTED: &str = "anchors, aliases and tags are not supported; write it out";

/// Resolves a plain scalar.
fn plain_scalar(text: &str) -> Result<NodeData, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(NodeData::Null),
        "true" | "True" | "TRUE" => return Ok(NodeData::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(NodeData::Bool(false)),
        _ => {}
    }
    let is_disputed_word = ["y", "n", "yes", "no", "on", "off", "<<", "="]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text));
    if is_disputed_word || is_disputed_number(text) {
        return Err(format!("{text} is ambiguous in YAML; put it in quotes"));
    }
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if is_integer(unsigned) || is_float(unsigned) {
        return match json::parse(unsigned.as_bytes(), &Limits::default()) {
            Ok(number @ (Value::Int(_) | Value::Float(_))) => {
                Ok(NodeData::Number(number.into_owned()))
            }
            _ => Err(format!("{text} is not a supported number")),
        };
    }
    Ok(NodeData::Text(text.to_owned()))
}

/// `0`, `-12`: no leading zero.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    !digits.is_empty() && !is_padded && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// `0.5`, `-1.5e+3`: digits on both sides of the point, and a sign in the exponent.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "+0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_mantissa = mantissa.split_once('.').is_some_and(|(whole, fraction)| {
        is_integer(whole) && !whole.starts_with('-') && all_digits(fraction)
    });
    is_mantissa && exponent.strip_prefix(['+', '-']).is_some_and(all_digits)
}

/// Whether some YAML parser reads it as a number or a date and another does not.
fn is_disputed_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if is_integer(unsigned) || is_float(unsigned) {
        return false;
    }
    let lower = unsigned.to_ascii_lowercase();
    let all = |part: &str, taken: fn(u8) -> bool| !part.is_empty() && part.bytes().all(taken);
    if let Some((base, digits)) = lower.split_at_checked(2)
        && ["0x", "0o", "0b"].contains(&base)
    {
        return all(digits, |byte| byte.is_ascii_hexdigit() || byte == b'_');
    }
    if [".inf", ".nan"].contains(&lower.as_str()) {
        return true;
    }
    let starts_with_digit =
        lower.trim_start_matches('.').bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    if !starts_with_digit {
        return false;
    }
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let is_number = all(mantissa, |byte| byte.is_ascii_digit() || b"._:".contains(&byte))
        && all(exponent.trim_start_matches(['+', '-']), |byte| byte.is_ascii_digit());
    let is_date = text.len() >= 8
        && text.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && text.as_bytes()[4] == b'-'
        && text.bytes().all(|byte| {
            byte.is_ascii_digit()
                || matches!(byte, b'-' | b':' | b'.' | b'+' | b' ' | b'T' | b't' | b'Z' | b'z')
        });
    is_number || is_date
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<String, String> {
        match read(text) {
            Ok(node) => {
                let mut out = Vec::new();
                json::write(&node.to_value(), &mut out);
                Ok(String::from_utf8(out).unwrap())
            }
            Err(error) => Err(format!("{}: {}", error.line, error.message)),
        }
    }

    #[test]
    fn unambiguous_yaml_is_accepted() {
        let text =
            "a: [1, -2, 0.5, true, ~, x]\nb:\n  - \"y\"\n  - 'no'\n  - {c: 012x}\nd: |\n  e\n";
        assert_eq!(
            value(text).unwrap(),
            r#"{"a":[1,-2,0.5,true,null,"x"],"b":["y","no",{"c":"012x"}],"d":"e\n"}"#
        );
        let big = "k: 123456789012345678901234567890";
        assert_eq!(value(big).unwrap(), r#"{"k":123456789012345678901234567890}"#);
        for text in ["56d45126eaab", "v1", "2fast", "fp.bus.case.v1", "1.2.x", "nope", "a#b"] {
            assert_eq!(value(&format!("k: {text}")), Ok(format!(r#"{{"k":"{text}"}}"#)));
        }
    }

    #[test]
    fn ambiguous_scalars_are_refused_with_their_line() {
        for word in [
            "y",
            "Y",
            "n",
            "yes",
            "No",
            "on",
            "OFF",
            "012",
            "0x1F",
            "0o17",
            "0b1",
            "1_000",
            "1:30",
            "1e3",
            "1.",
            ".5",
            ".inf",
            "-.inf",
            ".NaN",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "=",
            "08",
            "1.2.3",
            "56e45",
        ] {
            let error = value(&format!("a: 1\nb: {word}")).unwrap_err();
            assert!(error.starts_with("2: "), "{word}: {error}");
            assert!(error.ends_with("put it in quotes"), "{word}: {error}");
            assert_eq!(value(&format!("b: '{word}'")).unwrap(), format!(r#"{{"b":"{word}"}}"#));
        }
    }

    #[test]
    fn anchors_aliases_and_tags_are_refused_with_their_line() {
        for (text, line) in [
            ("a: &x 1\nb: *x", 1),
            ("a: 1\nb: !!str 2", 2),
            ("a: 1\nb: !x {}", 2),
            ("a: 1\n<<: {b: 2}", 2),
            ("a: 1\na: 2", 2),
            ("a: 1\n1: 2", 2),
            ("a: 1\n---\nb: 2", 2),
            ("a: [1", 1),
            ("", 1),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.starts_with(&format!("{line}: ")) || line == 1, "{text:?}: {error}");
        }
        let deep = "[".repeat(DEPTH_MAX + 2);
        assert!(value(&deep).is_err());
    }
}
