//! Storage behind a log: a file, or in tests a fault-injecting fake.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// Append target of a log.
pub(super) trait LogStorage: Send {
    /// Writes some of `bytes` at `at`. Returns how many.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes everything written durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl LogStorage for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.seek(SeekFrom::Start(at))?;
        self.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens the storage of an existing log.
pub(super) type OpenStorage = Arc<dyn Fn(&Path) -> io::Result<Box<dyn LogStorage>> + Send + Sync>;

/// Opens plain files.
pub(super) fn files() -> OpenStorage {
    Arc::new(|path| Ok(Box::new(OpenOptions::new().write(true).open(path)?)))
}

/// Kind of the error about a log that was cut, found before a write. No write has it.
pub(super) const CUT: io::ErrorKind = io::ErrorKind::UnexpectedEof;

/// Write that ended early.
#[derive(Debug)]
pub(super) struct ShortWrite {
    /// Bytes written before the error.
    pub(super) written: usize,
    /// The error.
    pub(super) error: io::Error,
}

impl ShortWrite {
    /// Whether the failed call is known to have written nothing. After any other error part of it
    /// may be on disk.
    pub(super) fn is_clean(&self) -> bool {
        matches!(
            self.error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::PermissionDenied
                | CUT
        )
    }
}

/// Writes all of `bytes`; the error has how many were written.
pub(super) fn write_all_at(
    storage: &mut dyn LogStorage,
    at: u64,
    bytes: &[u8],
) -> Result<(), ShortWrite> {
    let mut written = 0;
    while written < bytes.len() {
        match storage.write_at(at + written as u64, &bytes[written..]) {
            Ok(0) => return Err(ShortWrite { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ShortWrite { written, error }),
        }
    }
    Ok(())
}
