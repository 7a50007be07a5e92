//! Developer commands: `cargo xtask test`, `lint`, `tidy`, `setup`. Standard library only.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

mod node;
mod python;
mod setup;
mod steps;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use steps::{Failed, Step};

const HELP: &str = "\
Developer commands of Admit.

Usage: cargo xtask <COMMAND>

Commands:
  test [--filter TEXT]  install what tests need (when missing), then run all tests and doc tests;
                        --filter runs only the tests whose name contains TEXT
  lint                  rustfmt --check, clippy and rustdoc, warnings denied
  tidy                  only the house rules (they are tests and also run with `test`)
  setup                 only install what tests need beyond the Rust toolchain
  help                  this text

cargo-nextest is used when it is installed, with its `ci` profile when CI is set; else cargo test.
";

/// The exit code of a command line that cannot be understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] => test(None),
        ["test", "--filter", text] => test(Some(text)),
        ["lint"] => lint(),
        ["tidy"] => tidy(),
        ["setup"] => setup::install_what_is_missing(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => {
            eprint!("{HELP}");
            return ExitCode::from(USAGE);
        }
        other => {
            eprintln!("xtask: cannot understand `{}`\n\n{HELP}", other.join(" "));
            return ExitCode::from(USAGE);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that shows whether the house stands: unit, contract and black-box tests, tidy, docs.
fn test(filter: Option<&str>) -> Result<(), Failed> {
    setup::install_what_is_missing()?;
    let in_ci = std::env::var_os("CI").is_some();
    if steps::cargo_has("nextest") {
        // A filter names test functions; nextest knows no doc tests.
        if filter.is_none() {
            Step::cargo("doc tests", &["test", "--doc", "--workspace", "--all-features"]).run()?;
        }
        let profile = if in_ci { "ci" } else { "default" };
        return Step::cargo("tests", &["nextest", "run", "--workspace", "--all-features"])
            .and(&["--profile", profile])
            .and(filter.as_slice())
            .run();
    }
    let all_failures = if in_ci { &["--no-fail-fast"][..] } else { &[] };
    Step::cargo("tests and doc tests", &["test", "--workspace", "--all-features"])
        .and(all_failures)
        .and(filter.as_slice())
        .run()
}

fn lint() -> Result<(), Failed> {
    Step::cargo("format", &["fmt", "--all", "--check"]).run()?;
    Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--all-features"])
        .and(&["--", "-D", "warnings"])
        .run()?;
    // The readers of these pages work on the house, so links to its private rooms are welcome.
    Step::cargo("rustdoc", &["doc", "--workspace", "--all-features", "--no-deps"])
        .and(&["--document-private-items"])
        .with("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
        .run()
}

fn tidy() -> Result<(), Failed> {
    Step::cargo("tidy", &["test", "--package", "xtask"]).run()
}
