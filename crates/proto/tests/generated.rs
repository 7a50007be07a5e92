//! Checks that the generated code matches the `.proto` file.

use std::fs;
use std::path::Path;

use prost::Message as _;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
const GENERATED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/generated");

/// Compiled by a library, so no `protoc` is needed.
fn generate(into: &Path) {
    let files =
        protox::compile(["admit/v1/ingress.proto"], [ROOT]).expect("the proto file compiles");
    fs::write(into.join("ingress.bin"), files.encode_to_vec()).expect("it is written");
    tonic_prost_build::configure()
        .bytes(".admit.v1.Envelope")
        .emit_rerun_if_changed(false)
        .out_dir(into)
        .compile_fds(files)
        .expect("code is made of it");
}

#[test]
fn generated_code_matches_the_proto_file_and_is_regenerated_otherwise() {
    let fresh = tempfile::tempdir().expect("a folder");
    generate(fresh.path());
    let mut stale = Vec::new();
    for entry in fs::read_dir(fresh.path()).expect("it can be listed") {
        let name = entry.expect("an entry").file_name();
        let kept = Path::new(GENERATED).join(&name);
        let now = fs::read(fresh.path().join(&name)).expect("it was just written");
        if fs::read(&kept).ok().as_deref() != Some(now.as_slice()) {
            fs::write(&kept, now).expect("it can be written");
            stale.push(name);
        }
    }
    assert!(stale.is_empty(), "{stale:?} were out of date and have been regenerated: commit them");
}
