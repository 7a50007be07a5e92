//! Identity of the ledger of a folder: a small file that outlives the ledger.
//!
//! A missing or empty ledger looks like the first start of a new gate, which would admit every event again.
//! The file distinguishes the two.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _};

use super::{OpenError, queries};

/// Name of the file. It holds the tag of the ledger, which is part of every receipt id.
const NAME: &str = "ledger.id";

/// Refuses a folder whose ledger is gone. Called before the ledger is opened, which would create one.
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

/// Returns the tag of the ledger that belongs in the folder, if its id file has one.
pub(super) fn read(ledger: &Path) -> Result<Option<u32>, OpenError> {
    let path = ledger.with_file_name(NAME);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(u32::from_str_radix(text.trim(), 16).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Folder { path, source }),
    }
}

/// Refuses a ledger without a tag in a folder that has an id file: the tag is durable before the file is
/// written, so the ledger has lost its first WAL.
pub(super) fn check_tag(ledger: &Path, conn: &Connection) -> Result<(), OpenError> {
    let id = ledger.with_file_name(NAME);
    if !id.try_exists().map_err(|source| OpenError::Folder { path: id.clone(), source })? {
        return Ok(());
    }
    let has_tag = || {
        let table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'meta'";
        if conn.query_row(table, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(false);
        }
        let tag = conn.query_row(queries::META_GET, ["tag"], |row| row.get::<_, i64>(0));
        Ok(tag.optional()?.is_some())
    };
    match has_tag() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(OpenError::Gone { path: ledger.to_owned(), missing: "without its tag", id })
        }
        Err(source) => Err(OpenError::from_sqlite(ledger, source)),
    }
}

/// Writes the id file, durably.
pub(super) fn note(dir: &Path, tag: u32) -> io::Result<()> {
    let path = dir.join(NAME);
    let text = format!("{tag:08x}\n");
    match fs::read_to_string(&path) {
        Ok(known) if known == text => return Ok(()),
        Ok(known) if !known.is_empty() => {
            tracing::warn!(
                was = known.trim(),
                now = text.trim(),
                "the folder contains another ledger than before"
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

/// Identifies the opened file, to detect that it was replaced.
#[derive(Debug)]
pub(super) struct OpenedFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OpenedFile {
    /// The file as it is now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }

    /// Whether the path still refers to the opened file. A file that was removed or replaced accepts writes that
    /// are lost.
    pub(super) fn is_there(&self) -> bool {
        match fs::metadata(&self.path) {
            Ok(file) => (file.dev(), file.ino()) == (self.device, self.inode),
            // If it cannot be checked, it is not certainly gone.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}
