//! The house rules, as tests: because they are tests, nobody can forget to run them.
//!
//! Every rule is a pure function from files to complaints. Each rule has two tests: the repository
//! has none, and a bad example has one, so a rule that looks at nothing cannot pass for long.

mod codes;
mod docs;
mod edges;
mod mentions;
mod repo;
mod sources;
mod words;

/// Fails with one complaint a line, so that one run shows everything there is to fix.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The negative control: a bad example must be complained of, in words that contain `about`.
fn assert_one(complaints: &[String], about: &str) {
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains(about), "{:?} says nothing of {about:?}", complaints[0]);
}
