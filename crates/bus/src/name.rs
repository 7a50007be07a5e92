//! Validation of topics, partition keys and dedupe keys: the rules that every supported bus can
//! carry.

/// Longest topic, in bytes.
pub const TOPIC_BYTES_MAX: usize = 200;
/// Longest partition key, in bytes.
pub const PARTITION_KEY_BYTES_MAX: usize = 256;
/// Longest dedupe key, in bytes.
pub const DEDUPE_KEY_BYTES_MAX: usize = 128;

/// Checks a topic: words of ASCII letters, digits, `_` and `-`, separated by single dots.
///
/// # Errors
/// Returns the violated rule.
pub fn check_topic(topic: &str) -> Result<(), &'static str> {
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX {
        return Err("it must have 1 to 200 characters");
    }
    let is_word = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
            && word.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
    };
    if !topic.split('.').all(is_word) {
        return Err("it must be words of letters, digits, _ and -, separated by single dots");
    }
    Ok(())
}

/// Checks a partition key.
///
/// # Errors
/// Returns the violated rule.
pub fn check_partition_key(key: &str) -> Result<(), &'static str> {
    if key.is_empty() || key.len() > PARTITION_KEY_BYTES_MAX {
        return Err("a partition key must have 1 to 256 bytes");
    }
    Ok(())
}

/// Checks a dedupe key. The alphabet is valid unescaped in a header of any bus.
///
/// # Errors
/// Returns the violated rule.
pub fn check_dedupe_key(key: &str) -> Result<(), &'static str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if key.is_empty() || key.len() > DEDUPE_KEY_BYTES_MAX || !key.bytes().all(is_plain) {
        return Err("a dedupe key must be 1 to 128 letters, digits, -, _, . or :");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_the_contracts_are_valid() {
        for topic in ["fp.bus.traffic.v1", "fp.bus.context.flow_anchor.fraud.v1", "sr-control-bus"]
        {
            assert_eq!(check_topic(topic), Ok(()), "{topic}");
        }
    }

    #[test]
    fn path_traversal_and_odd_characters_are_rejected() {
        let long = "t".repeat(TOPIC_BYTES_MAX + 1);
        for topic in [
            "", ".", "..", "a..b", "a.", ".a", "a/b", "../a", "a\\b", "a b", "ä", "a\0", "-a",
            &long,
        ] {
            assert!(check_topic(topic).is_err(), "{topic:?}");
        }
    }

    #[test]
    fn dedupe_keys_need_no_escaping() {
        assert_eq!(check_dedupe_key(&"9b".repeat(32)), Ok(()));
        let long = "a".repeat(DEDUPE_KEY_BYTES_MAX + 1);
        for key in ["", "a\"b", "a\\b", "a b", "ä", "a\n", &long] {
            assert!(check_dedupe_key(key).is_err(), "{key:?}");
        }
        assert!(check_partition_key("").is_err());
        assert!(check_partition_key(&"k".repeat(257)).is_err());
        assert_eq!(check_partition_key("flöw 1"), Ok(()));
    }
}
