//! Notes the commit that the binary is built from, for `admit --version`.
//!
//! `ADMIT_COMMIT` wins, for packagers who build from an archive; without it and without git the
//! commit is `unknown`, and the build goes on.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=ADMIT_COMMIT");
    let given = std::env::var("ADMIT_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={commit}");
}

fn from_git() -> Option<String> {
    // Another commit is another binary; what else happens in the folder of git is not.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
