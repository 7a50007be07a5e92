//! JSON reader that records the line of each value. Validity is checked by the strict parser first;
//! this reader only walks over valid text.

use admit_core::json::{self, Limits, Value};

use super::node::{MapEntry, NodeData, PolicyNode, PolicySyntaxError, unique_keys};
use super::{BYTES_MAX, DEPTH_MAX};

/// Parses one value.
pub(super) fn read(text: &str) -> Result<PolicyNode, PolicySyntaxError> {
    let limits = Limits { depth_max: DEPTH_MAX, bytes_max: BYTES_MAX };
    if let Err(error) = json::parse(text.as_bytes(), &limits) {
        let before = text.as_bytes().get(..error.at()).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        return Err(PolicySyntaxError::new(line, error.to_string()));
    }
    Walker { text, at: 0, line: 1 }.node()
}

struct Walker<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Walker<'_> {
    /// Returns the next byte that is not whitespace.
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

    fn node(&mut self) -> Result<PolicyNode, PolicySyntaxError> {
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
                    let NodeData::Text(key) = key else { return Err(invalid_json(line)) };
                    members.push(MapEntry { key, line, value });
                    Ok(())
                })?;
                unique_keys(members)?
            }
            b'[' => {
                let mut nodes = Vec::new();
                self.each(b']', |walker| {
                    nodes.push(walker.node()?);
                    Ok(())
                })?;
                NodeData::List(nodes)
            }
            _ => self.scalar(),
        };
        Ok(PolicyNode { line, data })
    }

    /// Walks over the elements up to `end`.
    fn each(
        &mut self,
        end: u8,
        mut element: impl FnMut(&mut Self) -> Result<(), PolicySyntaxError>,
    ) -> Result<(), PolicySyntaxError> {
        loop {
            // Skip the opening bracket or a comma.
            self.at += 1;
            if self.peek() == end {
                break;
            }
            element(self)?;
            match self.peek() {
                b',' => {}
                byte if byte == end => break,
                _ => return Err(invalid_json(self.line)),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> NodeData {
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
            Ok(Value::String(text)) => NodeData::Text(text.into_owned()),
            Ok(Value::Bool(value)) => NodeData::Bool(value),
            Ok(number @ (Value::Int(_) | Value::Float(_))) => NodeData::Number(number.into_owned()),
            Ok(Value::Null | Value::Array(_) | Value::Object(_)) | Err(_) => NodeData::Null,
        }
    }
}

fn invalid_json(line: usize) -> PolicySyntaxError {
    PolicySyntaxError::new(line, "this is not json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_line() {
        let text = "{\n  \"a\": [1, \"x\\\"}\",\n {}],\n  \"b\": {\"c\": null, \"d\": [ ]}\n}\n";
        let node = read(text).unwrap();
        assert_eq!(node.to_value(), json::parse(text.as_bytes(), &Limits::default()).unwrap());
        let NodeData::Map(members) = &node.data else { panic!("a map") };
        assert_eq!(members.iter().map(|m| m.line).collect::<Vec<_>>(), [2, 4]);
        let NodeData::List(nodes) = &members[0].value.data else { panic!("a list") };
        assert_eq!(nodes.iter().map(|n| n.line).collect::<Vec<_>>(), [2, 2, 3]);
    }

    #[test]
    fn invalid_json_is_refused_with_its_line() {
        for (text, line) in [("{\n\"a\": 1,\n}", 3), ("{\n\"a\": 1,\n\"a\": 2}", 3), ("", 1)] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
    }
}
