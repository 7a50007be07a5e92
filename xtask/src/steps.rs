//! Runs commands in sequence, and prints each with its duration.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Failure of a developer command, as a message.
pub(crate) struct StepFailed(pub(crate) String);

/// A command with a name that appears in the output.
pub(crate) struct Step {
    name: &'static str,
    command: Command,
}

impl Step {
    /// Creates a step that runs `program` without standard input.
    pub(crate) fn new(name: &'static str, program: impl Into<OsString>) -> Self {
        let mut command = Command::new(program.into());
        command.stdin(Stdio::null());
        Self { name, command }
    }

    /// Creates a step that runs the cargo that runs this program.
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

    /// Runs the command to its end. Any failure stops the developer command.
    pub(crate) fn run(mut self) -> Result<(), StepFailed> {
        println!("==> {}", self.name);
        let start = Instant::now();
        let status = self
            .command
            .status()
            .map_err(|error| StepFailed(format!("{} failed to start: {error}", self.name)))?;
        let seconds = start.elapsed().as_secs_f64();
        if status.success() {
            println!("==> {} passed in {seconds:.1} s", self.name);
            Ok(())
        } else {
            Err(StepFailed(format!("{} failed after {seconds:.1} s ({status})", self.name)))
        }
    }
}

/// Whether `cargo <subcommand>` exists on this machine.
pub(crate) fn cargo_has(subcommand: &str) -> bool {
    answers(Command::new(cargo()).args([subcommand, "--version"]))
}

/// Whether `program` is on the PATH; it is not run.
pub(crate) fn program_exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs mkfs and losetup outside of an ordinary user's PATH.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// Whether a command runs and succeeds; its output is discarded.
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
