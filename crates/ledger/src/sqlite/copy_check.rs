//! Detects a data folder that is a copy of another one.
//!
//! `ledger.place` beside `ledger.id` holds the creation time of `ledger.db`, or its inode if the file
//! system has none. A copied folder has the same text and another file. A copy made while a gate was
//! writing may be torn, and has to be verified completely before it is served.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::{OpenError, open};

/// The name of the file.
const NAME: &str = "ledger.place";

/// Content of the file in a folder that no gate has served yet.
const NOT_CHECKED: &str = "copied\n";

/// Whether the folder is a copy that was not verified yet.
pub fn is_copy(dir: &Path) -> Result<bool, OpenError> {
    let noted = match fs::read_to_string(dir.join(NAME)) {
        Ok(noted) => noted,
        // An invalid folder is refused with the reason when it is opened.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(source) => return Err(unusable(dir, source)),
    };
    let current_identity = current_identity(dir).map_err(|source| unusable(dir, source))?;
    Ok(current_identity.is_some_and(|current_identity| current_identity != noted))
}

/// Marks the folder to be verified before a gate serves it.
pub fn mark_as_copy(dir: &Path) -> Result<(), OpenError> {
    write(dir, NOT_CHECKED).map_err(|source| unusable(dir, source))
}

/// Records that the folder was verified, so that it is served from now on.
pub fn accept_copy(dir: &Path) -> Result<(), OpenError> {
    let current_identity = current_identity(dir).map_err(|source| unusable(dir, source))?;
    current_identity
        .map_or(Ok(()), |current_identity| write(dir, &current_identity))
        .map_err(|source| unusable(dir, source))
}

/// Writes the file, unless it exists.
pub(super) fn note(dir: &Path) -> io::Result<()> {
    match current_identity(dir)? {
        Some(current_identity) if !dir.join(NAME).try_exists()? => write(dir, &current_identity),
        _ => Ok(()),
    }
}

/// The current content of the file; `None` if there is no ledger.
fn current_identity(dir: &Path) -> io::Result<Option<String>> {
    let file = match fs::metadata(dir.join(open::FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let born = file.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(Some(match born {
        Some(born) => format!("made {}\n", born.as_nanos()),
        None => format!("inode {}\n", file.ino()),
    }))
}

fn write(dir: &Path, text: &str) -> io::Result<()> {
    let path = dir.join(NAME);
    let aside = dir.join(format!("{NAME}.new"));
    let mut file = File::create(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(aside, path)?;
    File::open(dir)?.sync_all()
}

fn unusable(dir: &Path, source: io::Error) -> OpenError {
    OpenError::Folder { path: dir.join(NAME), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_folder_is_detected_until_it_was_verified() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(!is_copy(dir.path()).unwrap(), "an empty folder is a new one");
        fs::write(dir.path().join(open::FILE), "x").unwrap();
        assert!(!is_copy(dir.path()).unwrap(), "of an earlier version");
        note(dir.path()).unwrap();
        assert!(!is_copy(dir.path()).unwrap());
        fs::copy(dir.path().join(NAME), copy.path().join(NAME)).unwrap();
        // File systems count time in steps of milliseconds; a real copy is made in a later one.
        let is_known = (0..100_000).any(|_| {
            fs::remove_file(copy.path().join(open::FILE)).unwrap_or_default();
            fs::copy(dir.path().join(open::FILE), copy.path().join(open::FILE)).unwrap();
            is_copy(copy.path()).unwrap()
        });
        assert!(is_known);
        note(copy.path()).unwrap();
        assert!(is_copy(copy.path()).unwrap(), "a start alone changes nothing about it");
        accept_copy(copy.path()).unwrap();
        assert!(!is_copy(copy.path()).unwrap());
        mark_as_copy(copy.path()).unwrap();
        assert!(is_copy(copy.path()).unwrap());
        assert!(!is_copy(dir.path()).unwrap(), "the original is where it was");
    }
}
