//! Formats of ids.

/// Whether the text has exactly `digits` lower-case hex digits.
pub fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether the text is like `platform_20260212T085637Z`, which is also a safe folder name.
pub fn is_platform_run(text: &str) -> bool {
    let Some(stamp) = text.strip_prefix("platform_") else { return false };
    let pattern = b"00000000T000000Z";
    stamp.len() == pattern.len()
        && stamp.bytes().zip(pattern).all(|(byte, expected)| match expected {
            b'0' => byte.is_ascii_digit(),
            letter => byte == *letter,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_format() {
        assert!(is_hex("00ff", 4));
        for invalid in ["00FF", "00f", "00fff", "00fg"] {
            assert!(!is_hex(invalid, 4), "{invalid}");
        }
        assert!(is_platform_run("platform_20260212T085637Z"));
        for invalid in
            ["platform_20260212085637ZZ", "platform_", "../../etc", "platform_2026021xT085637Z"]
        {
            assert!(!is_platform_run(invalid), "{invalid}");
        }
    }
}
