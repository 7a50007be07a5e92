//! Every error code has a page that matches the code table.

use super::repo::{self, File};
use super::{assert_none, assert_one};

const TABLE: &str = "crates/core/src/code.rs";
const PAGES: &str = "docs/errors/";
const INDEX: &str = "docs/errors/README.md";

/// Sections of every page, in order.
const SECTIONS: &[&str] = &["## What happened", "## What was kept", "## What to do"];

/// Entry of the code table.
#[derive(Debug, PartialEq, Eq)]
struct Code {
    text: String,
    status: String,
    retry: String,
}

/// Reads the lines `Name "text" 400 Never;` of the `codes!` table.
fn table(source: &str) -> Vec<Code> {
    source
        .lines()
        .skip_while(|line| !line.starts_with("codes! {"))
        .take_while(|line| *line != "}")
        .filter_map(|line| {
            let words: Vec<&str> = line.trim().trim_end_matches(';').split(' ').collect();
            match words.as_slice() {
                [_, text, status, retry] if text.starts_with('"') => Some(Code {
                    text: text.trim_matches('"').into(),
                    status: (*status).into(),
                    retry: (*retry).into(),
                }),
                _ => None,
            }
        })
        .collect()
}

/// The first two lines of a code's page; they must match the table.
fn page_head(code: &Code) -> String {
    let retry = match code.retry.as_str() {
        "Never" => "A retry does not help.",
        "SameRequest" => "A retry of the same request is safe and may pass.",
        other => panic!("{TABLE} has an unknown retry class {other}; add its text to codes.rs"),
    };
    format!("# {}\n\nHTTP {}. {retry}\n", code.text, code.status)
}

/// Line of the index for a code.
fn index_line(code: &Code) -> String {
    let helps = if code.retry == "Never" { "no" } else { "yes" };
    format!("| [{0}]({0}.md) | {1} | {helps} |", code.text, code.status)
}

fn index_complaints(codes: &[Code], index: &str) -> Vec<String> {
    let lines: Vec<&str> = index.lines().filter(|line| line.starts_with("| [")).collect();
    let wanted: Vec<String> = codes.iter().map(index_line).collect();
    if lines == wanted {
        Vec::new()
    } else {
        vec![format!("{INDEX}: the table must be:\n{}", wanted.join("\n"))]
    }
}

fn page_complaints(codes: &[Code], files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for code in codes {
        let path = format!("{PAGES}{}.md", code.text);
        let Some(page) = files.iter().find(|file| file.path == path) else {
            complaints.push(format!("{path}: every code has a page, this one has none"));
            continue;
        };
        let head = page_head(code);
        if !page.text.starts_with(&head) {
            complaints.push(format!("{path}: must start with {head:?}"));
        }
        let places: Vec<_> = SECTIONS.iter().map(|section| page.text.find(section)).collect();
        if places.contains(&None) || !places.is_sorted() {
            complaints.push(format!("{path}: wants {} in this order", SECTIONS.join(", ")));
        }
    }
    for file in files.iter().filter(|file| file.path.starts_with(PAGES)) {
        let name = file.path.trim_start_matches(PAGES).trim_end_matches(".md");
        if name != "README" && !codes.iter().any(|code| code.text == name) {
            complaints.push(format!("{}: a page without a code", file.path));
        }
    }
    complaints
}

fn file(path: &str) -> &'static File {
    repo::files().iter().find(|file| file.path == path).expect(path)
}

#[test]
fn every_code_has_a_page_that_says_what_the_table_says() {
    let codes = table(&file(TABLE).text);
    assert!(codes.len() >= 17, "the table of {TABLE} could not be read: {codes:?}");
    assert_none(&page_complaints(&codes, repo::files()));
    assert_none(&index_complaints(&codes, &file(INDEX).text));
}

fn one_code() -> Vec<Code> {
    table("codes! {\n    /// Doc.\n    DiskFull \"disk_full\" 503 SameRequest;\n}\n")
}

fn its_page() -> String {
    format!("{}\n{}\n", page_head(&one_code()[0]), SECTIONS.join("\n\n"))
}

#[test]
fn the_table_is_read() {
    let [code] = one_code().try_into().expect("one line, one code");
    assert_eq!((code.text.as_str(), code.status.as_str()), ("disk_full", "503"));
    assert_none(&page_complaints(
        &[code],
        &[File::example("docs/errors/disk_full.md", &its_page())],
    ));
}

#[test]
fn an_index_that_leaves_a_code_out_is_found() {
    assert_one(&index_complaints(&one_code(), "# Codes\n"), "disk_full");
    let good = format!("# Codes\n{}\n", index_line(&one_code()[0]));
    assert_none(&index_complaints(&one_code(), &good));
}

#[test]
fn a_missing_stale_or_drifted_page_is_found() {
    assert_one(&page_complaints(&one_code(), &[]), "has none");
    assert_one(
        &page_complaints(&[], &[File::example("docs/errors/old.md", "# old\n")]),
        "without a code",
    );
    let drifted = File::example("docs/errors/disk_full.md", &its_page().replace("503", "500"));
    assert_one(&page_complaints(&one_code(), &[drifted]), "must start with");
    let silent = File::example("docs/errors/disk_full.md", &page_head(&one_code()[0]));
    assert_one(&page_complaints(&one_code(), &[silent]), "What was kept");
}
