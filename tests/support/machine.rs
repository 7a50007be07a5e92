//! Capabilities of the test machine, and helpers to run its programs.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use admit_testkit::rng::Rng;
pub(crate) use admit_testkit::skip::{not_applicable, skip};

/// Whether `program` is installed; also looks in the sbin folders.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    run("id", ["-u"]).is_ok_and(|id| id.trim() == "0")
}

/// Runs a program; returns its standard output, or its standard error if it fails.
pub(crate) fn run<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String, String> {
    let output = command(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program} could not start: {error}"))?;
    checked_output(program, &output)
}

/// A command with the sbin folders on its PATH and an empty standard input.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
    command
}

fn checked_output(program: &str, output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let stderr = text(&output.stderr);
    Err(format!("{program} failed ({}): {}", output.status, stderr.trim()))
}

/// Sends a signal (`TERM`, `KILL`) to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    // `kill` is a builtin of every shell.
    let script = format!("kill -{name} {pid}");
    run("sh", ["-c", &script]).unwrap();
}

/// The path as UTF-8.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Random number generator of a test. The seed is printed when the test fails.
pub(crate) fn rng() -> Rng {
    static DRAWN: AtomicU32 = AtomicU32::new(0);
    let drawn = || {
        let count = DRAWN.fetch_add(1, Ordering::Relaxed);
        RandomState::new().hash_one((std::process::id(), count)) >> 1
    };
    let seed = match std::env::var("ADMIT_TEST_SEED") {
        Ok(text) => text.parse().expect("ADMIT_TEST_SEED is a number"),
        Err(_) => drawn(),
    };
    eprintln!("to repeat this run: ADMIT_TEST_SEED={seed}");
    Rng::seeded(seed)
}
