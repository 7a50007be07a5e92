//! The `_passed.flag` of a gate: one line with a digest, or a JSON object with it.

use admit_core::json::{self, Limits, Value};

use crate::id_format::is_hex;

/// Content of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    /// The gate passed; digest of its bundle.
    Passed(String),
    /// The gate did not pass.
    Failed,
    /// The file is still being written.
    Empty,
    /// No valid digest.
    Unreadable,
}

/// Parses a flag whose digest field is named `field`.
pub(super) fn parse(bytes: &[u8], field: &str) -> Flag {
    let Ok(text) = std::str::from_utf8(bytes) else { return Flag::Unreadable };
    let text = text.trim();
    if text.is_empty() {
        return Flag::Empty;
    }
    if text.starts_with('{') {
        return object(text, field);
    }
    for line in text.lines() {
        if let Some((name, value)) = line.split_once('=')
            && name.trim() == field
        {
            return digest(value.trim());
        }
    }
    Flag::Unreadable
}

fn object(text: &str, field: &str) -> Flag {
    let Ok(Value::Object(flag)) = json::parse(text.as_bytes(), &Limits::default()) else {
        return Flag::Unreadable;
    };
    let status = flag.get("status").and_then(Value::as_str).unwrap_or("PASS");
    if status.eq_ignore_ascii_case("FAIL") || status.eq_ignore_ascii_case("FAILED") {
        return Flag::Failed;
    }
    flag.get(field).and_then(Value::as_str).map_or(Flag::Unreadable, digest)
}

fn digest(text: &str) -> Flag {
    let lower = text.to_ascii_lowercase();
    if is_hex(&lower, 64) { Flag::Passed(lower) } else { Flag::Unreadable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_of_a_flag_are_read() {
        let hex = "e5".repeat(32);
        let passed = Flag::Passed(hex.clone());
        for text in [
            format!("sha256_hex = {hex}"),
            format!("\n  sha256_hex={hex}\n"),
            format!("{{\"sha256_hex\": \"{hex}\"}}"),
            format!("{{\"status\": \"PASS\", \"sha256_hex\": \"{}\"}}", hex.to_uppercase()),
        ] {
            assert_eq!(parse(text.as_bytes(), "sha256_hex"), passed, "{text}");
        }
        assert_eq!(parse(b"{\"status\": \"FAIL\"}", "sha256_hex"), Flag::Failed);
        assert_eq!(parse(b" \n", "sha256_hex"), Flag::Empty);
        for text in ["sha256_hex = e5", "other = x", "{", "{}", "passed"] {
            assert_eq!(parse(text.as_bytes(), "sha256_hex"), Flag::Unreadable, "{text}");
        }
        assert_eq!(parse(&[0xff], "sha256_hex"), Flag::Unreadable);
    }
}
