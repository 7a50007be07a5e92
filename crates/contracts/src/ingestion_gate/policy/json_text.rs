//! Reads JSON with the line of each part: the strict reader says whether it is JSON, this one only
//! walks over what that has let through.

use admit_core::json::{self, Limits, Value};

use super::node::{Data, Member, Node, Unreadable, unrepeated};
use super::{BYTES_MAX, DEPTH_MAX};

/// Reads one value.
pub(super) fn read(text: &str) -> Result<Node, Unreadable> {
    let limits = Limits { depth_max: DEPTH_MAX, bytes_max: BYTES_MAX };
    if let Err(error) = json::parse(text.as_bytes(), &limits) {
        let before = text.as_bytes().get(..error.at()).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        return Err(Unreadable::new(line, error.to_string()));
    }
    Walker { text, at: 0, line: 1 }.node()
}

struct Walker<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Walker<'_> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> u8 {
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                other => return *other,
            }
            self.at += 1;
        }
        0
    }

    fn node(&mut self) -> Result<Node, Unreadable> {
        let first = self.peek();
        let line = self.line;
        let data = match first {
            b'{' => {
                let mut members = Vec::new();
                self.each(b'}', |walker| {
                    let key = walker.scalar();
                    let line = walker.line;
                    walker.peek();
                    walker.at += 1;
                    let value = walker.node()?;
                    let Data::Text(key) = key else { return Err(lost(line)) };
                    members.push(Member { key, line, value });
                    Ok(())
                })?;
                unrepeated(members)?
            }
            b'[' => {
                let mut nodes = Vec::new();
                self.each(b']', |walker| {
                    nodes.push(walker.node()?);
                    Ok(())
                })?;
                Data::List(nodes)
            }
            _ => self.scalar(),
        };
        Ok(Node { line, data })
    }

    /// Walks over the elements up to `end`.
    fn each(
        &mut self,
        end: u8,
        mut element: impl FnMut(&mut Self) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        loop {
            // Over the opening bracket, or a comma.
            self.at += 1;
            if self.peek() == end {
                break;
            }
            element(self)?;
            match self.peek() {
                b',' => {}
                byte if byte == end => break,
                _ => return Err(lost(self.line)),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Data {
        let bytes = self.text.as_bytes();
        let start = self.at;
        if bytes.get(start) == Some(&b'"') {
            self.at += 1;
            while let Some(byte) = bytes.get(self.at) {
                self.at += match byte {
                    b'\\' => 2,
                    b'"' => break,
                    _ => 1,
                };
            }
            self.at += 1;
        } else {
            let ends = |byte: &u8| b",]} \t\r\n".contains(byte);
            let rest = &bytes[start.min(bytes.len())..];
            self.at += rest.iter().position(ends).unwrap_or(rest.len());
        }
        let slice = bytes.get(start..self.at).unwrap_or_default();
        match json::parse(slice, &Limits { bytes_max: BYTES_MAX, ..Limits::default() }) {
            Ok(Value::String(text)) => Data::Text(text.into_owned()),
            Ok(Value::Bool(value)) => Data::Bool(value),
            Ok(number @ (Value::Int(_) | Value::Float(_))) => Data::Number(number.into_owned()),
            Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => Data::Null,
        }
    }
}

fn lost(line: usize) -> Unreadable {
    Unreadable::new(line, "this is not json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_knows_its_line() {
        let text = "{\n  \"a\": [1, \"x\\\"}\",\n {}],\n  \"b\": {\"c\": null, \"d\": [ ]}\n}\n";
        let node = read(text).unwrap();
        assert_eq!(node.to_value(), json::parse(text.as_bytes(), &Limits::default()).unwrap());
        let Data::Map(members) = &node.data else { panic!("a map") };
        assert_eq!(members.iter().map(|m| m.line).collect::<Vec<_>>(), [2, 4]);
        let Data::List(nodes) = &members[0].value.data else { panic!("a list") };
        assert_eq!(nodes.iter().map(|n| n.line).collect::<Vec<_>>(), [2, 2, 3]);
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_line() {
        for (text, line) in [("{\n\"a\": 1,\n}", 3), ("{\n\"a\": 1,\n\"a\": 2}", 3), ("", 1)] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
    }
}
