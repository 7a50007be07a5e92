//! Log of one topic: recovered when it is opened, appended to by one writer.
//!
//! ```text
//! <root>/<topic>/partition=0.jsonl        the log; an offset is the number of a line, from 0
//! <root>/<topic>/partition=0.index        index entries of full blocks
//! <root>/<topic>/partition=0.torn-<byte>  bytes cut off at that offset, for inspection
//! <root>/<topic>/head.json                {"next_offset": n}, the acknowledged end
//! ```
//!
//! Invariant: an acknowledged line is never cut off. A log that lacks a line which `head.json`, the
//! index or the caller has recorded as acknowledged is not opened, and nothing in it is changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::head::HeadFile;
use super::index::{Index, LoadedIndex};
use super::storage::{self, LogStorage, OpenStorage, ShortWrite};
use super::{DAMAGED_LOG_HELP, LINE_BYTES_MAX, TORN_BYTES_MAX, line};
use crate::port::BusError;

/// File name of the log; there is only one partition.
pub(super) const LOG: &str = "partition=0.jsonl";
const INDEX: &str = "partition=0.index";

/// Options for opening logs.
#[derive(Clone)]
pub(super) struct LogOptions {
    pub(super) block_bytes: u64,
    pub(super) storage: OpenStorage,
}

/// A log open for appending.
pub(super) struct Log {
    topic: Arc<str>,
    path: PathBuf,
    storage: Box<dyn LogStorage>,
    pub(super) index: Index,
    index_file: File,
    /// Length of the valid index entries in bytes.
    index_file_end: u64,
    head: HeadFile,
    /// Bytes not read at opening, because the index vouches for them.
    pub(super) unchecked: u64,
}

/// Immutable view of a log for searches and reads: the committed lines.
#[derive(Clone, Debug)]
pub(super) struct LogView {
    pub(super) topic: Arc<str>,
    pub(super) path: PathBuf,
    pub(super) index: Index,
}

/// Encoded lines of one topic, to be appended to its log.
#[derive(Debug, Default)]
pub(super) struct EncodedLines {
    pub(super) bytes: Vec<u8>,
    /// End and time of each line.
    pub(super) ends: Vec<(usize, admit_core::Millis)>,
}

impl EncodedLines {
    /// Number of whole lines within the first `bytes`.
    pub(super) fn whole_within(&self, bytes: usize) -> usize {
        self.ends.partition_point(|(end, _)| *end <= bytes)
    }

    /// Each line with its time.
    fn iter(&self) -> impl Iterator<Item = (&[u8], admit_core::Millis)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, at))| (&self.bytes[start..*end], *at))
    }
}

impl Log {
    /// Opens the log of `topic` under `root`, creating it if necessary. It must hold at least
    /// `acknowledged` lines.
    ///
    /// Afterwards every line in it is whole, counted and durable, and any bytes after the last
    /// whole line are moved to a file of their own.
    ///
    /// # Errors
    /// [`BusError::Damaged`] where an acknowledged line is missing or damaged; nothing was changed.
    pub(super) fn open(
        root: &Path,
        topic: &str,
        options: &LogOptions,
        acknowledged: u64,
    ) -> Result<Self, BusError> {
        let folder = root.join(topic);
        let path = folder.join(LOG);
        let fail = |source: io::Error| BusError::Unavailable {
            reason: format!("could not open {}", path.display()),
            source: Some(Box::new(source)),
        };
        let damaged = |place: String, reason: String| BusError::Damaged {
            place,
            reason: format!("{reason}; {DAMAGED_LOG_HELP}"),
        };
        let acknowledged = acknowledged.max(HeadFile::read(&folder).map_err(fail)?.unwrap_or(0));
        let index_path = folder.join(INDEX);
        if !path.try_exists().map_err(fail)?
            && (acknowledged > 0
                || fs::metadata(&index_path).is_ok_and(|index_file| index_file.len() > 0))
        {
            let reason = format!("the log is missing, and {acknowledged} lines were acknowledged");
            return Err(damaged(path.display().to_string(), reason));
        }
        fs::create_dir_all(&folder).map_err(fail)?;
        let mut log = open_rw(&path).map_err(fail)?;
        let mut index_file = open_rw(&index_path).map_err(fail)?;
        let loaded = load_index(&mut index_file, &mut log, options).map_err(fail)?;
        let LoadedIndex { mut index, bytes: index_file_end, .. } = loaded;
        let acknowledged = acknowledged.max(loaded.acknowledged);
        let known_durable = index.end;
        let invalid = scan(&mut log, &mut index).map_err(fail)?;
        let torn = log.metadata().map_err(fail)?.len() - index.end;
        let is_short = index.next < acknowledged;
        if is_short || torn > TORN_BYTES_MAX {
            let problem = invalid.unwrap_or_else(|| "the log ends there".to_owned());
            let known = if is_short {
                format!("{acknowledged} lines were acknowledged")
            } else {
                format!("{torn} bytes follow, more than one torn batch can leave")
            };
            let (line, byte) = (index.next, index.end);
            let place = format!("line {line} of {} (byte {byte})", path.display());
            return Err(damaged(place, format!("{problem}, and {known}")));
        }
        index_file.set_len(index_file_end).map_err(fail)?;
        if let Some(reason) = invalid {
            move_torn_bytes(&mut log, &folder, index.end).map_err(fail)?;
            tracing::warn!(topic, line = index.next, torn, %reason, "recovery: unacknowledged bytes at the end of a bus log are not a whole line; moved to a .torn file");
        }
        make_durable(&mut log, known_durable, index.end).map_err(fail)?;
        let head = HeadFile::open(&folder).map_err(fail)?;
        let storage = (options.storage)(&path).map_err(fail)?;
        let (topic, unchecked) = (topic.into(), known_durable);
        let mut log =
            Self { topic, path, storage, index, index_file, index_file_end, head, unchecked };
        log.write_index_and_head();
        let synced = log.head.sync();
        let synced = synced.and_then(|()| sync_folder(&folder)).and_then(|()| sync_folder(root));
        synced.map_err(|source| BusError::Unavailable {
            reason: format!("could not sync {}", folder.display()),
            source: Some(Box::new(source)),
        })?;
        Ok(log)
    }

    /// Writes lines to the operating system. They count only after [`Log::commit`]. A log that was
    /// cut is not written to: the hole would hide the loss.
    pub(super) fn write(&mut self, lines: &EncodedLines) -> Result<(), ShortWrite> {
        if let Err(reason) = self.check_length() {
            let error = io::Error::new(storage::CUT, reason);
            return Err(ShortWrite { written: 0, error });
        }
        storage::write_all_at(&mut *self.storage, self.index.end, &lines.bytes)
    }

    /// Makes written lines durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.storage.sync()
    }

    /// Adds the first `rows` of the lines, now durable, to the index.
    pub(super) fn commit(&mut self, lines: &EncodedLines, rows: usize) {
        for (line, at) in lines.iter().take(rows) {
            self.index.add(line, Some(at));
        }
        self.write_index_and_head();
    }

    pub(super) fn view(&self) -> LogView {
        LogView { topic: self.topic.clone(), path: self.path.clone(), index: self.index.clone() }
    }

    /// Writes the pending index entries and `head.json`. If it fails, the next start reads more of
    /// the log and relies on the ledger for its end.
    fn write_index_and_head(&mut self) {
        if let Err(error) = self.write_index() {
            tracing::debug!(topic = &*self.topic, %error, "failed to write the index or head file of a bus log; the next start reads more of the log");
        }
    }

    fn write_index(&mut self) -> io::Result<()> {
        if !self.index.entries().is_empty() {
            self.index_file.seek(SeekFrom::Start(self.index_file_end))?;
            self.index_file.write_all(self.index.entries().as_bytes())?;
            self.index_file_end += self.index.entries().len() as u64;
            self.index.mark_written();
        }
        self.head.write(self.index.next)
    }

    /// Syncs the acknowledged end: now, or only if the last sync is long ago.
    pub(super) fn sync_head(&mut self, now: bool) {
        let synced = if now { self.head.sync() } else { self.head.sync_if_due() };
        if let Err(error) = synced {
            tracing::debug!(topic = &*self.topic, %error, "failed to sync the head file of a bus log");
        }
    }

    /// Checks that the file still has every line of the log.
    pub(super) fn check_length(&self) -> Result<(), String> {
        let bytes = fs::metadata(&self.path).map_or(0, |file| file.len());
        if bytes >= self.index.end {
            return Ok(());
        }
        Err(format!(
            "{} was cut while it was open: {bytes} bytes are left of {}; {DAMAGED_LOG_HELP}",
            self.path.display(),
            self.index.end
        ))
    }
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn load_index(
    index_file: &mut File,
    log: &mut File,
    options: &LogOptions,
) -> io::Result<LoadedIndex> {
    let mut bytes = Vec::new();
    index_file.read_to_end(&mut bytes)?;
    let valid = match str::from_utf8(&bytes) {
        Ok(_) => bytes.len(),
        Err(error) => error.valid_up_to(),
    };
    Index::load(str::from_utf8(&bytes[..valid]).unwrap_or_default(), log, options.block_bytes)
}

/// Adds the whole lines after the index's end. Returns what is wrong with the first invalid line,
/// if any.
fn scan(log: &mut File, index: &mut Index) -> io::Result<Option<String>> {
    log.seek(SeekFrom::Start(index.end))?;
    let mut reader = BufReader::with_capacity(1 << 16, log);
    let mut text = Vec::new();
    loop {
        text.clear();
        reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
        let Some(line) = text.strip_suffix(b"\n") else {
            return Ok((!text.is_empty()).then(|| "it has no line end".to_owned()));
        };
        match line::parse(line) {
            Ok(line) => index.add(&text, line.header.at),
            Err(reason) => return Ok(Some(reason.to_string())),
        }
    }
}

/// Moves everything from `at` on into a separate file.
fn move_torn_bytes(log: &mut File, folder: &Path, at: u64) -> io::Result<()> {
    let torn_file = folder.join(format!("partition=0.torn-{at}"));
    let mut torn_file = OpenOptions::new().create(true).append(true).open(torn_file)?;
    log.seek(SeekFrom::Start(at))?;
    io::copy(log, &mut torn_file)?;
    torn_file.write_all(b"\n")?;
    torn_file.sync_all()?;
    log.set_len(at)
}

/// Rewrites the end of a log and syncs it. After a failed sync the operating system may hold pages
/// that it considers clean but that never reached the disk; only a new write makes it try again.
fn make_durable(log: &mut File, known: u64, end: u64) -> io::Result<()> {
    let from = known.max(end.saturating_sub(TORN_BYTES_MAX));
    log.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    log.take(end - from).read_to_end(&mut bytes)?;
    log.seek(SeekFrom::Start(from))?;
    log.write_all(&bytes)?;
    log.sync_all()
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
