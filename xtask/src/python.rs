//! The virtual environment with the Python packages that black-box tests start, in the user's cache.
//!
//! Like every other tool it is optional: whatever cannot be installed is said to be missing, and the
//! tests that want it say that they were skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::{Failed, Step, answers};

/// What is to be installed, with exact versions.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/python/requirements.txt");

/// Makes the environment, or brings it to what is required now.
pub(crate) fn install() {
    if let Err(Failed(why)) = try_install() {
        println!("setup: Python packages: {why}; tests that use them will say so");
    }
}

fn try_install() -> Result<(), Failed> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Failed(format!("{what}: {error}"))
    };
    let wanted = fs::read_to_string(REQUIREMENTS).map_err(failed(REQUIREMENTS))?;
    let folder = cache("python").ok_or_else(|| Failed("there is no cache folder".to_owned()))?;
    let installed = folder.join("installed.txt");
    // What was installed last is noted there, so that a second setup has nothing to do.
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(());
    }
    let python = folder.join("bin").join("python");
    // One that was left half made has no pip, and is made anew.
    if !answers(Command::new(&python).args(["-m", "pip", "--version"])) {
        Step::new("Python environment", "python3")
            .and(&["-m", "venv", "--clear", text(&folder)?])
            .run()?;
    }
    Step::new("Python packages", &python)
        .and(&["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .and(&["-r", REQUIREMENTS])
        .run()?;
    fs::write(&installed, wanted).map_err(failed("noting what was installed"))
}

/// A folder of ours in the user's cache.
pub(crate) fn cache(name: &str) -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match folder("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(folder("HOME")?).join(".cache"),
    };
    Some(cache.join("admit").join(name))
}

fn text(path: &Path) -> Result<&str, Failed> {
    path.to_str().ok_or_else(|| Failed(format!("{} is no plain text", path.display())))
}
