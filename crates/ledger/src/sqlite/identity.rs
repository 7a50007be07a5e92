//! Which ledger belongs in a folder: a small file beside it that outlives it.
//!
//! A ledger that is missing or empty looks like the first start of a new gate, and a new gate admits
//! everything once more. The file tells the two apart.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _};

use super::{OpenError, queries};

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

/// The tag of the ledger that belongs in the folder, as far as its id says.
pub(super) fn read(ledger: &Path) -> Result<Option<u32>, OpenError> {
    let path = ledger.with_file_name(NAME);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(u32::from_str_radix(text.trim(), 16).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Folder { path, source }),
    }
}

/// Refuses a ledger without a tag in a folder where there was one: the tag is durable before the id is
/// written, so the ledger has lost what its first log held.
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
