//! Where lines are in a log: how many there are, and which times are where.
//!
//! A log is cut into blocks of whole lines; the index remembers where each begins, its first
//! offset and the times in it. So a search reads only blocks of its time range, and a start reads
//! only what came after the last full block.
//!
//! Full blocks are noted in a file beside the log, one line each, after the sync that made them
//! durable. The last note is compared with the log before it is believed, and a log without notes is
//! read from its beginning. A note that the log does not confirm still proves that its lines were
//! acknowledged.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits, Value};

use super::LINE_BYTES_MAX;

/// So many notes at the end may disagree with the log before none is believed.
const DOUBTFUL_NOTES_MAX: usize = 8;

/// A block is read in one piece, so none is larger, whatever a note says.
const BLOCK_BYTES_CEILING: u64 = 64 << 20;

/// Whole lines that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The offset of its first line.
    pub(super) first: u64,
    /// The byte it begins at.
    pub(super) start: u64,
    /// The earliest time in it.
    pub(super) from: Millis,
    /// The latest time in it.
    pub(super) to: Millis,
}

impl Block {
    fn empty(first: u64, start: u64) -> Self {
        Self { first, start, from: Millis(i64::MAX), to: Millis(i64::MIN) }
    }

    /// A line without a time may be of any time.
    fn widen(&mut self, at: Option<Millis>) {
        self.from = self.from.min(at.unwrap_or(Millis(i64::MIN)));
        self.to = self.to.max(at.unwrap_or(Millis(i64::MAX)));
    }
}

/// The index of one log.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Full blocks. Shared with whoever reads, so that reading never waits for writing.
    full: Arc<Vec<Block>>,
    last: Block,
    /// Where the next line goes.
    pub(super) end: u64,
    /// The offset of the next line.
    pub(super) next: u64,
    block_bytes: u64,
    /// Notes of full blocks that are not in the file yet.
    notes: String,
}

impl Index {
    pub(super) fn new(block_bytes: u64) -> Self {
        let last = Block::empty(0, 0);
        Self { full: Arc::default(), last, end: 0, next: 0, block_bytes, notes: String::new() }
    }

    /// Takes the next line, newline included.
    pub(super) fn add(&mut self, line: &[u8], at: Option<Millis>) {
        let start = self.end;
        self.last.widen(at);
        self.end += line.len() as u64;
        self.next += 1;
        if self.end - self.last.start >= self.block_bytes {
            let note = Note { end: self.end, next: self.next, line_start: start, block: self.last };
            self.notes.push_str(&note.to_text(line));
            self.close();
        }
    }

    fn close(&mut self) {
        Arc::make_mut(&mut self.full).push(self.last);
        self.last = Block::empty(self.next, self.end);
    }

    /// Notes to write, now that their blocks are durable.
    pub(super) fn notes(&self) -> &str {
        &self.notes
    }

    /// They were written.
    pub(super) fn noted(&mut self) {
        self.notes.clear();
    }

    /// Every block in order, with the byte it ends at.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Block, u64)> + '_ {
        let starts = self.full.iter().skip(1).map(|block| block.start);
        let ends = starts.chain([self.last.start, self.end]);
        self.full
            .iter()
            .copied()
            .chain([self.last])
            .zip(ends.skip(usize::from(self.full.is_empty())))
    }

    /// The block that holds the line `offset`, or would.
    pub(super) fn block_of(&self, offset: u64) -> Block {
        let after = self.full.partition_point(|block| block.first <= offset);
        match after.checked_sub(1) {
            Some(index) if offset < self.last.first => self.full[index],
            _ => self.last,
        }
    }

    /// Reads the notes of a log, as far as they can be believed.
    pub(super) fn load(notes: &str, log: &mut File, block_bytes: u64) -> io::Result<LoadedNotes> {
        let mut believed: Vec<(Note, String, u64)> = Vec::new();
        let mut read = 0;
        for text in notes.split_inclusive('\n') {
            let Some((note, hash)) = Note::from_text(text, believed.last().map(|(note, ..)| note))
            else {
                break;
            };
            read += text.len() as u64;
            believed.push((note, hash, read));
        }
        let acknowledged = believed.last().map_or(0, |(note, ..)| note.next);
        let mut doubtful = 0;
        while let Some((note, hash, _)) = believed.last() {
            if note.agrees_with(log, hash)? {
                break;
            }
            doubtful += 1;
            believed.pop();
            if doubtful == DOUBTFUL_NOTES_MAX {
                believed.clear();
            }
        }
        let bytes = believed.last().map_or(0, |(.., read)| *read);
        let mut index = Self::new(block_bytes);
        for (note, ..) in believed {
            (index.end, index.next, index.last) = (note.end, note.next, note.block);
            index.close();
        }
        Ok(LoadedNotes { index, bytes, acknowledged })
    }
}

/// The notes of a log.
#[derive(Debug)]
pub(super) struct LoadedNotes {
    /// The blocks that the log confirms.
    pub(super) index: Index,
    /// Bytes of the notes of those blocks.
    pub(super) bytes: u64,
    /// The offset after the last line that any note covers, confirmed or not.
    pub(super) acknowledged: u64,
}

/// What is noted of a full block.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    block: Block,
    end: u64,
    next: u64,
    /// Where its last line begins; that line tells whether the note belongs to the log.
    line_start: u64,
}

impl Note {
    fn to_text(&self, line: &[u8]) -> String {
        format!(
            "{{\"end\":{},\"next_offset\":{},\"from_ms\":{},\"to_ms\":{},\"line_start\":{},\"line_sha256\":\"{}\"}}\n",
            self.end,
            self.next,
            self.block.from.0,
            self.block.to.0,
            self.line_start,
            sha256_hex(line)
        )
    }

    /// The note and its hash; `None` when it does not follow `before`.
    fn from_text(text: &str, before: Option<&Self>) -> Option<(Self, String)> {
        let value = json::parse(text.strip_suffix('\n')?.as_bytes(), &Limits::default()).ok()?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let time = |name: &str| value.get(name).and_then(Value::as_i64).map(Millis);
        let (first, start) = before.map_or((0, 0), |before| (before.next, before.end));
        let block = Block { first, start, from: time("from_ms")?, to: time("to_ms")? };
        let note = Self {
            block,
            end: number("end")?,
            next: number("next_offset")?,
            line_start: number("line_start")?,
        };
        let follows = note.next > first
            && start <= note.line_start
            && note.line_start < note.end
            && note.end - start <= BLOCK_BYTES_CEILING;
        let hash = value.get("line_sha256").and_then(Value::as_str)?;
        follows.then(|| (note, hash.to_owned()))
    }

    /// Whether the log has, where the note says, the line it says.
    fn agrees_with(&self, log: &mut File, hash: &str) -> io::Result<bool> {
        let bytes = self.end - self.line_start;
        if self.end > log.metadata()?.len() || bytes > LINE_BYTES_MAX {
            return Ok(false);
        }
        log.seek(SeekFrom::Start(self.line_start))?;
        let mut line = Vec::new();
        log.take(bytes).read_to_end(&mut line)?;
        Ok(line.len() as u64 == bytes && line.ends_with(b"\n") && sha256_hex(&line) == hash)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINES: &[&str] = &["one\n", "two, longer\n", "three\n", "four\n", "five\n"];

    /// An index of lines stamped 10, 20, 30, … in blocks of at least ten bytes, and their log.
    fn indexed() -> (Index, File) {
        let mut index = Index::new(10);
        let mut log = tempfile::tempfile().expect("a file");
        for (line, at) in LINES.iter().zip(1..) {
            index.add(line.as_bytes(), Some(Millis(at * 10)));
            log.write_all(line.as_bytes()).expect("written");
        }
        (index, log)
    }

    fn ranges(index: &Index) -> Vec<(u64, u64, u64, i64, i64)> {
        index.blocks().map(|(b, end)| (b.first, b.start, end, b.from.0, b.to.0)).collect()
    }

    #[test]
    fn blocks_cover_the_log_and_know_their_times() {
        let (index, _) = indexed();
        let empty = (5, 32, 32, i64::MAX, i64::MIN);
        let full = [(0, 0, 16, 10, 20), (2, 16, 27, 30, 40), (4, 27, 32, 50, 50)];
        assert_eq!(ranges(&index), full);
        assert_eq!((index.end, index.next), (32, 5));
        let starts: Vec<u64> = (0..7).map(|offset| index.block_of(offset).first).collect();
        assert_eq!(starts, [0, 0, 2, 2, 4, 4, 4]);
        let none = Index::new(10);
        assert_eq!(ranges(&none), [(0, 0, 0, empty.3, empty.4)]);
    }

    #[test]
    fn notes_bring_the_full_blocks_back() {
        let (index, mut log) = indexed();
        let LoadedNotes { index: loaded, bytes, acknowledged } =
            Index::load(index.notes(), &mut log, 10).expect("readable");
        assert_eq!((bytes as usize, acknowledged), (index.notes().len(), 4));
        assert_eq!((loaded.end, loaded.next), (27, 4), "the rest is read from the log");
        assert_eq!(ranges(&loaded)[..2], ranges(&index)[..2]);
    }

    #[test]
    fn notes_that_disagree_with_the_log_are_not_believed() {
        let (index, mut log) = indexed();
        let first = index.notes().split_inclusive('\n').next().expect("a note").len() as u64;
        let torn = &index.notes()[..index.notes().len() - 3];
        assert_eq!(Index::load(torn, &mut log, 10).expect("readable").bytes, first);
        log.set_len(20).expect("cut");
        let loaded = Index::load(index.notes(), &mut log, 10).expect("readable");
        let found = (loaded.index.next, loaded.bytes, loaded.acknowledged);
        assert_eq!(found, (2, first, 4), "the log is shorter than the last note says");
        let mut other = tempfile::tempfile().expect("a file");
        other.write_all(&[b'x'; 100]).expect("written");
        assert_eq!(Index::load(index.notes(), &mut other, 10).expect("readable").bytes, 0);
        assert_eq!(Index::load("garbage\n", &mut log, 10).expect("readable").bytes, 0);
    }

    #[test]
    fn a_line_without_a_time_may_be_of_any_time() {
        let mut index = Index::new(1_000);
        index.add(b"x\n", Some(Millis(5)));
        index.add(b"y\n", None);
        let (block, _) = index.blocks().next().expect("one");
        assert_eq!((block.from, block.to), (Millis(i64::MIN), Millis(i64::MAX)));
    }
}
