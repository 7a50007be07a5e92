//! The Node.js packages that tests start, in the user's cache.
//!
//! Like every other tool they are optional: whatever cannot be installed is said to be missing, and
//! the tests that want it say that they were skipped.

use std::fs;

use crate::python::cache;
use crate::steps::{Failed, Step};

/// What is to be installed, with its exact version.
const PACKAGE: &str = "kinesis-local@0.6.2";

/// Installs it, unless it is there.
pub(crate) fn install() {
    if let Err(Failed(why)) = try_install() {
        println!("setup: Node.js packages: {why}; tests that use them will say so");
    }
}

fn try_install() -> Result<(), Failed> {
    let folder = cache("node").ok_or_else(|| Failed("there is no cache folder".to_owned()))?;
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == PACKAGE) {
        return Ok(());
    }
    let failed = |error: std::io::Error| Failed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(failed)?;
    let place = folder.to_str().ok_or_else(|| Failed("the cache has no plain name".to_owned()))?;
    Step::new("Node.js packages", "npm")
        .and(&["install", "--prefix", place, "--no-audit", "--no-fund", "--ignore-scripts"])
        .and(&[PACKAGE])
        .run()?;
    fs::write(&installed, PACKAGE).map_err(failed)
}
