//! Virtual environment with the Python packages of the black-box tests, in the user's cache.
//!
//! Optional like every tool: a package that cannot be installed is reported as missing, and the tests that
//! need it are reported as skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{Step, StepFailed, answers};

/// Packages to install, with exact versions.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/python/requirements.txt");

/// Creates or updates the environment.
pub(crate) fn install() {
    if let Err(StepFailed(why)) = try_install() {
        println!("setup: Python packages: {why}; tests that use them will be skipped");
    }
}

fn try_install() -> Result<(), StepFailed> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| StepFailed(format!("{what}: {error}"))
    };
    let wanted = fs::read_to_string(REQUIREMENTS).map_err(failed(REQUIREMENTS))?;
    let folder =
        cache("python").ok_or_else(|| StepFailed("the user has no cache folder".to_owned()))?;
    let installed = folder.join("installed.txt");
    // The file records the installed packages, so that a second setup does nothing.
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    let python = folder.join("bin").join("python");
    // An incomplete environment has no pip and is recreated.
    if !answers(Command::new(&python).args(["-m", "pip", "--version"])) {
        Step::new("Python environment", "python3")
            .and(&["-m", "venv", "--clear", text(&folder)?])
            .run()?;
    }
    Step::new("Python packages", &python)
        .and(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .and(&["-r", REQUIREMENTS])
        .run()?;
    fs::write(&installed, wanted).map_err(failed("recording the installed packages"))
}

/// Folder of this tool in the user's cache.
pub(crate) fn cache(name: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match folder("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(folder("HOME")?).join(".cache"),
    };
    Some(cache.join("admit").join(name))
}

fn text(path: &Path) -> Result<&str, StepFailed> {
    path.to_str().ok_or_else(|| StepFailed(format!("the path {} is not UTF-8", path.display())))
}
