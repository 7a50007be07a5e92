//! References in the documentation: links, headings, variables and tests must exist.

use std::path::{Component, Path, PathBuf};

use super::repo::{self, File};
use super::{assert_none, assert_one};

const REFERENCE: &str = "crates/admit/admit.toml";

/// Environment variables that are no config keys.
const OTHER_VARIABLES: &[&str] = &["ADMIT_CONFIG", "ADMIT_COMMIT", "ADMIT_KEY"];

/// Environment variables of test runs; the binary ignores them.
const TEST_VARIABLES: &str = "ADMIT_TEST_";

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const INVARIANTS: usize = 9;

/// Targets of `[text](target)` links within the repository.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            let target = &rest[..rest.find(')').unwrap_or(rest.len())];
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target);
            }
        }
    }
    found
}

/// Normalises a path: `docs/../README.md` to `README.md`. A path out of the repository is unchanged.
fn tidy_path(path: &Path) -> PathBuf {
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(parts.last(), Some(Component::Normal(_))) => {
                parts.pop();
            }
            part @ (Component::Prefix(_)
            | Component::RootDir
            | Component::ParentDir
            | Component::Normal(_)) => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// Anchor of a Markdown heading.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn broken_links(pages: &[File], exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for page in pages {
        for link in links(&page.text) {
            let (target, wanted) = link.split_once('#').unwrap_or((link, ""));
            let path = match target {
                "" => PathBuf::from(&page.path),
                target => tidy_path(&page.folder().join(target)),
            };
            if !exists(&path) {
                complaints.push(format!("{}: the link to {link} is broken", page.path));
                continue;
            }
            let known = pages.iter().find(|other| Path::new(&other.path) == path);
            let has_anchor = known.is_none_or(|other| {
                let mut headings = other.text.lines().filter(|line| line.starts_with('#'));
                wanted.is_empty() || headings.any(|heading| anchor(heading) == wanted)
            });
            if !has_anchor {
                complaints.push(format!("{}: the heading of {link} does not exist", page.path));
            }
        }
    }
    complaints
}

/// Pages in `docs` without a link from another page.
fn lost_pages(pages: &[File]) -> Vec<String> {
    let leads_to = |target: &File| {
        pages.iter().filter(|page| page.path != target.path).any(|page| {
            links(&page.text).into_iter().any(|link| {
                let (path, _) = link.split_once('#').unwrap_or((link, ""));
                tidy_path(&page.folder().join(path)) == Path::new(&target.path)
            })
        })
    };
    pages
        .iter()
        .filter(|page| page.path.starts_with("docs/") && !leads_to(page))
        .map(|page| format!("{}: no page links to this page", page.path))
        .collect()
}

/// Environment variables of the keys in the reference config.
fn known_variables(reference: &str) -> Vec<String> {
    let mut section = String::new();
    let mut known: Vec<String> = OTHER_VARIABLES.iter().map(|&name| name.to_owned()).collect();
    for line in reference.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        let name = |path: &str| {
            format!("ADMIT_{}", path.replace('.', "__").replace('-', "_").to_ascii_uppercase())
        };
        if let Some(header) = line.strip_prefix('[') {
            header.trim_matches(['[', ']']).clone_into(&mut section);
            known.push(name(&section));
        } else if let Some((key, _)) = line.split_once(" = ") {
            let dot = if section.is_empty() { "" } else { "." };
            known.push(name(&format!("{section}{dot}{key}")));
        }
    }
    known
}

fn unknown_variables<'a>(pages: impl Iterator<Item = &'a File>, known: &[String]) -> Vec<String> {
    let mut complaints = Vec::new();
    for page in pages {
        for (at, _) in page.text.match_indices("ADMIT_") {
            let end = page.text[at..]
                .find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_')
                .map_or(page.text.len(), |length| at + length);
            let name = &page.text[at..end];
            let of_tests = name.starts_with(TEST_VARIABLES);
            if name != "ADMIT_" && !of_tests && !known.iter().any(|known| known == name) {
                complaints.push(format!("{}: {name} is not a key of {REFERENCE}", page.path));
            }
        }
    }
    complaints
}

/// Numbered invariants in ARCHITECTURE.md.
fn invariants(page: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|section| section.starts_with("Invariants"));
    let mut found: Vec<String> = Vec::new();
    for line in section.unwrap_or_default().lines() {
        let number = format!("{}. **", found.len() + 1);
        if line.starts_with(&number) {
            found.push(line.to_owned());
        } else if line.starts_with("   ")
            && let Some(invariant) = found.last_mut()
        {
            invariant.push(' ');
            invariant.push_str(line.trim());
        }
    }
    found
}

/// Names of tests in backticks, recognised by their length.
fn tests_named(text: &str) -> impl Iterator<Item = &str> {
    let is_test = |name: &&str| {
        name.matches('_').count() >= 3
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_test)
}

fn unheld_invariants(page: &str, sources: &[&File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for invariant in invariants(page) {
        let title: String = invariant.chars().take(40).collect();
        if tests_named(&invariant).next().is_none() && !invariant.contains("nothing to hold yet") {
            complaints.push(format!("{ARCHITECTURE}: `{title}…` names no test that holds it"));
        }
    }
    for name in tests_named(page) {
        let definition = format!("fn {name}(");
        if !sources.iter().any(|file| file.text.contains(&definition)) {
            complaints.push(format!("{ARCHITECTURE}: there is no test {name}"));
        }
    }
    complaints
}

#[test]
fn every_invariant_names_tests_that_exist() {
    let page = repo::files().iter().find(|file| file.path == ARCHITECTURE).expect(ARCHITECTURE);
    assert_eq!(invariants(&page.text).len(), INVARIANTS, "the page could not be read");
    let sources: Vec<&File> = repo::files_with("rs").collect();
    assert_none(&unheld_invariants(&page.text, &sources));
}

#[test]
fn an_invariant_that_nothing_holds_is_found() {
    let source = File::example("a.rs", "#[test]\nfn one_two_three_four() {}\n");
    let page =
        |held: &str| format!("# A\n\n## Invariants\n\n1. **One.** Text\n   {held}\n\n## B\n");
    assert_none(&unheld_invariants(&page("`one_two_three_four`"), &[&source]));
    assert_one(&unheld_invariants(&page("unknown"), &[&source]), "names no test");
    assert_one(&unheld_invariants(&page("`one_two_three_five`"), &[&source]), "there is no test");
}

#[test]
fn every_link_in_the_docs_leads_somewhere() {
    let pages: Vec<File> = repo::files_with("md").cloned().collect();
    assert_none(&broken_links(&pages, |path| repo::root().join(path).exists()));
}

#[test]
fn every_page_of_the_docs_can_be_found() {
    let pages: Vec<File> = repo::files_with("md").cloned().collect();
    assert_none(&lost_pages(&pages));
}

#[test]
fn a_page_without_links_to_it_is_found() {
    let index = File::example("README.md", "[b](docs/b.md#x)");
    let page = |path: &str| File::example(path, "# Page\n");
    assert_none(&lost_pages(&[index.clone(), page("docs/b.md")]));
    assert_one(&lost_pages(&[index, page("docs/b.md"), page("docs/c.md")]), "docs/c.md");
}

#[test]
fn every_variable_in_the_docs_is_a_config_key() {
    let reference =
        repo::files().iter().find(|file| file.path == REFERENCE).expect("the reference config");
    let known = known_variables(&reference.text);
    assert!(known.iter().any(|name| name == "ADMIT_LISTEN"), "{known:?}");
    assert!(known.iter().any(|name| name == "ADMIT_LEDGER__URL"), "{known:?}");
    assert_none(&unknown_variables(repo::files_with("md"), &known));
}

#[test]
fn a_broken_link_is_found_and_a_good_one_is_not() {
    let page = |text: &str| vec![File::example("docs/a.md", text)];
    let only_b = |path: &Path| path == Path::new("docs/b.md") || path == Path::new("docs/a.md");
    assert_one(&broken_links(&page("see [c](c.md)"), only_b), "c.md is broken");
    assert_one(&broken_links(&page("see [a](#not-there)"), only_b), "does not exist");
    assert_none(&broken_links(&page("[b](b.md) [b](../docs/b.md) [w](https://x.test)"), only_b));
    assert_none(&broken_links(&page("# A word\n[here](#a-word)\n```\n[x](y)\n```"), only_b));
}

#[test]
fn a_misspelt_variable_is_found() {
    let known = known_variables("listen = \"x\"\n[doors.pixel-control]\n# schema = \"x\"\n");
    let page = |text: &str| [File::example("a.md", text)];
    assert_one(&unknown_variables(page("set ADMIT_LISTN=x").iter(), &known), "ADMIT_LISTN");
    let good = "ADMIT_LISTEN, ADMIT_DOORS__PIXEL_CONTROL__SCHEMA=strict";
    assert_none(&unknown_variables(page(good).iter(), &known));
}
