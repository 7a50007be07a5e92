//! Skipped tests: a test that lacks a program or a capability of the machine.
//!
//! `ADMIT_TEST_STRICT=1` makes every skip a failure; the build machine sets it.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Environment variable that makes a skip a failure.
const STRICT: &str = "ADMIT_TEST_STRICT";

/// Reports a test as skipped because the machine lacks something.
///
/// # Panics
/// With `ADMIT_TEST_STRICT=1`.
pub fn skip(why: &str) {
    let is_strict = std::env::var(STRICT).is_ok_and(|value| value == "1");
    assert!(!is_strict, "{STRICT} is set, but {why}");
    report(why);
}

/// Reports that a test does not apply to this run, which is no failure anywhere.
pub fn not_applicable(why: &str) {
    report(why);
}

/// Writes a line to standard error, past the capture of the test runner, and to the file that
/// `ADMIT_TEST_SKIPPED` names, for runners that capture standard error too.
fn report(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).expect("standard error takes a line");
    if let Some(file) = std::env::var_os("ADMIT_TEST_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file takes a line");
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Runs in a process of its own, started below.
    #[test]
    fn a_test_that_lacks_a_program() {
        if std::env::var_os("ADMIT_TEST_OF_SKIP").is_some() {
            super::skip("the program is not installed");
        }
    }

    #[test]
    fn a_skip_is_a_failure_only_if_tests_are_strict() {
        for (strict, passes) in [(None, true), (Some("0"), true), (Some("1"), false)] {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "skip::tests::a_test_that_lacks_a_program"]);
            command.env("ADMIT_TEST_OF_SKIP", "1").env_remove(super::STRICT);
            command.envs(strict.map(|value| (super::STRICT, value)));
            let output = command.output().unwrap();
            assert_eq!(output.status.success(), passes, "{strict:?}: {output:?}");
            let reported = String::from_utf8_lossy(&output.stderr);
            assert_eq!(reported.contains("skipped: "), passes, "{strict:?}: {reported}");
        }
    }
}
