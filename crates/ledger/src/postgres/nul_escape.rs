//! Escapes NUL characters, which PostgreSQL cannot store in text.
//!
//! Producers may write `\u0000` into a string, and that may become part of a name. Such text is stored with an
//! unambiguous escape, and unescaped when it is read.

use std::borrow::Cow;

/// Starts an escape; an unassigned private use character.
const ESCAPE: char = '\u{f8fe}';

/// Escapes a text for storage.
pub(super) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut escape = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escape.extend([ESCAPE, '0']),
            ESCAPE => escape.extend([ESCAPE, '1']),
            other => escape.push(other),
        }
    }
    Cow::Owned(escape)
}

/// The same for an owned text.
pub(super) fn escape_owned(text: String) -> String {
    match escape(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escape) => escape,
    }
}

/// Restores the original text.
pub(super) fn unescape(escape: String) -> String {
    if !escape.contains(ESCAPE) {
        return escape;
    }
    let mut unescape = String::with_capacity(escape.len());
    let mut characters = escape.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => unescape.push(match characters.next() {
                Some('0') => '\0',
                _ => ESCAPE,
            }),
            other => unescape.push(other),
        }
    }
    unescape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_unchanged_and_stored_without_nul() {
        for text in ["", "plain", "a\0b", "\0", "\u{f8fe}", "\u{f8fe}0", "\0\u{f8fe}1\0", "ü\0"] {
            let there = escape(text).into_owned();
            assert!(!there.contains('\0'), "{text:?}");
            assert_eq!(unescape(there), text);
        }
        assert_ne!(escape("\0"), escape("\u{f8fe}0"), "no two share a spelling");
    }
}
