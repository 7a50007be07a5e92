//! Rules for source files: length, header comment, and forbidden texts.

use super::repo::{self, File};
use super::{assert_none, assert_one};

/// Maximum lines of a file; longer files are split.
const LINES_MAX: usize = 600;

/// Forbidden texts, each with its alternative. Spelt in two halves, so that this file does not contain
/// them.
const BANNED: &[(&str, &str, &str)] = &[
    ("#[ig", "nore", "a test runs or says at run time why it was skipped"),
    ("#[al", "low(", "use #[expect(.., reason = \"..\")]"),
    ("#![al", "low(", "use #![expect(.., reason = \"..\")]"),
    ("tod", "o!(", "finish it or leave it out"),
    ("unimple", "mented!(", "finish it or leave it out"),
    ("db", "g!(", "use tracing"),
    ("/ro", "ot/", "no paths of one person's machine"),
    ("/ho", "me/", "no paths of one person's machine"),
    ("/wo", "rk/", "no paths of one person's machine"),
    ("crates", ".io", "name the package, not the place it comes from"),
    ("pyp", "i.org", "name the package, not the place it comes from"),
    ("python", "hosted.org", "name the package, not the place it comes from"),
    ("npm", "js.org", "name the package, not the place it comes from"),
    ("deb.de", "bian.org", "name the package, not the place it comes from"),
];

/// Generated files: cargo's record of package sources.
const NOT_WRITTEN_HERE: &[&str] = &["Cargo.lock"];

fn without_head<'a>(sources: impl Iterator<Item = &'a File>) -> Vec<String> {
    sources
        .filter(|file| {
            let head = file.text.lines().next().and_then(|line| line.strip_prefix("//! "));
            head.is_none_or(|sentence| sentence.trim().len() < 10)
        })
        .map(|file| format!("{}: start with a `//!` sentence that says what it is", file.path))
        .collect()
}

fn too_long<'a>(sources: impl Iterator<Item = &'a File>) -> Vec<String> {
    sources
        .map(|file| (file, file.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| format!("{}: {lines} lines, at most {LINES_MAX}", file.path))
        .collect()
}

fn banned<'a>(files: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.filter(|file| !NOT_WRITTEN_HERE.contains(&file.path.as_str())) {
        for (first, second, instead) in BANNED {
            let text = [*first, *second].concat();
            for (index, _) in file.text.lines().enumerate().filter(|(_, l)| l.contains(&text)) {
                complaints.push(format!("{}:{}: `{text}`: {instead}", file.path, index + 1));
            }
        }
    }
    complaints
}

fn silent_sql<'a>(queries: impl Iterator<Item = &'a File>) -> Vec<String> {
    queries
        .filter(|file| !file.text.starts_with("--"))
        .map(|file| format!("{}: start with a `--` comment that says why", file.path))
        .collect()
}

#[test]
fn every_source_file_says_what_it_is() {
    assert_none(&without_head(repo::files_with("rs")));
}

#[test]
fn no_source_file_is_too_long_to_read() {
    assert_none(&too_long(repo::files_with("rs")));
}

#[test]
fn nothing_half_done_or_private_is_in_the_repository() {
    assert_none(&banned(repo::files().iter()));
}

#[test]
fn every_query_says_why() {
    assert_none(&silent_sql(repo::files_with("sql")));
}

#[test]
fn a_file_without_a_head_is_found() {
    for text in ["", "use x;\n", "//!\n", "//! Short.\n"] {
        assert_one(&without_head([File::example("a.rs", text)].iter()), "a.rs");
    }
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let long = "x\n".repeat(LINES_MAX + 1);
    assert_one(&too_long([File::example("a.rs", &long)].iter()), "601 lines");
    let just = "x\n".repeat(LINES_MAX);
    assert_none(&too_long([File::example("a.rs", &just)].iter()));
}

#[test]
fn every_banned_text_is_found_with_its_line() {
    for (first, second, _) in BANNED {
        let file = File::example("a.rs", &format!("fine\n  {first}{second}\n"));
        assert_one(&banned([file].iter()), "a.rs:2");
    }
}

#[test]
fn a_query_without_a_reason_is_found() {
    assert_one(&silent_sql([File::example("a.sql", "SELECT 1;\n")].iter()), "a.sql");
}
