//! Storage of a pack's files. All calls block.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::source::Source;

/// Maximum size of a small file (receipt, manifest, flag).
pub const SMALL_BYTES_MAX: u64 = 4 << 20;

/// Maximum files per folder.
pub const NAMES_MAX: usize = 100_000;

/// The files of one pack, by relative path.
pub trait PackStore: Send + Sync {
    /// Reads a small file; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or is too large.
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// Lists the names in a folder, in byte order; `None` if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or has too many.
    fn names(&self, folder: &str) -> io::Result<Option<Vec<String>>>;

    /// Opens a large file for random access.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, path: &str) -> io::Result<Source>;
}

/// A pack on a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The pack in this folder.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl PackStore for Disk {
    fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.root.join(path)) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > SMALL_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {SMALL_BYTES_MAX} bytes")));
        }
        Ok(Some(bytes))
    }

    fn names(&self, folder: &str) -> io::Result<Option<Vec<String>>> {
        let entries = match fs::read_dir(self.root.join(folder)) {
            Ok(entries) => entries,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok());
            if names.len() > NAMES_MAX {
                return Err(io::Error::other(format!("it has more than {NAMES_MAX} files")));
            }
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    fn open(&self, path: &str) -> io::Result<Source> {
        File::open(self.root.join(path)).map(Source::Disk)
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
