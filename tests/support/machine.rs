//! What this machine can do, what it cannot, and small programs of it.

use std::fs::OpenOptions;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use admit_testkit::rng::Rng;

/// Something not every machine allows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// Tracing the gate's system calls.
    Strace,
    /// Mounting file systems: root and a kernel that lets it.
    Mount,
    /// A disk whose cache can be lost: FUSE, loop devices, nbdkit.
    PowerCut,
    /// Programs of Python packages.
    Python,
    /// A program that sends requests fast.
    Wrk,
}

impl Need {
    const fn required_by(self) -> &'static str {
        match self {
            Self::Strace => "ADMIT_TEST_REQUIRE_STRACE",
            Self::Mount => "ADMIT_TEST_REQUIRE_MOUNT",
            Self::PowerCut => "ADMIT_TEST_REQUIRE_POWER_CUT",
            Self::Python => "ADMIT_TEST_REQUIRE_PYTHON",
            Self::Wrk => "ADMIT_TEST_REQUIRE_WRK",
        }
    }
}

/// Says that a test was skipped and why, where the test runner does not swallow it.
pub(crate) fn skip(need: Need, why: &str) {
    let variable = need.required_by();
    assert!(std::env::var_os(variable).is_none(), "{variable} is set, but {why}");
    left_out(why);
}

/// Says why a test was left out, where the test runner does not swallow it.
pub(crate) fn left_out(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not eprintln: its output would be kept back, as the test passes.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    // A runner that keeps all of it back has somebody who reads this file in the end.
    if let Some(file) = std::env::var_os("ADMIT_TEST_SKIPPED") {
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}

/// Whether `program` is on this machine, also where only root's PATH looks.
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

/// Runs a program to its end; its standard output, or what it complained about.
pub(crate) fn run<const N: usize>(program: &str, arguments: [&str; N]) -> Result<String, String> {
    let output = command(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program} could not start: {error}"))?;
    said(program, &output)
}

/// A command that finds what lies in root's folders and reads nothing.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
    command
}

fn said(program: &str, output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let complaint = text(&output.stderr);
    Err(format!("{program} failed ({}): {}", output.status, complaint.trim()))
}

/// Sends a signal (`TERM`, `KILL`) to one process.
pub(crate) fn signal(pid: u32, name: &str) {
    // The shell's own kill: every machine has one.
    let script = format!("kill -{name} {pid}");
    run("sh", ["-c", &script]).unwrap();
}

/// The path as the text that programs want.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are plain text")
}

/// A generator for what is random in a test. The seed is printed when the test fails.
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
    eprintln!("to repeat what was random here: ADMIT_TEST_SEED={seed}");
    Rng::seeded(seed)
}
