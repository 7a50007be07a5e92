//! Passes the git commit to the build, for `admit --version`.
//!
//! `ADMIT_COMMIT` takes precedence, for packagers who build from an archive. Without it and without git
//! the commit is `unknown`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=ADMIT_COMMIT");
    let given = std::env::var("ADMIT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={commit}");
}

fn from_git() -> Option<String> {
    // Rebuild when the commit changes, but not on other changes in the git folder.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
