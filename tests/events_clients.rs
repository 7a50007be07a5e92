//! Clients that nobody here wrote: the public CloudEvents SDK and the Standard Webhooks library.

use std::path::Path;

use crate::events::{DOOR, configured};
use crate::support::gate::Gate;
use crate::support::machine::{Need, command, skip};
use crate::support::python;

/// What a client exits with when its package is not installed.
const MISSING: i32 = 77;

/// Runs a client of `tests/clients` to its end, unless this machine has no environment for it.
fn run(client: &str, words: &[&str]) {
    let Some(python) = python::program("python") else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let mut command = command(&python.to_string_lossy());
    // Nothing of a run stays in the repository.
    command.arg("-B").arg(folder.join(client)).args(words);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(MISSING) {
        return skip(Need::Python, said.trim());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim() == "ok", "{client}: {said}{complaint}");
}

#[test]
fn the_public_cloudevents_sdk_is_understood_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    run("cloudevents_modes.py", &[&format!("http://{}{DOOR}", gate.address())]);
}

#[test]
fn the_public_standard_webhooks_library_signs_what_we_verify() {
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
