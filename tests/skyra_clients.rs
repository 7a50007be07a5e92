//! Third-party clients: Python's `websockets`, `grpcio`, and server reflection as grpcurl uses it.

use std::path::Path;

use crate::support::gate::Gate;
use crate::support::machine::{command, skip};
use crate::support::python;
use crate::support::skyra::inbox;

/// Exit code of a client whose package is not installed.
const MISSING: i32 = 77;

fn run(client: &str, words: &[&str]) -> bool {
    let Some(python) = python::program("python") else { return false };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = command(&python.to_string_lossy());
    // No generated file stays in the repository.
    command.arg("-B").arg(root.join("tests/clients").join(client)).args(words);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(MISSING) {
        skip(printed.trim());
        return false;
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.trim() == "ok", "{client}: {printed}{complaint}");
    true
}

#[test]
fn the_public_websockets_library_pipelines_and_reads_every_ack() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let url = format!("ws://{}/v1/ingress", gate.address());
    if run("skyra_websockets.py", &[&url]) {
        assert_eq!(inbox(folder.path()).len(), 501);
    }
    gate.stop();
}

#[test]
fn the_public_grpc_library_streams_with_stubs_generated_from_the_proto_file() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let words = [&gate.address().to_string(), proto.to_str().unwrap()];
    if run("skyra_grpc.py", &words) {
        assert_eq!(inbox(folder.path()).len(), 501);
    }
    gate.stop();
}

#[test]
fn a_generic_client_finds_the_service_by_reflection_and_calls_it() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    if run("skyra_reflection.py", &[&gate.address().to_string()]) {
        assert_eq!(inbox(folder.path()).len(), 1);
    }
    gate.stop();
}
