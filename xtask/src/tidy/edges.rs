//! Dependencies point inward, and the inner crates do no IO.
//!
//! `admit → gate, runs → contracts → core` and `ledger, bus, artifacts → core`: inner crates do not depend
//! on outer ones, so the rules can run anywhere, including a simulator.

use super::repo::{self, File};
use super::{assert_none, assert_one};

/// Crates of the workspace that each crate may use. Add a line for a new crate in the same change.
const ALLOWED: &[(&str, &[&str])] = &[
    ("admit-core", &[]),
    ("admit-artifacts", &["admit-core"]),
    ("admit-bus", &["admit-core"]),
    ("admit-contracts", &["admit-core"]),
    ("admit-ledger", &["admit-core", "admit-sqlite-log"]),
    ("admit-proto", &[]),
    ("admit-sqlite-log", &[]),
    (
        "admit-gate",
        &[
            "admit-artifacts",
            "admit-bus",
            "admit-contracts",
            "admit-core",
            "admit-ledger",
            "admit-proto",
        ],
    ),
    ("admit-edge", &["admit-core", "admit-proto"]),
    (
        "admit-runs",
        &["admit-artifacts", "admit-bus", "admit-contracts", "admit-core", "admit-ledger"],
    ),
    (
        "admit-testkit",
        &["admit-artifacts", "admit-bus", "admit-contracts", "admit-core", "admit-ledger"],
    ),
    // The only crate that assembles all parts.
    (
        "admit",
        &[
            "admit-artifacts",
            "admit-bus",
            "admit-contracts",
            "admit-core",
            "admit-edge",
            "admit-gate",
            "admit-ledger",
            "admit-proto",
            "admit-runs",
        ],
    ),
    ("xtask", &[]),
];

/// Shared test tools: allowed in the tests of any crate, not in product code.
const TESTS_ONLY: &str = "admit-testkit";

/// Crates whose output must depend on their input only.
const PURE: &[&str] = &["crates/core/src/", "crates/contracts/src/"];

/// IO, time and randomness APIs, forbidden in the product code of the pure crates.
const OUTSIDE: &[&str] = &[
    "tokio",
    "rusqlite",
    "axum",
    "hyper",
    "reqwest",
    "getrandom",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "std::os",
    "SystemTime",
    "Instant::now",
];

/// A dependency declared in a manifest.
struct Edge {
    from: String,
    to: String,
    tests_only: bool,
}

fn package_name(manifest: &str) -> Option<String> {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = "))?;
    Some(name.trim().trim_matches('"').to_owned())
}

/// Returns the dependencies of a manifest. Supports the subset of TOML that the workspace uses.
fn edges(manifest: &str) -> Vec<Edge> {
    let Some(from) = package_name(manifest) else { return Vec::new() };
    let mut found = Vec::new();
    let mut section = String::new();
    let mut add = |to: &str, section: &str| {
        let tests_only = section.contains("dev-dependencies");
        found.push(Edge { from: from.clone(), to: to.trim_matches('"').to_owned(), tests_only });
    };
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            if let Some((_, name)) = section.split_once("dependencies.") {
                add(name, &section);
            }
        } else if section.ends_with("dependencies")
            && !line.starts_with('#')
            && let Some(end) = line.find(['=', '.', ' '])
        {
            add(&line[..end], &section);
        }
    }
    found
}

fn outward_edges<'a>(manifests: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in manifests {
        let Some(name) = package_name(&file.text) else { continue };
        let Some((_, allowed)) = ALLOWED.iter().find(|(from, _)| *from == name) else {
            complaints.push(format!("{}: {name} has no line in ALLOWED of edges.rs", file.path));
            continue;
        };
        for edge in edges(&file.text) {
            let ours = ALLOWED.iter().any(|(from, _)| *from == edge.to);
            let test_tool = edge.tests_only && edge.to == TESTS_ONLY;
            let to_itself = edge.tests_only && edge.to == edge.from;
            if ours && !test_tool && !to_itself && !allowed.contains(&edge.to.as_str()) {
                complaints.push(format!("{}: {} may not use {}", file.path, edge.from, edge.to));
            }
        }
    }
    complaints
}

/// Numbered lines of product code: without comments, up to the first test module.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .enumerate()
        .map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

fn reaches_outside<'a>(sources: impl Iterator<Item = &'a File>) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in sources {
        let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
        if is_test || !PURE.iter().any(|folder| file.path.starts_with(folder)) {
            continue;
        }
        for (number, line) in product_lines(&file.text) {
            for outside in OUTSIDE.iter().filter(|outside| line.contains(**outside)) {
                complaints.push(format!(
                    "{}:{number}: {outside} in a crate that does no IO and reads no clock",
                    file.path
                ));
            }
        }
    }
    complaints
}

/// The one crate that may hold unsafe code (docs/decisions/0036). Its manifest cannot inherit the lints of
/// the workspace except one, so it repeats them.
const WITH_UNSAFE: &str = "crates/sqlite-log/Cargo.toml";

fn without_house_lints<'a>(manifests: impl Iterator<Item = &'a File>) -> Vec<String> {
    let house = house_lints();
    let lacks = |file: &File| -> Vec<String> {
        if file.path != WITH_UNSAFE {
            let takes_all = file.text.contains("[lints]\nworkspace = true");
            return if takes_all {
                Vec::new()
            } else {
                vec!["[lints] workspace = true".to_owned()]
            };
        }
        house.iter().filter(|lint| !file.text.contains(*lint)).cloned().collect()
    };
    manifests
        .filter(|file| package_name(&file.text).is_some())
        .flat_map(|file| lacks(file).into_iter().map(|lint| format!("{}: add `{lint}`", file.path)))
        .collect()
}

/// Lines of the workspace lints, except for the ban on unsafe code.
fn house_lints() -> Vec<String> {
    let house = manifests().find(|file| file.path == "Cargo.toml").map_or("", |file| &file.text);
    let mut is_lint = false;
    let lines = house.lines().filter(|line| {
        if line.starts_with('[') {
            is_lint = line.starts_with("[workspace.lints");
            return false;
        }
        is_lint && !line.is_empty() && !line.starts_with("unsafe_code")
    });
    lines.map(str::to_owned).collect()
}

fn manifests() -> impl Iterator<Item = &'static File> {
    repo::files_with("toml").filter(|file| file.path.ends_with("Cargo.toml"))
}

#[test]
fn dependencies_point_inward() {
    assert_none(&outward_edges(manifests()));
}

#[test]
fn the_core_and_the_contracts_do_no_io_and_read_no_clock() {
    assert_none(&reaches_outside(repo::files_with("rs")));
}

#[test]
fn every_crate_takes_the_house_lints() {
    assert_none(&without_house_lints(manifests()));
}

#[test]
fn the_crate_with_unsafe_code_takes_all_the_others() {
    let lints = house_lints();
    assert!(lints.len() > 10, "the house has lints: {lints:?}");
    let all = format!("[package]\nname = \"admit-sqlite-log\"\n{}\n", lints[1..].join("\n"));
    let file = File::example(WITH_UNSAFE, &all);
    assert_one(&without_house_lints([file].iter()), &lints[0]);
}

#[test]
fn an_outward_dependency_is_found_in_every_spelling() {
    for line in [
        "[dependencies]\nadmit-gate.workspace = true",
        "[dependencies]\nadmit-gate = { path = \"../gate\" }",
        "[dependencies.admit-gate]\nworkspace = true",
        "[dev-dependencies]\nadmit-gate.workspace = true",
        "[target.'cfg(unix)'.dependencies]\nadmit-gate.workspace = true",
        "[dependencies]\nadmit-testkit.workspace = true",
    ] {
        let text = format!("[package]\nname = \"admit-core\"\n\n{line}\n");
        let file = File::example("crates/core/Cargo.toml", &text);
        assert_one(&outward_edges([file].iter()), "admit-core may not use");
    }
}

#[test]
fn a_crate_without_a_layer_is_found() {
    let file = File::example("crates/new/Cargo.toml", "[package]\nname = \"admit-new\"\n");
    assert_one(&outward_edges([file].iter()), "admit-new");
}

#[test]
fn io_in_the_core_is_found_but_not_in_its_tests_or_comments() {
    let text = "//! Never std::fs.\nuse std::fs;\n#[cfg(test)]\nmod tests { use std::fs; }\n";
    let file = File::example("crates/core/src/x.rs", text);
    assert_one(&reaches_outside([file].iter()), "crates/core/src/x.rs:2: std::fs");
}

#[test]
fn a_crate_without_the_house_lints_is_found() {
    let file = File::example("crates/x/Cargo.toml", "[package]\nname = \"x\"\n");
    assert_one(&without_house_lints([file].iter()), "lints");
}
