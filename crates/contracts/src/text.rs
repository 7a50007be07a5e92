//! Truncation of sender-supplied text for error messages.

/// Longest description of one violation, in characters.
pub(crate) const VIOLATION_CHARS_MAX: usize = 240;

/// Truncates the text after `chars_max` characters and marks the cut with an ellipsis.
pub(crate) fn bounded(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn a_text_is_cut_between_characters_and_the_cut_is_marked() {
        assert_eq!(bounded("ééé", 2), "éé…");
        assert_eq!(bounded("éé", 2), "éé");
    }
}
