//! What a log is written to: a file, or in tests something that fails on demand.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

/// The bytes of a log, as far as appending to it goes.
pub(super) trait Medium: Send {
    /// Writes some of `bytes` at `at`, and says how many.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Resolves what was written into what is durable.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<usize> {
        self.seek(SeekFrom::Start(at))?;
        self.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens the medium of an existing log.
pub(super) type OpenMedium = Arc<dyn Fn(&Path) -> io::Result<Box<dyn Medium>> + Send + Sync>;

/// Opens the file itself.
pub(super) fn files() -> OpenMedium {
    Arc::new(|path| Ok(Box::new(OpenOptions::new().write(true).open(path)?)))
}

/// A write that did not get to the end.
#[derive(Debug)]
pub(super) struct Short {
    /// So many bytes were taken before it.
    pub(super) written: usize,
    /// Why no more.
    pub(super) error: io::Error,
}

impl Short {
    /// Whether the call that failed is known to have written nothing. For any other error some of
    /// it may be there.
    pub(super) fn is_clean(&self) -> bool {
        matches!(
            self.error.kind(),
            io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::PermissionDenied
        )
    }
}

/// Writes all of `bytes`, or says how far it got.
pub(super) fn write_all_at(medium: &mut dyn Medium, at: u64, bytes: &[u8]) -> Result<(), Short> {
    let mut written = 0;
    while written < bytes.len() {
        match medium.write_at(at + written as u64, &bytes[written..]) {
            Ok(0) => return Err(Short { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Short { written, error }),
        }
    }
    Ok(())
}
