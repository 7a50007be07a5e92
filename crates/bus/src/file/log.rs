//! One topic's log: recovered when it is opened, appended to by one writer.
//!
//! ```text
//! <root>/<topic>/partition=0.jsonl        the log; an offset is the number of a line, from 0
//! <root>/<topic>/partition=0.index        notes of full blocks
//! <root>/<topic>/partition=0.torn-<byte>  what was cut off there, for people
//! <root>/<topic>/head.json                {"next_offset": n}, the acknowledged end
//! ```
//!
//! Invariant: an acknowledged line is never cut off. Where the log does not hold every line that
//! `head.json`, the index or the caller knows to be acknowledged, it is not opened and nothing in it
//! is changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::head::Head;
use super::index::{Index, LoadedNotes};
use super::medium::{self, Medium, OpenMedium, Short};
use super::{DAMAGED, LINE_BYTES_MAX, TORN_BYTES_MAX, line};
use crate::port::BusError;

/// The log of the only partition there is.
pub(super) const LOG: &str = "partition=0.jsonl";
const INDEX: &str = "partition=0.index";

/// How logs are opened.
#[derive(Clone)]
pub(super) struct How {
    pub(super) block_bytes: u64,
    pub(super) medium: OpenMedium,
}

/// A log that can be appended to.
pub(super) struct Log {
    topic: Arc<str>,
    path: PathBuf,
    medium: Box<dyn Medium>,
    pub(super) index: Index,
    notes: File,
    /// Bytes of notes that are whole.
    notes_end: u64,
    head: Head,
    /// Bytes that were not read when it was opened, because the index vouches for them.
    pub(super) unchecked: u64,
}

/// What a search needs of a log: nothing in it changes any more.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) topic: Arc<str>,
    pub(super) path: PathBuf,
    pub(super) index: Index,
}

/// Lines for one topic, on their way into its log.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    /// Where each line ends, and its time.
    pub(super) ends: Vec<(usize, admit_core::Millis)>,
}

impl Lines {
    /// How many lines are whole within the first `bytes`.
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
    /// Opens the log of `topic` under `root`, making it if there is none. At least `acknowledged`
    /// lines must be in it.
    ///
    /// Afterwards every line in it is whole, counted and durable, and what followed the last whole
    /// line lies aside.
    ///
    /// # Errors
    /// [`BusError::Damaged`] where an acknowledged line is missing or damaged; nothing was changed.
    pub(super) fn open(
        root: &Path,
        topic: &str,
        how: &How,
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
            reason: format!("{reason}; {DAMAGED}"),
        };
        let acknowledged = acknowledged.max(Head::read(&folder).map_err(fail)?.unwrap_or(0));
        let notes_path = folder.join(INDEX);
        if !path.try_exists().map_err(fail)?
            && (acknowledged > 0 || fs::metadata(&notes_path).is_ok_and(|notes| notes.len() > 0))
        {
            let reason = format!("the log is missing, and {acknowledged} lines were acknowledged");
            return Err(damaged(path.display().to_string(), reason));
        }
        fs::create_dir_all(&folder).map_err(fail)?;
        let mut log = open_rw(&path).map_err(fail)?;
        let mut notes = open_rw(&notes_path).map_err(fail)?;
        let loaded = load_notes(&mut notes, &mut log, how).map_err(fail)?;
        let LoadedNotes { mut index, bytes: notes_end, .. } = loaded;
        let acknowledged = acknowledged.max(loaded.acknowledged);
        let known_durable = index.end;
        let whole = scan(&mut log, &mut index).map_err(fail)?;
        let torn = log.metadata().map_err(fail)?.len() - index.end;
        let is_short = index.next < acknowledged;
        if is_short || torn > TORN_BYTES_MAX {
            let what = whole.unwrap_or_else(|| "the log ends there".to_owned());
            let known = if is_short {
                format!("{acknowledged} lines were acknowledged")
            } else {
                format!("{torn} bytes follow, more than one torn batch can leave")
            };
            let (line, byte) = (index.next, index.end);
            let place = format!("line {line} of {} (byte {byte})", path.display());
            return Err(damaged(place, format!("{what}, and {known}")));
        }
        notes.set_len(notes_end).map_err(fail)?;
        if let Some(reason) = whole {
            set_aside(&mut log, &folder, index.end).map_err(fail)?;
            tracing::warn!(topic, line = index.next, torn, %reason, "unacknowledged bytes at the end of a bus log are no whole line and were moved to a file of their own");
        }
        make_durable(&mut log, known_durable, index.end).map_err(fail)?;
        let head = Head::open(&folder).map_err(fail)?;
        let medium = (how.medium)(&path).map_err(fail)?;
        let (topic, unchecked) = (topic.into(), known_durable);
        let mut log = Self { topic, path, medium, index, notes, notes_end, head, unchecked };
        log.note();
        let synced = log.head.sync();
        let synced = synced.and_then(|()| sync_folder(&folder)).and_then(|()| sync_folder(root));
        synced.map_err(|source| BusError::Unavailable {
            reason: format!("could not sync {}", folder.display()),
            source: Some(Box::new(source)),
        })?;
        Ok(log)
    }

    /// Hands lines to the operating system. They count from [`Log::commit`] on.
    pub(super) fn write(&mut self, lines: &Lines) -> Result<(), Short> {
        medium::write_all_at(&mut *self.medium, self.index.end, &lines.bytes)
    }

    /// Makes what was written durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.medium.sync()
    }

    /// Counts the first `rows` of the lines, which are durable now.
    pub(super) fn commit(&mut self, lines: &Lines, rows: usize) {
        for (line, at) in lines.iter().take(rows) {
            self.index.add(line, Some(at));
        }
        self.note();
    }

    pub(super) fn view(&self) -> View {
        View { topic: self.topic.clone(), path: self.path.clone(), index: self.index.clone() }
    }

    /// Writes what is known of the log beside it. If it fails, the next start reads more of the log
    /// and has to believe the ledger about its end.
    fn note(&mut self) {
        if let Err(error) = self.write_notes() {
            tracing::debug!(topic = &*self.topic, %error, "the files beside a bus log were not written");
        }
    }

    fn write_notes(&mut self) -> io::Result<()> {
        if !self.index.notes().is_empty() {
            self.notes.seek(SeekFrom::Start(self.notes_end))?;
            self.notes.write_all(self.index.notes().as_bytes())?;
            self.notes_end += self.index.notes().len() as u64;
            self.index.noted();
        }
        self.head.write(self.index.next)
    }

    /// Brings the acknowledged end to stable storage: now, or where the last time is long ago.
    pub(super) fn sync_head(&mut self, now: bool) {
        let synced = if now { self.head.sync() } else { self.head.sync_if_due() };
        if let Err(error) = synced {
            tracing::debug!(topic = &*self.topic, %error, "the acknowledged end of a bus log was not synced");
        }
    }

    /// Whether the file still has every line of the log.
    pub(super) fn check_length(&self) -> Result<(), String> {
        let bytes = fs::metadata(&self.path).map_or(0, |file| file.len());
        if bytes >= self.index.end {
            return Ok(());
        }
        Err(format!(
            "{} was cut while it was open: {bytes} bytes are left of {}; {DAMAGED}",
            self.path.display(),
            self.index.end
        ))
    }
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn load_notes(notes: &mut File, log: &mut File, how: &How) -> io::Result<LoadedNotes> {
    let mut bytes = Vec::new();
    notes.read_to_end(&mut bytes)?;
    let valid = match str::from_utf8(&bytes) {
        Ok(_) => bytes.len(),
        Err(error) => error.valid_up_to(),
    };
    Index::load(str::from_utf8(&bytes[..valid]).unwrap_or_default(), log, how.block_bytes)
}

/// Counts the whole lines after what the index knows; says what is wrong with the first that is
/// not, if there is one.
fn scan(log: &mut File, index: &mut Index) -> io::Result<Option<String>> {
    log.seek(SeekFrom::Start(index.end))?;
    let mut reader = BufReader::with_capacity(1 << 16, log);
    let mut text = Vec::new();
    loop {
        text.clear();
        reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)?;
        let Some(line) = text.strip_suffix(b"\n") else {
            return Ok((!text.is_empty()).then(|| "it does not end".to_owned()));
        };
        match line::whole(line) {
            Ok(line) => index.add(&text, line.head.at),
            Err(reason) => return Ok(Some(reason.to_string())),
        }
    }
}

/// Copies everything from `at` on into a file of its own, then cuts it off.
fn set_aside(log: &mut File, folder: &Path, at: u64) -> io::Result<()> {
    let aside = folder.join(format!("partition=0.torn-{at}"));
    let mut aside = OpenOptions::new().create(true).append(true).open(aside)?;
    log.seek(SeekFrom::Start(at))?;
    io::copy(log, &mut aside)?;
    aside.write_all(b"\n")?;
    aside.sync_all()?;
    log.set_len(at)
}

/// Writes the end of a log once more and syncs it. After a failed sync the operating system may
/// hold pages that it takes for written and that are not; only a new write makes it try again.
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
