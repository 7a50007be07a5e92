//! Word rules of the repository: no avoided words, unique type names, and no participles as type names.
//!
//! The rules of writing are in docs/style.md. A word counts in prose, comments, messages and identifiers,
//! which are split at `_` and where the case changes.

use std::collections::BTreeMap;

use super::repo::{self, File};
use super::{assert_none, assert_one};

/// Persons in the place of programs, and verbs of speech in the place of read, write, log and return.
/// Spelt in two halves, so that this file does not contain them.
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

/// Names that contain an avoided word and cannot change: an SQL table and a wire word.
const FIXED_NAMES: &[(&str, &str)] = &[("record_to", "ld"), ("cannot_te", "ll")];

/// Avoided words of a text, with repetitions.
fn avoided_in(text: &str) -> Vec<String> {
    let text = FIXED_NAMES.iter().fold(text.to_owned(), |text, (first, second)| {
        text.replace(&[*first, *second].concat(), "fixed")
    });
    let mut found = Vec::new();
    each_word(&text, |word| {
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

/// Files with texts of others: generated files, fixtures and golden files.
const NOT_OUR_WORDS: &[&str] = &["Cargo.lock", "LICENSE", "tests/fixtures/", "golden/"];

/// Extensions of the checked files.
const TEXTS: &[&str] = &["rs", "sql", "md", "toml", "proto", "py", "lua", "yaml", "service"];

/// Avoided words of each file.
fn avoided<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let ours = files
        .filter(|file| !NOT_OUR_WORDS.iter().any(|part| file.path.contains(part)))
        .filter(|file| TEXTS.iter().any(|extension| file.is(extension)));
    ours.filter_map(|file| {
        let words = avoided_in(&file.text);
        (!words.is_empty()).then(|| {
            format!("{}: use the words of docs/style.md instead of {}", file.path, words.join(", "))
        })
    })
    .collect()
}

/// Type names that several modules declare and that are used with their module, such as
/// `kafka::OpenError`.
const WITH_MODULE: &[&str] = &[
    // Every adapter and port has its own.
    "BoxFuture",
    "Command",
    "Error",
    "OpenError",
    "Options",
    "Result",
    "Settings",
    // `json::Limits` and the limits of the gate.
    "Limits",
    // The ledgers have these for themselves and in `db`, which both use.
    "Columns",
    "Param",
    "Statement",
];

/// A type declared outside of functions and test modules.
struct Declaration<'a> {
    name: &'a str,
    /// A private alias, which is a local abbreviation.
    is_abbreviation: bool,
}

fn declarations(file: &File) -> impl Iterator<Item = Declaration<'_>> {
    file.text.lines().filter_map(|line| {
        let public = line.strip_prefix("pub");
        let rest = public.map_or(line, |rest| {
            let rest = rest
                .strip_prefix('(')
                .and_then(|rest| rest.split_once(')'))
                .map_or(rest, |(_, rest)| rest);
            rest.trim_start()
        });
        let (kind, rest) = rest.split_once(' ')?;
        let name = rest.split(|letter: char| !letter.is_alphanumeric()).next()?;
        let is_type = matches!(kind, "struct" | "enum" | "trait" | "type") && !name.is_empty();
        let is_abbreviation = kind == "type" && public.is_none();
        is_type.then_some(Declaration { name, is_abbreviation })
    })
}

fn shared_names<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let product =
        files.filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/"));
    for file in product.filter(|file| !file.path.ends_with("_tests.rs")) {
        for found in declarations(file).filter(|found| !found.is_abbreviation) {
            places.entry(found.name).or_default().push(&file.path);
        }
    }
    places.retain(|name, paths| {
        let is_pair = paths.len() == 2 && both_ledgers(paths);
        paths.len() > 1 && !is_pair && !WITH_MODULE.contains(name)
    });
    let complaint = |(name, paths): (&&str, &Vec<&str>)| {
        format!("{name}: give each type a name of its own: {}", paths.join(", "))
    };
    places.iter().map(complaint).collect()
}

/// Whether one of two paths is of the SQLite ledger and the other of the PostgreSQL ledger.
fn both_ledgers(paths: &[&str]) -> bool {
    let is_of = |ledger: &str| paths.iter().filter(|path| path.contains(ledger)).count() == 1;
    is_of("ledger/src/sqlite/") && is_of("ledger/src/postgres/")
}

/// Participles without `ed` or `ing` at their end.
const PARTICIPLES: &[&str] = &[
    "Begun", "Bound", "Broken", "Built", "Done", "Found", "Frozen", "Given", "Gone", "Held",
    "Kept", "Known", "Left", "Lost", "Made", "Seen", "Sent", "Shown", "Taken", "Unknown",
    "Withheld", "Written",
];

/// Nouns that look like participles, and the states of effects, which have the names they are stored
/// under.
const NO_PARTICIPLES: &[&str] =
    &["Embed", "Listing", "Seaweed", "Seed", "Done", "Intended", "Refused", "Withheld"];

fn participles<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for Declaration { name, .. } in declarations(file) {
            let is_one_word = name.matches(|letter: char| letter.is_ascii_uppercase()).count() == 1;
            let ends_like_one = name.ends_with("ed") || name.ends_with("ing");
            let is_participle = is_one_word && ends_like_one || PARTICIPLES.contains(&name);
            if is_participle && !NO_PARTICIPLES.contains(&name) {
                complaints.push(format!("{}: {name} is a participle; name the thing", file.path));
            }
        }
    }
    complaints
}

#[test]
fn no_two_types_share_a_name() {
    assert_none(&shared_names(repo::files_with("rs")));
}

#[test]
fn a_name_that_two_types_share_is_found() {
    let one =
        File::example("crates/a/src/a.rs", "pub(crate) struct Same<T>(T);\nstruct Options;\n");
    let two = File::example("crates/b/src/b.rs", "pub enum Same {}\npub struct Options;\n");
    assert_one(
        &shared_names([one.clone(), two.clone()].iter()),
        "crates/a/src/a.rs, crates/b/src/b.rs",
    );
    assert_none(&shared_names([one.clone()].iter()));
    let alias = File::example("crates/b/src/b.rs", "type Same = u64;\n");
    assert_none(&shared_names([one, alias].iter()));
    let ledger =
        |name: &str| File::example(&format!("crates/ledger/src/{name}/a.rs"), "pub struct Same;\n");
    assert_none(&shared_names([ledger("sqlite"), ledger("postgres")].iter()));
    assert_one(&shared_names([ledger("sqlite"), ledger("postgres"), two].iter()), "Same");
}

#[test]
fn no_type_is_named_by_a_participle() {
    assert_none(&participles(repo::files_with("rs")));
}

#[test]
fn a_participle_as_a_type_name_is_found() {
    for name in ["Taken", "Stored", "Waiting"] {
        let file = File::example("a.rs", &format!("pub(crate) struct {name};\n"));
        assert_one(&participles([file].iter()), name);
    }
    let fine = "struct StoredEvent;\npub enum Seed {}\ntrait Ledger {}\n";
    assert_none(&participles([File::example("a.rs", fine)].iter()));
}

#[test]
fn no_file_contains_avoided_words() {
    assert_none(&avoided(repo::files().iter()));
}

#[test]
fn an_avoided_word_is_found() {
    let word = ["no", "body"].concat();
    let files = [File::example("a.rs", &format!("//! For {word}.")), File::example("b.rs", "")];
    assert_one(&avoided(files.iter()), "a.rs");
    let fixed = [FIXED_NAMES[0].0, FIXED_NAMES[0].1].concat();
    assert_none(&avoided([File::example("a.sql", &fixed)].iter()));
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
