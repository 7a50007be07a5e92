//! One topic's log: recovered when it is opened, appended to by one writer.
//!
//! ```text
//! <root>/<topic>/partition=0.jsonl        the log; an offset is the number of a line, from 0
//! <root>/<topic>/partition=0.index        notes of full blocks, advisory
//! <root>/<topic>/partition=0.torn-<byte>  what was cut off there, for people
//! <root>/<topic>/head.json                {"next_offset": n}, advisory
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::index::Index;
use super::medium::{self, Medium, OpenMedium, Short};
use super::{LINE_BYTES_MAX, TORN_BYTES_MAX, line};
use crate::port::BusError;

/// The log of the only partition there is.
pub(super) const LOG: &str = "partition=0.jsonl";
const INDEX: &str = "partition=0.index";
const HEAD: &str = "head.json";
/// `head.json` is overwritten in place, so it keeps its length.
const HEAD_BYTES: usize = 48;

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
    head: File,
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
    /// Opens the log of `topic` under `root`, making it if there is none.
    ///
    /// Afterwards every line in it is whole, counted and durable, and what followed the last whole
    /// line lies aside.
    pub(super) fn open(root: &Path, topic: &str, how: &How) -> Result<Self, BusError> {
        let folder = root.join(topic);
        let path = folder.join(LOG);
        let fail = |source: io::Error| BusError::Unavailable {
            reason: format!("could not open {}", path.display()),
            source: Some(Box::new(source)),
        };
        fs::create_dir_all(&folder).map_err(fail)?;
        let mut log = open_rw(&path).map_err(fail)?;
        let mut notes = open_rw(&folder.join(INDEX)).map_err(fail)?;
        let (mut index, notes_end) = load_notes(&mut notes, &mut log, how).map_err(fail)?;
        notes.set_len(notes_end).map_err(fail)?;
        let known_durable = index.end;
        let whole = scan(&mut log, &mut index).map_err(fail)?;
        let length = log.metadata().map_err(fail)?.len();
        if let Some(reason) = whole {
            let torn = length - index.end;
            if torn > TORN_BYTES_MAX {
                return Err(BusError::Damaged {
                    place: format!(
                        "line {} of {} (byte {})",
                        index.next,
                        path.display(),
                        index.end
                    ),
                    reason: format!(
                        "{reason}; {torn} bytes follow, more than one torn batch can leave; nothing was changed, repair the line or move the file away"
                    ),
                });
            }
            set_aside(&mut log, &folder, index.end).map_err(fail)?;
            tracing::warn!(topic, line = index.next, torn, %reason, "the end of a bus log was torn and is set aside");
        }
        make_durable(&mut log, known_durable, index.end).map_err(fail)?;
        sync_folder(&folder).and_then(|()| sync_folder(root)).map_err(fail)?;
        let head = open_rw(&folder.join(HEAD)).map_err(fail)?;
        let medium = (how.medium)(&path).map_err(fail)?;
        let topic = topic.into();
        let mut log = Self { topic, path, medium, index, notes, notes_end, head };
        log.note();
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

    /// Writes what is advisory. If it fails, the next start reads more of the log.
    fn note(&mut self) {
        if let Err(error) = self.write_notes() {
            tracing::debug!(topic = &*self.topic, %error, "advisory files of a bus log were not written");
        }
    }

    fn write_notes(&mut self) -> io::Result<()> {
        if !self.index.notes().is_empty() {
            self.notes.seek(SeekFrom::Start(self.notes_end))?;
            self.notes.write_all(self.index.notes().as_bytes())?;
            self.notes_end += self.index.notes().len() as u64;
            self.index.noted();
        }
        let mut head = format!("{{\"next_offset\": {}}}", self.index.next);
        head.extend(std::iter::repeat_n(' ', HEAD_BYTES.saturating_sub(head.len() + 1)));
        head.push('\n');
        self.head.rewind()?;
        self.head.write_all(head.as_bytes())?;
        self.head.set_len(HEAD_BYTES as u64)
    }
}

fn open_rw(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn load_notes(notes: &mut File, log: &mut File, how: &How) -> io::Result<(Index, u64)> {
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
