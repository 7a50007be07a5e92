//! One writer per bus folder: a lock file that the operating system releases when the process dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::OpenError;

/// The name of the lock file. Its content (a process id) is for people only.
pub(super) const NAME: &str = "bus.lock";

/// Held while this process may write to the folder.
#[derive(Debug)]
pub(super) struct RootLock {
    file: File,
}

impl RootLock {
    /// Takes the lock; the error names the process that holds it.
    pub(super) fn take(root: &Path) -> Result<Self, OpenError> {
        let path = root.join(NAME);
        let io = |source| OpenError::Folder { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(io(source)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder is informational; failing to read it changes nothing.
                file.read_to_string(&mut holder).unwrap_or_default();
                let holder = holder.trim().to_owned();
                return Err(OpenError::InUse { root: root.to_owned(), holder });
            }
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { file })
    }
}

impl Drop for RootLock {
    /// Unlocks explicitly: closing the file is not enough while a freshly forked process shares it.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "failed to release the lock of the bus folder; closing the file releases it");
        }
    }
}
