//! Files, folders and names that the documentation mentions exist.

use std::path::Path;

use super::repo::{self, File};
use super::{assert_none, assert_one};

/// Folders of the repository that a path can start with.
const FOLDERS: &[&str] = &["crates/", "xtask/", "tests/", "docs/", "deploy/", "proto/"];

/// Endings of files of ours that are mentioned by name alone.
const SOURCES: &[&str] = &[".rs", ".proto", ".py", ".lua", ".service"];

/// Beginnings of long names that are composed at run time, or belong to PostgreSQL.
const OTHER_NAMES: &[&str] = &["admit_", "_", "autovacuum_"];

/// What a page has in backticks, without its code blocks.
fn mentions(page: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if !in_code && !is_fence {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

fn is_path(mention: &str) -> bool {
    mention.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c))
}

/// A long name in snake case: a test, a config key, a column.
fn is_long_name(mention: &str) -> bool {
    mention.matches('_').count() >= 3
        && mention.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !OTHER_NAMES.iter().any(|start| mention.starts_with(start))
}

fn missing(page: &File, files: &[File], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let has_file = |name: &str| {
        files.iter().any(|file| file.path == name || file.path.ends_with(&format!("/{name}")))
    };
    let has_folder = |name: &str| files.iter().any(|file| file.path.contains(&format!("/{name}")));
    let has_name = |name: &str| files.iter().any(|file| !file.is("md") && file.text.contains(name));
    let is_map = page.path == "ARCHITECTURE.md";
    let mut complaints = Vec::new();
    for mention in mentions(&page.text) {
        let is_source =
            !mention.starts_with('.') && SOURCES.iter().any(|end| mention.ends_with(end));
        let is_there = if is_path(mention) && FOLDERS.iter().any(|start| mention.starts_with(start))
        {
            exists(Path::new(mention))
        } else if is_path(mention) && is_source {
            has_file(mention)
        } else if is_path(mention) && is_map && mention.len() > 1 && mention.ends_with('/') {
            has_folder(mention)
        } else {
            !is_long_name(mention) || has_name(mention)
        };
        if !is_there {
            complaints.push(format!("{}: there is no {mention}", page.path));
        }
    }
    complaints
}

#[test]
fn every_file_and_name_in_the_docs_exists() {
    let complaints: Vec<String> = repo::files_with("md")
        .flat_map(|page| missing(page, repo::files(), |path| repo::root().join(path).exists()))
        .collect();
    assert_none(&complaints);
}

#[test]
fn a_mention_of_a_missing_file_is_found() {
    let files = [File::example("crates/a/src/b.rs", "fn one_two_three_four() {}")];
    let page = |text: &str| File::example("ARCHITECTURE.md", text);
    let check = |text: &str| {
        missing(&page(text), &files, |path| files.iter().any(|file| Path::new(&file.path) == path))
    };
    assert_none(&check(
        "`crates/a/src/b.rs`, `b.rs`, `src/`, `one_two_three_four`, `Idempotency-Key`",
    ));
    assert_none(&check("```sh\n`crates/a/src/c.rs`\n```\n"));
    for wrong in ["`crates/a/src/c.rs`", "`c.rs`", "`source/`", "`one_two_three_five`"] {
        assert_one(&check(wrong), wrong.trim_matches('`'));
    }
}
