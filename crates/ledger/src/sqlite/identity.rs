//! Which ledger belongs in a folder: a small file beside it that outlives it.
//!
//! A ledger that is missing or empty looks like the first start of a new gate, and a new gate admits
//! everything once more. The file tells the two apart.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::OpenError;

/// The name of the file. It holds the tag of the ledger, which is in every receipt's id.
const NAME: &str = "ledger.id";

/// Refuses a folder whose ledger is gone. Comes before anything opens the ledger, which would make one.
pub(super) fn check(dir: &Path, ledger: &Path) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    let io = |source| OpenError::Folder { path: path.clone(), source };
    if !path.try_exists().map_err(io)? {
        return Ok(());
    }
    let missing = match fs::metadata(ledger) {
        Ok(file) if file.len() > 0 => return Ok(()),
        Ok(_) => "empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "not there",
        Err(error) => return Err(OpenError::Folder { path: ledger.to_owned(), source: error }),
    };
    Err(OpenError::Gone { path: ledger.to_owned(), missing, id: path })
}

/// Writes down which ledger is in the folder, durably and together with its name there.
pub(super) fn note(dir: &Path, tag: u32) -> io::Result<()> {
    let path = dir.join(NAME);
    let text = format!("{tag:08x}\n");
    match fs::read_to_string(&path) {
        Ok(known) if known == text => return Ok(()),
        Ok(known) if !known.is_empty() => {
            tracing::warn!(
                was = known.trim(),
                now = text.trim(),
                "another ledger is in the folder"
            );
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = File::create(&path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// The file that was opened, to be told from another one of its name.
#[derive(Debug)]
pub(super) struct InPlace {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl InPlace {
    /// The file as it is now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }

    /// Whether it is still the file of its name. One that was removed or replaced takes in events as
    /// before, and nobody will ever find them.
    pub(super) fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(file) => (file.dev(), file.ino()) == (self.device, self.inode),
            // What cannot be looked at is not gone for certain.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}
