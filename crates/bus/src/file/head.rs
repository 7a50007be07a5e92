//! `head.json`: the number of acknowledged lines of a log, as recorded by the bus itself.
//!
//! It is written after the sync that acknowledges, so it never claims more than the log holds. The
//! write is not synced by itself: the file survives a crash of the process at once, and a power cut
//! from the next [`HeadFile::sync`] on, every [`SYNC_EVERY`] and on shutdown. For anything lost in
//! between, the ledger has the count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use admit_core::json::{self, Limits, Value};

/// File name, next to the log.
pub(super) const NAME: &str = "head.json";
/// The file is overwritten in place, so it keeps its length.
const BYTES: usize = 48;
/// Maximum time between two syncs while messages are written.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// The acknowledged end of one log.
#[derive(Debug)]
pub(super) struct HeadFile {
    file: File,
    /// Time of the last sync, and whether the file was written since.
    synced_at: Instant,
    is_dirty: bool,
}

impl HeadFile {
    /// Reads the offset after the last acknowledged line, if the file exists and is valid.
    pub(super) fn read(folder: &Path) -> io::Result<Option<u64>> {
        let bytes = match fs::read(folder.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let value = json::parse(&bytes, &Limits::default()).ok();
        Ok(value.and_then(|value| value.get("next_offset").and_then(Value::as_u64)))
    }

    /// Opens the file for writing, creating it if necessary.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(folder.join(NAME))?;
        Ok(Self { file, synced_at: Instant::now(), is_dirty: false })
    }

    /// Writes the number of acknowledged lines.
    pub(super) fn write(&mut self, next: u64) -> io::Result<()> {
        let mut head = format!("{{\"next_offset\": {next}}}");
        head.extend(std::iter::repeat_n(' ', BYTES.saturating_sub(head.len() + 1)));
        head.push('\n');
        self.file.rewind()?;
        self.file.write_all(head.as_bytes())?;
        self.is_dirty = true;
        self.file.set_len(BYTES as u64)
    }

    /// Syncs the file if it is dirty and the last sync is longer ago than [`SYNC_EVERY`].
    pub(super) fn sync_if_due(&mut self) -> io::Result<()> {
        if self.is_dirty && self.synced_at.elapsed() >= SYNC_EVERY {
            return self.sync();
        }
        Ok(())
    }

    /// Syncs the file.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.synced_at = Instant::now();
        self.is_dirty = false;
        self.file.sync_data()
    }
}
