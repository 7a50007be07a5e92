//! One gate per data folder: a lock file that the operating system releases when the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::OpenError;

/// Name of the lock file. Its content (a process id) is for operators only.
const NAME: &str = "admit.lock";

/// Lock of a folder, held for as long as this process may write to it.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock, or fails with its holder.
    pub(super) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let io = |source| OpenError::Folder { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder is only shown in the error.
                file.read_to_string(&mut holder).unwrap_or_default();
                return Err(OpenError::InUse {
                    dir: dir.to_owned(),
                    holder: holder.trim().to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let write_holder = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write_holder(&mut file).map_err(io)?;
        Ok(Self { _file: file })
    }
}
