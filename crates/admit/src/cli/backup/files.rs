//! Files and folders of a backup, readable only by this user and synced at the end.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::output::Failure;

/// Small files of a data folder that belong to the ledger.
const SMALL_FILES: [&str; 1] = ["ACTIVE_RUN_ID"];

/// Refuses a target that is not empty or inside a copied folder.
pub(super) fn check_target(to: &Path, sources: &[PathBuf]) -> Result<(), Failure> {
    let shown = to.display();
    match fs::read_dir(to).map(|mut entries| entries.next().is_none()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(to, &error)),
        Ok(true) => {}
        Ok(false) => {
            return Err(Failure::usage(format!(
                "{shown} is not empty\n  nothing was changed; give an empty folder, or one that does \
                 not exist"
            )));
        }
    }
    let absolute = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let target = absolute(to).map_err(|error| unreadable(to, &error))?;
    let is_within = |source: &PathBuf| absolute(source).is_ok_and(|dir| target.starts_with(dir));
    match sources.iter().find(|source| is_within(source)) {
        None => Ok(()),
        Some(source) => Err(Failure::usage(format!(
            "{shown} is inside {}, which is copied\n  nothing was changed; give another folder, \
             preferably on another disk",
            source.display()
        ))),
    }
}

/// Creates a folder with mode 0700, because raw bodies are confidential.
pub(super) fn private_folder(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| unwritable(path, &error))
}

/// Copies a file that does not change. Returns its size.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<u64, Failure> {
    fs::copy(from, to).map_err(|error| unwritable(to, &error))
}

/// Copies a file that is being appended to, up to its last complete line.
pub(super) fn copy_lines(from: &Path, to: &Path) -> Result<u64, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(from).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|error| unreadable(from, &error))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.truncate(whole);
    fs::write(to, &bytes).map_err(|error| unwritable(to, &error))?;
    Ok(bytes.len() as u64)
}

/// Copies the small files of a data folder, if they exist.
pub(super) fn copy_small(from: &Path, to: &Path) -> Result<(), Failure> {
    for name in SMALL_FILES {
        if exists(&from.join(name))? {
            copy_file(&from.join(name), &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a folder recursively. Returns the number of files and bytes.
pub(super) fn copy_all(from: &Path, to: &Path) -> Result<(u64, u64), Failure> {
    private_folder(to)?;
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(from).map_err(|error| unreadable(from, &error))? {
        let entry = entry.map_err(|error| unreadable(from, &error))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|error| unreadable(&from, &error))?;
        if kind.is_dir() {
            let below = copy_all(&from, &to)?;
            (files, bytes) = (files + below.0, bytes + below.1);
        } else if kind.is_file() {
            bytes += copy_file(&from, &to)?;
            files += 1;
        }
    }
    Ok((files, bytes))
}

/// Syncs the file system of a folder.
pub(super) fn sync_folder(dir: &Path) -> Result<(), Failure> {
    sync(dir).map_err(|error| unwritable(dir, &error))
}

#[cfg(target_os = "linux")]
fn sync(dir: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(dir)?)?)
}

/// Syncs all file systems; other platforms have no `syncfs`.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "same signature as on Linux")]
fn sync(_: &Path) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

pub(super) fn exists(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| unreadable(path, &error))
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::runtime(format!("cannot read {}: {error}", path.display()))
}

pub(super) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::runtime(format!(
        "cannot write {}: {error}\n  the backup is incomplete; remove it",
        path.display()
    ))
}
