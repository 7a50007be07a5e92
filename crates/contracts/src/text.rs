//! Text of others that is repeated to people, within bounds.

/// Longest words about one violation, in characters.
pub(crate) const VIOLATION_CHARS_MAX: usize = 240;

/// The text, cut after `chars_max` characters with a mark that it was cut.
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
    fn a_text_is_cut_between_characters_and_says_so() {
        assert_eq!(bounded("ééé", 2), "éé…");
        assert_eq!(bounded("éé", 2), "éé");
    }
}
