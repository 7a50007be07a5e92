//! Index of a log: number of lines, and which time ranges are in which block.
//!
//! A log is divided into blocks of whole lines; the index holds each block's start, first offset
//! and time range. So a search reads only blocks of its time range, and a start reads only what
//! follows the last full block.
//!
//! Full blocks are appended to the index file, one line each, after the sync that made them
//! durable. An entry has a checksum like a line of the log, because wrong numbers in it would shift
//! offsets and hide messages. At a start the last entry is compared with the log before it is trusted;
//! a log without index entries is read from its beginning. An entry that the log does not confirm, or
//! without a checksum (of an earlier version), still proves that its lines were acknowledged.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits, Value};

use super::{LINE_BYTES_MAX, line};

/// If this many trailing entries disagree with the log, no entry is trusted.
const UNCONFIRMED_ENTRIES_MAX: usize = 8;

/// Upper limit of a block, which is read in one piece; larger entries are rejected.
const BLOCK_BYTES_CEILING: u64 = 64 << 20;

/// Contiguous whole lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The offset of its first line.
    pub(super) first: u64,
    /// Byte offset of its beginning.
    pub(super) start: u64,
    /// Earliest time in it.
    pub(super) from: Millis,
    /// Latest time in it.
    pub(super) to: Millis,
}

impl Block {
    fn empty(first: u64, start: u64) -> Self {
        Self { first, start, from: Millis(i64::MAX), to: Millis(i64::MIN) }
    }

    /// A line without a time counts as any time.
    fn widen(&mut self, at: Option<Millis>) {
        self.from = self.from.min(at.unwrap_or(Millis(i64::MIN)));
        self.to = self.to.max(at.unwrap_or(Millis(i64::MAX)));
    }
}

/// The index of one log.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Full blocks. Shared with readers, so that reads never wait for writes.
    full: Arc<Vec<Block>>,
    last: Block,
    /// Byte offset of the next line.
    pub(super) end: u64,
    /// Line offset of the next line.
    pub(super) next: u64,
    block_bytes: u64,
    /// Encoded entries of full blocks, not yet written to the index file.
    pending: String,
}

impl Index {
    pub(super) fn new(block_bytes: u64) -> Self {
        let last = Block::empty(0, 0);
        Self { full: Arc::default(), last, end: 0, next: 0, block_bytes, pending: String::new() }
    }

    /// Adds the next line, newline included.
    pub(super) fn add(&mut self, line: &[u8], at: Option<Millis>) {
        let start = self.end;
        self.last.widen(at);
        self.end += line.len() as u64;
        self.next += 1;
        if self.end - self.last.start >= self.block_bytes {
            let entry =
                IndexEntry { end: self.end, next: self.next, line_start: start, block: self.last };
            self.pending.push_str(&entry.encode(line));
            self.close();
        }
    }

    fn close(&mut self) {
        Arc::make_mut(&mut self.full).push(self.last);
        self.last = Block::empty(self.next, self.end);
    }

    /// Entries to write once their blocks are durable.
    pub(super) fn entries(&self) -> &str {
        &self.pending
    }

    /// Marks the pending entries as written.
    pub(super) fn mark_written(&mut self) {
        self.pending.clear();
    }

    /// Every block in order, with its end.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Block, u64)> + '_ {
        let starts = self.full.iter().skip(1).map(|block| block.start);
        let ends = starts.chain([self.last.start, self.end]);
        self.full
            .iter()
            .copied()
            .chain([self.last])
            .zip(ends.skip(usize::from(self.full.is_empty())))
    }

    /// The block that holds, or would hold, the line `offset`.
    pub(super) fn block_of(&self, offset: u64) -> Block {
        let after = self.full.partition_point(|block| block.first <= offset);
        match after.checked_sub(1) {
            Some(index) if offset < self.last.first => self.full[index],
            _ => self.last,
        }
    }

    /// Loads the index entries of a log, as far as they can be trusted.
    pub(super) fn load(entries: &str, log: &mut File, block_bytes: u64) -> io::Result<LoadedIndex> {
        let mut trusted: Vec<(IndexEntry, String, u64)> = Vec::new();
        let (mut read, mut have_checksums) = (0, true);
        for text in entries.split_inclusive('\n') {
            let before = trusted.last().map(|(entry, ..)| entry);
            let checked =
                text.strip_suffix('\n').map(|text| line::verify_checksum(text.as_bytes()));
            let Some((Ok(body), (entry, hash))) = checked.zip(IndexEntry::parse(text, before))
            else {
                break;
            };
            have_checksums &= body.is_some();
            read += text.len() as u64;
            trusted.push((entry, hash, read));
        }
        let acknowledged = trusted.last().map_or(0, |(entry, ..)| entry.next);
        if !have_checksums {
            trusted.clear();
        }
        let mut unconfirmed = 0;
        while let Some((entry, hash, _)) = trusted.last() {
            if entry.matches_log(log, hash)? {
                break;
            }
            unconfirmed += 1;
            trusted.pop();
            if unconfirmed == UNCONFIRMED_ENTRIES_MAX {
                trusted.clear();
            }
        }
        let bytes = trusted.last().map_or(0, |(.., read)| *read);
        let mut index = Self::new(block_bytes);
        for (entry, ..) in trusted {
            (index.end, index.next, index.last) = (entry.end, entry.next, entry.block);
            index.close();
        }
        Ok(LoadedIndex { index, bytes, acknowledged })
    }
}

/// Result of [`Index::load`].
#[derive(Debug)]
pub(super) struct LoadedIndex {
    /// Blocks confirmed by the log.
    pub(super) index: Index,
    /// Bytes of the index file that these blocks take.
    pub(super) bytes: u64,
    /// Line offset after the last line of any entry, confirmed or not.
    pub(super) acknowledged: u64,
}

/// Index entry of a full block.
#[derive(Debug, PartialEq, Eq)]
struct IndexEntry {
    block: Block,
    end: u64,
    next: u64,
    /// Byte offset of its last line, which proves that the entry belongs to the log.
    line_start: u64,
}

impl IndexEntry {
    fn encode(&self, last_line: &[u8]) -> String {
        let body = format!(
            "{{\"end\":{},\"next_offset\":{},\"from_ms\":{},\"to_ms\":{},\"line_start\":{},\"line_sha256\":\"{}\"",
            self.end,
            self.next,
            self.block.from.0,
            self.block.to.0,
            self.line_start,
            sha256_hex(last_line)
        );
        let end = line::end_with_checksum(body.as_bytes());
        body + &end
    }

    /// Parses an entry and its hash; `None` when it does not follow `before`.
    fn parse(text: &str, before: Option<&Self>) -> Option<(Self, String)> {
        let value = json::parse(text.strip_suffix('\n')?.as_bytes(), &Limits::default()).ok()?;
        let number = |name: &str| value.get(name).and_then(Value::as_u64);
        let time = |name: &str| value.get(name).and_then(Value::as_i64).map(Millis);
        let (first, start) = before.map_or((0, 0), |before| (before.next, before.end));
        let block = Block { first, start, from: time("from_ms")?, to: time("to_ms")? };
        let entry = Self {
            block,
            end: number("end")?,
            next: number("next_offset")?,
            line_start: number("line_start")?,
        };
        let follows = entry.next > first
            && start <= entry.line_start
            && entry.line_start < entry.end
            && entry.end - start <= BLOCK_BYTES_CEILING;
        let hash = value.get("line_sha256").and_then(Value::as_str)?;
        follows.then(|| (entry, hash.to_owned()))
    }

    /// Whether the log has the recorded line at the recorded place.
    fn matches_log(&self, log: &mut File, hash: &str) -> io::Result<bool> {
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
    fn blocks_cover_the_log_with_their_time_ranges() {
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
    fn entries_restore_the_full_blocks() {
        let (index, mut log) = indexed();
        let LoadedIndex { index: loaded, bytes, acknowledged } =
            Index::load(index.entries(), &mut log, 10).expect("readable");
        assert_eq!((bytes as usize, acknowledged), (index.entries().len(), 4));
        assert_eq!((loaded.end, loaded.next), (27, 4), "the rest is read from the log");
        assert_eq!(ranges(&loaded)[..2], ranges(&index)[..2]);
    }

    #[test]
    fn entries_that_disagree_with_the_log_are_ignored() {
        let (index, mut log) = indexed();
        let first = index.entries().split_inclusive('\n').next().expect("an entry").len() as u64;
        let torn = &index.entries()[..index.entries().len() - 3];
        assert_eq!(Index::load(torn, &mut log, 10).expect("readable").bytes, first);
        log.set_len(20).expect("cut");
        let loaded = Index::load(index.entries(), &mut log, 10).expect("readable");
        let found = (loaded.index.next, loaded.bytes, loaded.acknowledged);
        assert_eq!(found, (2, first, 4), "the log is shorter than in the last entry");
        let mut other = tempfile::tempfile().expect("a file");
        other.write_all(&[b'x'; 100]).expect("written");
        assert_eq!(Index::load(index.entries(), &mut other, 10).expect("readable").bytes, 0);
        assert_eq!(Index::load("garbage\n", &mut log, 10).expect("readable").bytes, 0);
    }

    #[test]
    fn one_changed_bit_of_an_entry_shifts_no_offset_and_hides_no_block() {
        let (index, mut log) = indexed();
        let whole = index.entries().as_bytes();
        for at in 0..whole.len() {
            for bit in 0..7 {
                let mut damaged = whole.to_vec();
                damaged[at] ^= 1 << bit;
                let Ok(damaged) = str::from_utf8(&damaged) else { continue };
                let loaded = Index::load(damaged, &mut log, 10).expect("readable");
                let (place, loaded) = (format!("bit {bit} of byte {at}"), loaded.index);
                assert!([(0, 0), (2, 16), (4, 27)].contains(&(loaded.next, loaded.end)), "{place}");
                let full = loaded.full.len();
                assert_eq!(ranges(&loaded)[..full], ranges(&index)[..full], "{place}");
            }
        }
    }

    #[test]
    fn entries_without_a_checksum_prove_an_end_and_are_written_again() {
        let (index, mut log) = indexed();
        let mut earlier = String::new();
        for entry in index.entries().lines() {
            let (body, _) = entry.split_once(",\"crc32\"").expect("a checksum");
            earlier.push_str(&format!("{body}}}\n"));
        }
        let loaded = Index::load(&earlier, &mut log, 10).expect("readable");
        assert_eq!((loaded.index.next, loaded.bytes, loaded.acknowledged), (0, 0, 4));
    }

    #[test]
    fn a_line_without_a_time_counts_as_any_time() {
        let mut index = Index::new(1_000);
        index.add(b"x\n", Some(Millis(5)));
        index.add(b"y\n", None);
        let (block, _) = index.blocks().next().expect("one");
        assert_eq!((block.from, block.to), (Millis(i64::MIN), Millis(i64::MAX)));
    }
}
