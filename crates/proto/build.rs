//! Generates the messages and services. Compiled by a library, so no `protoc` is needed.

use std::error::Error;
use std::path::Path;

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    const ROOT: &str = "../../proto";
    const FILE: &str = "../../proto/admit/v1/ingress.proto";
    println!("cargo::rerun-if-changed={ROOT}");
    let files = protox::compile([FILE], [ROOT])?;
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("ingress.bin"), files.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".admit.v1.Envelope").compile_fds(files)?;
    Ok(())
}
