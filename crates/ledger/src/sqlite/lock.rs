//! One gate per data folder: a lock file that the operating system releases when we die.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::OpenError;

/// The name of the lock file in the data folder. Its content (a process id) is for people only.
const NAME: &str = "admit.lock";

/// Held as long as this process may write to the folder.
#[derive(Debug)]
pub(super) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// Takes the lock, or says who has it.
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
                // Who holds it is a courtesy; failing to read it changes nothing.
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
