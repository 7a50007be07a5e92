//! Staging area for new files: one folder per process, removed with it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Folder below the root that contains all staging folders. No artifact can have its name.
pub(super) const NAME: &str = ".aside";
/// Lock file in each folder, held while its process lives.
const LOCK: &str = "lock";

/// Staging folder of this store.
#[derive(Debug)]
pub(super) struct StagingArea {
    folder: PathBuf,
    count: AtomicU64,
    _lock: File,
}

/// Staged file, deleted on drop.
#[derive(Debug)]
pub(super) struct StagedFile(PathBuf);

impl StagedFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // After a rename it no longer exists; leftovers are removed with the folder.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

impl StagingArea {
    /// Creates a folder and removes those of dead processes.
    pub(super) fn create(root: &Path) -> io::Result<Self> {
        let all = root.join(NAME);
        fs::create_dir_all(&all)?;
        // Held while folders are created and removed, so that no folder is removed before its lock
        // is taken.
        let making = open_lock(&all.join(LOCK))?;
        making.lock()?;
        if let Err(error) = clear(&all) {
            tracing::warn!(%error, "failed to remove leftovers of an earlier process");
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

    /// Writes a staged file.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<StagedFile> {
        let written =
            StagedFile(self.folder.join(self.count.fetch_add(1, Ordering::Relaxed).to_string()));
        File::create(&written.0)?.write_all(bytes)?;
        Ok(written)
    }

    /// Checks that the file system supports hard links.
    pub(super) fn try_link(&self) -> io::Result<()> {
        let (one, other) = (self.write(b"")?, StagedFile(self.folder.join("link")));
        fs::hard_link(one.path(), other.path())
    }
}

impl Drop for StagingArea {
    fn drop(&mut self) {
        // Best effort: the next open removes it.
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Removes folders whose lock is free.
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
