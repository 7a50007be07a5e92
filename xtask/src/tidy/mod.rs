//! House rules as tests, checked by every test run.
//!
//! Each rule is a pure function from files to complaints with two tests: the repository has no complaint,
//! and a bad example has one, so a rule that checks nothing fails.

mod codes;
mod docs;
mod edges;
mod mentions;
mod repo;
mod sources;
mod words;

/// Fails with one complaint per line, so that one run shows all of them.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Negative control: asserts that there is exactly one complaint, and that it contains `about`.
fn assert_one(complaints: &[String], about: &str) {
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].contains(about), "{:?} says nothing of {about:?}", complaints[0]);
}
