//! Word rules of the repository: avoided words become fewer, and one name is one type.
//!
//! The rules of writing are in docs/style.md. A word counts in prose, in comments, in messages and inside of
//! identifiers, split at `_` and where the case changes.

use std::collections::BTreeMap;

use super::repo::{self, File};
use super::{assert_none, assert_one};

/// Persons that stand for programs, and verbs of speech that stand for read, write, log and return.
/// Each is spelt in two halves, so that this file does not contain it.
const AVOIDED: &[(&str, &str)] = &[
    ("who", "ever"),
    ("no", "body"),
    ("some", "body"),
    ("any", "body"),
    ("to", "ld"),
    ("te", "ll"),
    ("te", "lls"),
    ("tel", "ling"),
    ("sa", "id"),
    ("sa", "ying"),
    ("hea", "rd"),
    ("he", "ars"),
    ("kno", "ck"),
    ("kno", "cks"),
    ("as", "ks"),
    ("ask", "ed"),
    ("ask", "ing"),
];

/// The avoided words of a text, each as often as it is there.
fn avoided_in(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_word(text, |word| {
        if AVOIDED.iter().any(|(first, second)| {
            word.len() == first.len() + second.len()
                && word.starts_with(first)
                && word.ends_with(second)
        }) {
            found.push(word.to_owned());
        }
    });
    found
}

/// Calls `with` for each word in lower case; `_` and a change of case end a word.
fn each_word(text: &str, mut with: impl FnMut(&str)) {
    let mut word = String::new();
    let mut after_small = false;
    for letter in text.chars() {
        let begins = letter.is_ascii_uppercase() && after_small;
        if (begins || !letter.is_ascii_alphabetic()) && !word.is_empty() {
            with(&word);
            word.clear();
        }
        if letter.is_ascii_alphabetic() {
            word.push(letter.to_ascii_lowercase());
        }
        after_small = letter.is_ascii_lowercase();
    }
    if !word.is_empty() {
        with(&word);
    }
}

/// How many avoided words there may be in all files. It only ever falls: lower it with each word removed.
const AVOIDED_MAX: usize = 100_000;

/// Files whose words are not ours: what others write for us, texts of other programs and old data.
const NOT_OUR_WORDS: &[&str] = &["Cargo.lock", "LICENSE", "tests/fixtures/", "golden/"];

/// Endings of the files whose words count.
const TEXTS: &[&str] = &["rs", "sql", "md", "toml", "proto", "py", "lua", "yaml", "service"];

/// How many avoided words each file has, the most first.
fn avoided<'a>(files: impl Iterator<Item = &'a File>) -> Vec<(usize, String)> {
    let ours = files
        .filter(|file| !NOT_OUR_WORDS.iter().any(|part| file.path.contains(part)))
        .filter(|file| TEXTS.iter().any(|ending| file.is(ending)));
    let mut counts: Vec<(usize, String)> = ours
        .map(|file| {
            let words = avoided_in(&file.text);
            (words.len(), format!("{}: {}", file.path, words.join(", ")))
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    counts.sort_by(|a, b| b.cmp(a));
    counts
}

fn too_many(counts: &[(usize, String)], most: usize) -> Vec<String> {
    let total: usize = counts.iter().map(|(count, _)| count).sum();
    if total == most {
        return Vec::new();
    }
    let advice = if total > most {
        "say it in the words of docs/style.md"
    } else {
        "lower AVOIDED_MAX in xtask/src/tidy/words.rs to that"
    };
    let files: Vec<_> = counts.iter().map(|(count, file)| format!("  {count:4} {file}")).collect();
    vec![format!("{total} avoided words, the limit is {most}: {advice}\n{}", files.join("\n"))]
}

/// How many type names stand for more than one type. It only ever falls.
const SHARED_NAMES_MAX: usize = 1_000;

/// Names that are always used with their module, as `kafka::Options` is.
const WITH_MODULE: &[&str] = &["Command", "Error", "Options", "Result", "Settings"];

/// The types of product code that a file declares, but those inside of functions and test modules.
fn type_names(file: &File) -> impl Iterator<Item = &str> {
    file.text.lines().filter_map(|line| {
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            let rest = rest
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest);
            rest.trim_start()
        });
        let (kind, rest) = line.split_once(' ')?;
        let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
        (matches!(kind, "struct" | "enum" | "trait" | "type") && !name.is_empty()).then_some(name)
    })
}

fn shared_names<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files.filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"))
    {
        for name in type_names(file) {
            places.entry(name).or_default().push(&file.path);
        }
    }
    places.retain(|name, files| files.len() > 1 && !WITH_MODULE.contains(name));
    places.iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

#[test]
fn names_that_two_types_share_only_become_fewer() {
    let shared = shared_names(repo::files_with("rs"));
    let advice = if shared.len() > SHARED_NAMES_MAX {
        "give a new type a name of its own"
    } else {
        "lower SHARED_NAMES_MAX in xtask/src/tidy/words.rs to that"
    };
    assert!(
        shared.len() == SHARED_NAMES_MAX,
        "{} names stand for several types, the limit is {SHARED_NAMES_MAX}: {advice}\n{}",
        shared.len(),
        shared.join("\n")
    );
}

#[test]
fn a_name_that_two_types_share_is_found() {
    let one =
        File::example("crates/a/src/a.rs", "pub(crate) struct Same<T>(T);\nstruct Options;\n");
    let two = File::example("crates/b/src/b.rs", "pub enum Same {}\npub struct Options;\n");
    assert_one(
        &shared_names([one.clone(), two].iter()),
        "Same: crates/a/src/a.rs, crates/b/src/b.rs",
    );
    assert_none(&shared_names([one].iter()));
}

#[test]
fn avoided_words_only_become_fewer() {
    assert_none(&too_many(&avoided(repo::files().iter()), AVOIDED_MAX));
}

#[test]
fn one_avoided_word_too_many_is_found() {
    let word = ["no", "body"].concat();
    let files = [File::example("a.rs", &format!("//! For {word}.")), File::example("b.rs", "")];
    assert_one(&too_many(&avoided(files.iter()), 0), "a.rs");
    assert_none(&too_many(&avoided(files.iter()), 1));
    assert_one(&too_many(&avoided(files.iter()), 2), "lower");
}

#[test]
fn avoided_words_are_found_in_prose_and_in_identifiers() {
    for (first, second) in AVOIDED {
        let word = [*first, *second].concat();
        let capital = format!("{}{}", word[..1].to_ascii_uppercase(), &word[1..]);
        for text in [
            format!("It was {word}."),
            format!("fn is_{word}_here() {{}}"),
            format!("struct {capital}Thing;"),
            format!("let was{capital} = 1;"),
        ] {
            assert_eq!(avoided_in(&text), [word.as_str()], "{text}");
        }
        assert!(avoided_in(&format!("x{word} {word}x")).is_empty(), "{word}");
    }
}
