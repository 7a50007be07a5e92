//! Node.js packages of the tests, installed in the user's cache.
//!
//! Optional like every tool: a package that cannot be installed is reported as missing, and the tests that
//! need it are reported as skipped.

use std::fs;

use crate::python::cache;
use crate::steps::{Step, StepFailed};

/// Package to install, with its exact version.
const PACKAGE: &str = "kinesis-local@0.6.2";

/// Installs the package unless it is present.
pub(crate) fn install() {
    if let Err(StepFailed(why)) = try_install() {
        println!("setup: Node.js packages: {why}; tests that use them will be skipped");
    }
}

fn try_install() -> Result<(), StepFailed> {
    let folder =
        cache("node").ok_or_else(|| StepFailed("the user has no cache folder".to_owned()))?;
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == PACKAGE) {
        return Ok(());
    }
    let failed = |error: std::io::Error| StepFailed(format!("{}: {error}", folder.display()));
    fs::create_dir_all(&folder).map_err(failed)?;
    let place = folder
        .to_str()
        .ok_or_else(|| StepFailed("the path of the cache folder is not UTF-8".to_owned()))?;
    Step::new("Node.js packages", "npm")
        .and(&["install", "--prefix", place, "--no-audit", "--no-fund", "--ignore-scripts"])
        .and(&[PACKAGE])
        .run()?;
    fs::write(&installed, PACKAGE).map_err(failed)
}
