//! Developer commands: `cargo xtask test`, `lint`, `tidy`, `setup`. Standard library only.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints")]

mod node;
mod python;
mod samples;
mod setup;
mod steps;
#[cfg(test)]
mod tidy;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use steps::{Step, StepFailed};

const HELP: &str = "\
Developer commands of Admit.

Usage: cargo xtask <COMMAND>

Commands:
  test [--filter TEXT]  install missing tools, then run all tests and doc tests;
                        --filter runs only the tests whose name contains TEXT
  test --ledger postgres [--filter TEXT]
                        the black-box contract tests on a temporary PostgreSQL server; `--ledger
                        sqlite` is the same as `test`
  lint                  rustfmt --check, clippy and rustdoc, warnings denied
  tidy                  only the house rules (they are tests and also run with `test`)
  comments [SEED]       print 30 random doc comments; SEED repeats an earlier sample
  setup                 install the tools that tests need beyond the Rust toolchain
  fixtures VERSION      regenerate the data folders of tests/fixtures/VERSION with this build; only for
                        an unreleased version (see tests/fixtures/README.md)
  help                  this text

cargo-nextest is used when it is installed, with its `ci` profile when CI is set; else cargo test.
";

/// Exit code of an invalid command line.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] | ["test", "--ledger", "sqlite"] => test(None),
        ["test", "--filter", text] | ["test", "--ledger", "sqlite", "--filter", text] => {
            test(Some(text))
        }
        ["test", "--ledger", "postgres"] => test_on_postgres(None),
        ["test", "--ledger", "postgres", "--filter", text] => test_on_postgres(Some(text)),
        ["lint"] => lint(),
        ["tidy"] => tidy(),
        ["comments"] => comments(random_seed()),
        ["comments", seed] => match seed.parse() {
            Ok(seed) => comments(seed),
            Err(_) => {
                Err(StepFailed(format!("`{seed}` is not a seed; give a number of up to 20 digits")))
            }
        },
        ["setup"] => setup::install_what_is_missing(),
        ["fixtures", version] => fixtures(version),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        [] => {
            eprint!("{HELP}");
            return ExitCode::from(USAGE);
        }
        other => {
            eprintln!("xtask: unknown command `{}`\n\n{HELP}", other.join(" "));
            return ExitCode::from(USAGE);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(StepFailed(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Features of a release. `kafka-tls` is not among them, because it needs a system library.
const FULL: &str = "admit/full";

/// Runs all checks: unit, contract and black-box tests, tidy, docs.
fn test(filter: Option<&str>) -> Result<(), StepFailed> {
    setup::install_what_is_missing()?;
    let in_ci = std::env::var_os("CI").is_some();
    if steps::cargo_has("nextest") {
        // A filter selects test functions; nextest runs no doc tests.
        if filter.is_none() {
            Step::cargo("doc tests", &["test", "--doc", "--workspace", "--features", FULL])
                .run()?;
        }
        let profile = if in_ci { "ci" } else { "default" };
        let skipped = SkippedTests::new();
        let tests = Step::cargo("tests", &["nextest", "run", "--workspace", "--features", FULL])
            .and(&["--profile", profile])
            .strict(in_ci)
            .and(filter.as_slice())
            .with("ADMIT_TEST_SKIPPED", &skipped.path.to_string_lossy())
            .run();
        skipped.report();
        return tests;
    }
    let all_failures = if in_ci { &["--no-fail-fast"][..] } else { &[] };
    Step::cargo("tests and doc tests", &["test", "--workspace", "--features", FULL])
        .and(all_failures)
        .strict(in_ci)
        .and(filter.as_slice())
        .run()
}

/// Tests skipped on this machine. cargo-nextest hides the output of tests that pass.
struct SkippedTests {
    path: PathBuf,
}

impl SkippedTests {
    fn new() -> Self {
        let name = format!("admit-skipped-{}", std::process::id());
        Self { path: std::env::temp_dir().join(name) }
    }

    fn report(self) {
        // The file exists only if a test was skipped.
        if let Ok(lines) = fs::read_to_string(&self.path) {
            print!("{lines}");
            fs::remove_file(&self.path).unwrap_or_default();
        }
    }
}

/// Modules of the black-box tests that must pass on every ledger: behaviour of the doors, and crash
/// recovery. Tests of the embedded ledger's file (disk, syncs, power cut), of the edge outbox and of the
/// transport are not included.
const CONTRACT_TESTS: &[&str] = &[
    "abuse::",
    "closure::",
    "crash::",
    "events::",
    "events_out::",
    "ingest::",
    "ingest_crash::",
    "intents::",
    "intents_crash::",
    "pixel_control::",
    "rounds::",
    "rounds_files::",
    "rounds_import::",
    "rounds_published::",
    "runs::",
    "skyra::",
    "skyra_crash::",
    "skyra_inbox::",
    "stream::",
];

/// Runs the black-box contract tests on PostgreSQL: a difference to the embedded ledger is a defect. The
/// contract suites of the ports run on both ledgers in every `test`.
fn test_on_postgres(filter: Option<&str>) -> Result<(), StepFailed> {
    setup::install_what_is_missing()?;
    // The same arguments as in `test`, so that nothing is compiled twice.
    let tests = ["test", "--workspace", "--features", FULL, "--test", "blackbox"];
    let in_ci = std::env::var_os("CI").is_some();
    let all_failures = if in_ci { &["--no-fail-fast"][..] } else { &[] };
    let names = filter.map_or(CONTRACT_TESTS.to_vec(), |filter| vec![filter]);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    Step::cargo("contract tests on PostgreSQL", &["run", "--quiet"])
        .and(&["--package", "admit-testkit", "--example", "with_postgres", "--", &cargo])
        .and(&tests)
        .and(all_failures)
        .strict(in_ci)
        // These tests start their own server on every ledger.
        .and(&["--", "--skip", "many_gates", "--skip", "edge"])
        .and(&names)
        .run()
}

fn lint() -> Result<(), StepFailed> {
    Step::cargo("format", &["fmt", "--all", "--check"]).run()?;
    Step::cargo("clippy", &["clippy", "--workspace", "--all-targets", "--features", FULL])
        .and(&["--", "-D", "warnings"])
        .run()?;
    // These pages are for developers, so links to private items are allowed.
    Step::cargo("rustdoc", &["doc", "--workspace", "--features", FULL, "--no-deps"])
        .and(&["--document-private-items"])
        .with("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")
        .run()
}

/// Runs the test that writes fixtures, so that it writes its archives into the repository.
fn fixtures(version: &str) -> Result<(), StepFailed> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(version);
    fs::create_dir_all(&root)
        .map_err(|error| StepFailed(format!("{}: {error}", root.display())))?;
    let tests = ["test", "--workspace", "--features", FULL, "--test", "blackbox", "--"];
    Step::cargo("fixtures", &tests)
        .and(&["upgrade::the_maker_of_fixtures"])
        .with("ADMIT_MAKE_FIXTURES", &root.to_string_lossy())
        .run()
}

fn tidy() -> Result<(), StepFailed> {
    Step::cargo("tidy", &["test", "--package", "xtask"]).run()
}

/// Number of doc comments that `comments` prints.
const SAMPLE: usize = 30;

/// Prints random doc comments for review.
fn comments(seed: u64) -> Result<(), StepFailed> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(&root)
        .output()
        .map_err(|error| StepFailed(format!("git failed to start: {error}")))?;
    let mut all = Vec::new();
    for path in String::from_utf8_lossy(&listed.stdout).lines() {
        // A deleted file that is not committed yet is listed too.
        if let Ok(source) = fs::read_to_string(root.join(path)) {
            all.extend(samples::doc_comments(path, &source));
        }
    }
    println!("seed {seed}, {SAMPLE} of {} doc comments", all.len());
    for comment in samples::sample(&all, SAMPLE, seed) {
        println!("\n{}\n{}", comment.place, comment.text);
    }
    Ok(())
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(SAMPLE)
}
