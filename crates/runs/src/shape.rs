//! What ids look like, for whoever is about to trust one.

/// So many lower hex digits.
pub fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// `platform_20260212T085637Z`, which is also safe as the name of a folder.
pub fn is_platform_run(text: &str) -> bool {
    let Some(stamp) = text.strip_prefix("platform_") else { return false };
    let shape = b"00000000T000000Z";
    stamp.len() == shape.len()
        && stamp.bytes().zip(shape).all(|(byte, wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            letter => byte == *letter,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_an_id_is_one() {
        assert!(is_hex("00ff", 4));
        for wrong in ["00FF", "00f", "00fff", "00fg"] {
            assert!(!is_hex(wrong, 4), "{wrong}");
        }
        assert!(is_platform_run("platform_20260212T085637Z"));
        for wrong in
            ["platform_20260212085637ZZ", "platform_", "../../etc", "platform_2026021xT085637Z"]
        {
            assert!(!is_platform_run(wrong), "{wrong}");
        }
    }
}
