//! Third-party clients: the public CloudEvents SDK and the Standard Webhooks library.

use std::path::Path;

use crate::events::{DOOR, configured};
use crate::support::gate::Gate;
use crate::support::machine::{command, skip};
use crate::support::python;

/// Exit code of a client whose package is not installed.
const MISSING: i32 = 77;

/// Runs a client of `tests/clients`; skipped if the Python environment is missing.
fn run(client: &str, arguments: &[&str]) {
    let Some(python) = python::program("python") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let mut command = command(&python.to_string_lossy());
    // -B: write no bytecode into the repository.
    command.arg("-B").arg(folder.join(client)).args(arguments);
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(MISSING) {
        return skip(stdout.trim());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.trim() == "ok", "{client}: {stdout}{stderr}");
}

#[test]
fn the_public_cloudevents_sdk_works_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    run("cloudevents_modes.py", &[&format!("http://{}{DOOR}", gate.address())]);
}

#[test]
fn signatures_of_the_public_standard_webhooks_library_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) =
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
    std::fs::write(folder.path().join("new.secret"), format!("{new}\n")).unwrap();
    let gate = configured(
        folder.path(),
        &format!(
            "[[doors.events]]\nname = \"hooks\"\n\
             webhook_secrets = [\"{old}\", \"file:new.secret\"]\n"
        ),
    );
    let url = format!("http://{}/v1/events/hooks", gate.address());
    run("standard_webhooks.py", &[&url, old, new]);
}
