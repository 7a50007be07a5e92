//! Capabilities of the test machine, and helpers to run its programs.

use std::fs::OpenOptions;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use admit_testkit::rng::Rng;

/// A capability that not every machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requirement {
    /// Tracing the gate's system calls.
    Strace,
    /// Mounting file systems: root, and a kernel that permits it.
    Mount,
    /// A disk that loses its cache: FUSE, loop devices, nbdkit.
    PowerCut,
    /// Programs of Python packages.
    Python,
    /// The load generator wrk.
    Wrk,
    /// Prometheus and promtool.
    Prometheus,
}

impl Requirement {
    const fn required_by(self) -> &'static str {
        match self {
            Self::Strace => "ADMIT_TEST_REQUIRE_STRACE",
            Self::Mount => "ADMIT_TEST_REQUIRE_MOUNT",
            Self::PowerCut => "ADMIT_TEST_REQUIRE_POWER_CUT",
            Self::Python => "ADMIT_TEST_REQUIRE_PYTHON",
            Self::Wrk => "ADMIT_TEST_REQUIRE_WRK",
            Self::Prometheus => "ADMIT_TEST_REQUIRE_PROMETHEUS",
        }
    }
}

/// Reports a test as skipped; panics if an environment variable makes the capability required.
pub(crate) fn skip(need: Requirement, why: &str) {
    let variable = need.required_by();
    assert!(std::env::var_os(variable).is_none(), "{variable} is set, but {why}");
    report_skipped(why);
}

/// Writes `skipped: …` to standard error, past the capture of the test runner.
pub(crate) fn report_skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not eprintln: the test runner hides its output when the test passes.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    // For runners that capture standard error too.
    if let Some(file) = std::env::var_os("ADMIT_TEST_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}

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
