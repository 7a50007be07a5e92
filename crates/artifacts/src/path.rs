//! Validation of artifact paths, for disks and object stores alike.

/// Maximum length of a path in bytes.
pub const PATH_BYTES_MAX: usize = 900;
/// Maximum length of a path segment in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Checks a path: segments of printable ASCII without `\`, separated by single slashes, none of
/// them beginning with a dot. So it stays below its root and cannot collide with internal files of
/// a store.
///
/// # Errors
/// Returns the reason why it is invalid.
pub fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > PATH_BYTES_MAX {
        return Err("it must have 1 to 900 bytes");
    }
    path.split('/').try_for_each(check_name)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err("every name in it must have 1 to 255 bytes, and it is relative");
    }
    if name.starts_with('.') {
        return Err("no name in it may begin with a dot");
    }
    if !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err("it must be printable ascii without spaces and backslashes");
    }
    Ok(())
}

/// Checks a path prefix, which may be empty or end anywhere.
///
/// # Errors
/// Returns the reason why it is invalid.
pub fn check_prefix(prefix: &str) -> Result<(), &'static str> {
    let whole = prefix.strip_suffix('/').unwrap_or(prefix);
    if whole.is_empty() && whole.len() == prefix.len() { Ok(()) } else { check(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_contracts_are_valid() {
        for path in [
            "platform_20260212T085637Z/ig/receipts/84201e31c95d5984ab11eb2c7bc20280.json",
            "fraud-platform/platform_20260212T085637Z/obs/governance/events.jsonl",
            "output_id=s1_arrival_entities_6B/part-000001.parquet",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn paths_that_leave_the_root_are_invalid() {
        let long_name = "n".repeat(NAME_BYTES_MAX + 1);
        let long_path = "n/".repeat(PATH_BYTES_MAX);
        for path in [
            "",
            "/",
            "/etc/passwd",
            "a//b",
            "a/",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "a/./b",
            ".aside/x",
            "a/.b",
            "a\\..\\b",
            "a\0b",
            "a\nb",
            "a b",
            "ä",
            &long_name,
            &long_path,
        ] {
            assert!(check(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_prefix_may_be_empty_or_end_anywhere() {
        for prefix in ["", "run", "run/", "run/ig/rec"] {
            assert_eq!(check_prefix(prefix), Ok(()), "{prefix:?}");
        }
        for prefix in ["/", "//", "../", "run//", "/run"] {
            assert!(check_prefix(prefix).is_err(), "{prefix:?}");
        }
    }
}
