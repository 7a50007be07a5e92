//! Whether a data folder is where its ledger has always been, or a copy of it.
//!
//! `ledger.place` beside `ledger.id` holds when the file `ledger.db` was made, or its inode where the
//! file system does not say. A copy of the folder has the same text and another file. One that was made
//! while a gate wrote may be torn, and is to be checked as a whole before it is served.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::{OpenError, open};

/// The name of the file.
const NAME: &str = "ledger.place";

/// What it holds in a folder that no gate has served yet.
const NOT_CHECKED: &str = "copied\n";

/// Whether the folder is a copy that was not checked yet.
pub fn is_copy(dir: &Path) -> Result<bool, OpenError> {
    let noted = match fs::read_to_string(dir.join(NAME)) {
        Ok(noted) => noted,
        // A folder that is none is refused with what is wrong when it is opened.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(source) => return Err(unusable(dir, source)),
    };
    let here = here(dir).map_err(|source| unusable(dir, source))?;
    Ok(here.is_some_and(|here| here != noted))
}

/// Has the folder checked before a gate serves it.
pub fn mark_as_copy(dir: &Path) -> Result<(), OpenError> {
    write(dir, NOT_CHECKED).map_err(|source| unusable(dir, source))
}

/// Notes that the folder was checked, so that it is served from now on.
pub fn accept_copy(dir: &Path) -> Result<(), OpenError> {
    let here = here(dir).map_err(|source| unusable(dir, source))?;
    here.map_or(Ok(()), |here| write(dir, &here)).map_err(|source| unusable(dir, source))
}

/// Notes where the ledger is, in a folder that does not say it yet.
pub(super) fn note(dir: &Path) -> io::Result<()> {
    match here(dir)? {
        Some(here) if !dir.join(NAME).try_exists()? => write(dir, &here),
        _ => Ok(()),
    }
}

/// What the file would hold now; `None` where there is no ledger.
fn here(dir: &Path) -> io::Result<Option<String>> {
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
    fn a_copied_folder_is_known_as_one_until_it_was_checked() {
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
