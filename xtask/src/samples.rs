//! Random samples of doc comments: what a stranger understands without the code.

/// A doc comment with the item it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocComment {
    /// `path:line` of its first line.
    pub(crate) place: String,
    /// Its lines, and the line of code that follows.
    pub(crate) text: String,
}

/// The doc comments of one source file.
pub(crate) fn doc_comments(path: &str, source: &str) -> Vec<DocComment> {
    let mut comments = Vec::new();
    let mut current: Option<DocComment> = None;
    for (index, line) in source.lines().enumerate() {
        let trimmed = line.trim();
        let is_doc = trimmed.starts_with("///") || trimmed.starts_with("//!");
        if is_doc {
            let comment = current.get_or_insert_with(|| DocComment {
                place: format!("{path}:{}", index + 1),
                text: String::new(),
            });
            comment.text.push_str(trimmed);
            comment.text.push('\n');
        } else if trimmed.starts_with("#[") && current.is_some() {
            // An attribute stands between a comment and its item.
        } else if let Some(mut comment) = current.take() {
            comment.text.push_str(trimmed);
            comments.push(comment);
        }
    }
    comments.extend(current);
    comments
}

/// Picks `count` of `comments` by `seed`; the same seed picks the same ones.
pub(crate) fn sample(comments: &[DocComment], count: usize, seed: u64) -> Vec<&DocComment> {
    let mut state = seed;
    let mut left: Vec<&DocComment> = comments.iter().collect();
    let mut picked = Vec::new();
    while picked.len() < count && !left.is_empty() {
        // SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let index = usize::try_from(mixed % left.len() as u64).expect("smaller than a length");
        picked.push(left.swap_remove(index));
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_comment_is_read_with_the_item_that_follows() {
        let source = "//! Head of file.\n\nuse x;\n/// One.\n/// Two.\n#[derive(Debug)]\nstruct S;\n// No.\n";
        let comments = doc_comments("a.rs", source);
        assert_eq!(comments.len(), 2, "{comments:?}");
        assert_eq!(comments[1].place, "a.rs:4");
        assert_eq!(comments[1].text, "/// One.\n/// Two.\nstruct S;");
    }

    #[test]
    fn a_seed_repeats_its_sample_and_picks_nothing_twice() {
        let all: Vec<DocComment> = (0..50)
            .map(|n| DocComment { place: format!("a.rs:{n}"), text: String::new() })
            .collect();
        let picked = sample(&all, 30, 7);
        assert_eq!(picked, sample(&all, 30, 7));
        assert_ne!(picked, sample(&all, 30, 8));
        let mut places: Vec<_> = picked.iter().map(|comment| &comment.place).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 30);
        assert_eq!(sample(&all, 80, 1).len(), 50);
    }
}
