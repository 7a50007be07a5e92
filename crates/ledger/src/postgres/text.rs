//! Text as PostgreSQL can keep it: everything but the character NUL.
//!
//! Producers may write `\u0000` into a string, and what they write may become part of a name. Such
//! text is kept with an escape that no two texts share, and shown as it was.

use std::borrow::Cow;

/// Opens an escape; a character of the private use area that nobody assigned.
const ESCAPE: char = '\u{f8fe}';

/// The text as it is kept.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => kept.extend([ESCAPE, '0']),
            ESCAPE => kept.extend([ESCAPE, '1']),
            other => kept.push(other),
        }
    }
    Cow::Owned(kept)
}

/// The same for text that is not needed any more.
pub(super) fn into_kept(text: String) -> String {
    match kept(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(kept) => kept,
    }
}

/// The text as it was.
pub(super) fn shown(kept: String) -> String {
    if !kept.contains(ESCAPE) {
        return kept;
    }
    let mut shown = String::with_capacity(kept.len());
    let mut characters = kept.chars();
    while let Some(character) = characters.next() {
        match character {
            ESCAPE => shown.push(match characters.next() {
                Some('0') => '\0',
                _ => ESCAPE,
            }),
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back_as_it_was_and_none_holds_nul() {
        for text in ["", "plain", "a\0b", "\0", "\u{f8fe}", "\u{f8fe}0", "\0\u{f8fe}1\0", "ü\0"] {
            let there = kept(text).into_owned();
            assert!(!there.contains('\0'), "{text:?}");
            assert_eq!(shown(there), text);
        }
        assert_ne!(kept("\0"), kept("\u{f8fe}0"), "no two share a spelling");
    }
}
