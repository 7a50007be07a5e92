//! Running one command after another, saying what runs and how long it took.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Why a developer command stopped, for people.
pub(crate) struct Failed(pub(crate) String);

/// One command with a name a person can find in the output.
pub(crate) struct Step {
    name: &'static str,
    command: Command,
}

impl Step {
    /// A step that runs `program`, which gets no standard input.
    pub(crate) fn new(name: &'static str, program: impl Into<OsString>) -> Self {
        let mut command = Command::new(program.into());
        command.stdin(Stdio::null());
        Self { name, command }
    }

    /// A step that runs the same cargo that runs us.
    pub(crate) fn cargo(name: &'static str, arguments: &[&str]) -> Self {
        Self::new(name, cargo()).and(arguments)
    }

    /// Adds arguments.
    pub(crate) fn and(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// With `is_strict`, a test that lacks a program or a service fails instead of being skipped.
    pub(crate) fn strict(self, is_strict: bool) -> Self {
        if is_strict { self.with("ADMIT_TEST_STRICT", "1") } else { self }
    }

    /// Runs it to its end. Anything but success stops the command it belongs to.
    pub(crate) fn run(mut self) -> Result<(), Failed> {
        println!("==> {}", self.name);
        let start = Instant::now();
        let status = self
            .command
            .status()
            .map_err(|error| Failed(format!("{} could not start: {error}", self.name)))?;
        let seconds = start.elapsed().as_secs_f64();
        if status.success() {
            println!("==> {} passed in {seconds:.1} s", self.name);
            Ok(())
        } else {
            Err(Failed(format!("{} failed after {seconds:.1} s ({status})", self.name)))
        }
    }
}

/// Whether `cargo <subcommand>` exists on this machine.
pub(crate) fn cargo_has(subcommand: &str) -> bool {
    answers(Command::new(cargo()).args([subcommand, "--version"]))
}

/// Whether `program` can be found, without running it.
pub(crate) fn program_exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps mkfs and losetup where an ordinary user's PATH does not look.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// Whether a command runs and succeeds; its output is nobody's business.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
