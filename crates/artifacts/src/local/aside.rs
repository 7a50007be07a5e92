//! Where files are written before they have a name: a folder for each process, which goes with it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The folder in the root that holds all of them. No artifact can have its name.
pub(super) const NAME: &str = ".aside";
/// In each: held by its process as long as it lives.
const LOCK: &str = "lock";

/// The folder of this store.
#[derive(Debug)]
pub(super) struct Aside {
    folder: PathBuf,
    count: AtomicU64,
    _lock: File,
}

/// A file without a name yet; gone when dropped.
#[derive(Debug)]
pub(super) struct Written(PathBuf);

impl Written {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // After a rename it is gone already; what stays is cleared away with the folder.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

impl Aside {
    /// Makes a folder, and removes those of processes that are gone.
    pub(super) fn make(root: &Path) -> io::Result<Self> {
        let all = root.join(NAME);
        fs::create_dir_all(&all)?;
        // Held while folders come and go, so that none is cleared away before it has its lock.
        let making = open_lock(&all.join(LOCK))?;
        making.lock()?;
        if let Err(error) = clear(&all) {
            tracing::warn!(%error, "leftovers of an earlier process were not cleared away");
        }
        let folder = (0_u64..)
            .map(|n| all.join(format!("{}-{n}", std::process::id())))
            .find_map(|folder| match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                made => Some(made.map(|()| folder)),
            })
            .expect("some number is free")?;
        let lock = open_lock(&folder.join(LOCK))?;
        lock.lock()?;
        Ok(Self { folder, count: AtomicU64::new(0), _lock: lock })
    }

    /// Writes a file that has no name yet.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<Written> {
        let written =
            Written(self.folder.join(self.count.fetch_add(1, Ordering::Relaxed).to_string()));
        File::create(&written.0)?.write_all(bytes)?;
        Ok(written)
    }

    /// Finds out whether files can be linked here.
    pub(super) fn try_link(&self) -> io::Result<()> {
        let (one, other) = (self.write(b"")?, Written(self.folder.join("link")));
        fs::hard_link(one.path(), other.path())
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Best effort: the next open clears it away.
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Removes the folders whose lock nobody holds.
fn clear(all: &Path) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        match open_lock(&folder.join(LOCK))?.try_lock() {
            Ok(()) => fs::remove_dir_all(&folder)?,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(())
}
