//! Python programs in the virtual environment that `cargo xtask setup` creates.

use std::path::PathBuf;

use super::machine::skip;

/// Returns the path of a program in the environment; `None` (reported as skipped) if it is missing.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = environment().map(|folder| folder.join("bin").join(name));
    let found = path.filter(|path| path.is_file());
    if found.is_none() {
        skip(&format!("{name} is not installed; `cargo xtask setup` installs it"));
    }
    found
}

/// Path of the environment: in the user's cache, so that a clone stays clean.
fn environment() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match folder("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(folder("HOME")?).join(".cache"),
    };
    Some(cache.join("admit").join("python"))
}
