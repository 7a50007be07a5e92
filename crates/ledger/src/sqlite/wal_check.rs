//! Checks that the WAL is readable to its end, before SQLite reads it.
//!
//! SQLite reads the WAL up to the first frame with a bad checksum, and silently drops the rest: a crash
//! leaves such an end. But every commit is synced before the next one is written, so a crash can only tear
//! the last one. A whole commit *and* something after it, both behind a frame with a bad checksum, were
//! once durable. Then the WAL is damaged, and acknowledged events are lost.
//!
//! The last commits are covered by the WAL index, if a killed process has left it: it holds the number of
//! frames, and is updated only after they are synced. After a power cut it may be older than the WAL, never
//! newer.
//!
//! The format is SQLite's: a header of 32 bytes, then frames of 24 bytes and a page. Frames of an earlier
//! generation of the WAL have other salts.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::mem::ManuallyDrop;
use std::path::Path;

use admit_sqlite_log::mark::Salts;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

/// Damage of a WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// The header is unreadable, so all of it is lost.
    Header,
    /// Frames from this one on, counted from one, are unreadable.
    Frame(u64),
}

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The two byte orders of the checksums; the last bit selects one.
const MAGIC: u32 = 0x377f_0682;

/// Size of the index header. It is stored twice, so that a concurrent reader can detect a torn write.
const INDEX_BYTES: usize = 48;

/// Checks the WAL of a ledger against its checksums and the WAL index. Returns `None` if it is intact, or
/// torn as after a crash.
pub(super) fn damage(log: &Path, index: &Path) -> io::Result<Option<Damage>> {
    let file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut from = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut from, &mut header)? {
        // A WAL that was started has a whole header before anything else.
        let is_empty = from.get_ref().metadata()?.len() == 0;
        return Ok((!is_empty).then_some(Damage::Header));
    }
    if header == [0; HEADER_BYTES] {
        // Never synced, so nothing was acknowledged with it; unless the index knows the frames behind it.
        let mut frame = [0; FRAME_HEADER_BYTES];
        let is_known = fill(&mut from, &mut frame)?
            && read_index(index)?.is_some_and(|read_index| frame[8..16] == read_index.salts);
        return Ok(is_known.then_some(Damage::Header));
    }
    match Frames::after(&header) {
        Some(frames) => frames.damage(from, read_index(index)?),
        None => Ok(Some(Damage::Header)),
    }
}

/// The header of a WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Missing,
    Empty,
    /// Invalid for SQLite.
    Unreadable,
    /// Valid, with the salts of its generation.
    Whole(Salts),
}

/// Reads the header of a WAL.
pub(super) fn header(log: &Path) -> io::Result<Header> {
    let mut file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Header::Missing),
        Err(error) => return Err(error),
    };
    if file.metadata()?.len() == 0 {
        return Ok(Header::Empty);
    }
    let mut header = [0; HEADER_BYTES];
    let frames = if fill(&mut file, &mut header)? { Frames::after(&header) } else { None };
    Ok(frames.map_or(Header::Unreadable, |frames| Header::Whole(frames.salts)))
}

/// Whether a log holds a whole commit of its generation.
pub(super) fn has_commit(log: &Path) -> io::Result<bool> {
    let mut from = BufReader::new(File::open(log)?);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut from, &mut header)? {
        return Ok(false);
    }
    let Some(mut frames) = Frames::after(&header) else { return Ok(false) };
    let mut frame = vec![0; FRAME_HEADER_BYTES + frames.page_bytes];
    while fill(&mut from, &mut frame)? {
        if !frames.continues_with(&frame) {
            return Ok(false);
        }
        if word(&frame, 4) != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether another process has the ledger open with SQLite, which holds a lock on this byte of the index.
pub(super) fn is_in_use(index: &Path) -> io::Result<bool> {
    const LOCKED: u64 = 128;
    let Some(file) = open_leaked(index)? else { return Ok(false) };
    let wanted = Flock {
        start: LOCKED,
        length: 1,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    Ok(fcntl_getlk(&*file, &wanted)?.is_some())
}

/// Opens the index and never closes it: closing any descriptor of a file releases all locks that the process
/// has on it, including those of SQLite's connections. Few are opened, by a start or a command.
fn open_leaked(index: &Path) -> io::Result<Option<ManuallyDrop<File>>> {
    match File::open(index) {
        Ok(file) => Ok(Some(ManuallyDrop::new(file))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Content of the WAL index.
struct WalIndexHeader {
    salts: [u8; 8],
    frames: u64,
}

/// Reads the index, if it exists and is valid. It is shared memory, so its numbers are in native byte
/// order.
fn read_index(index: &Path) -> io::Result<Option<WalIndexHeader>> {
    let mut both = [0; 2 * INDEX_BYTES];
    let Some(file) = open_leaked(index)? else { return Ok(None) };
    if !fill(&mut &*file, &mut both)? {
        return Ok(None);
    }
    let (header, copy) = both.split_at(INDEX_BYTES);
    let native = |at: usize| {
        header[at..].first_chunk().map_or(0, |word: &[u8; 4]| u32::from_ne_bytes(*word))
    };
    let mut sums = Sums { is_big_endian: cfg!(target_endian = "big"), sums: (0, 0) };
    sums.add(&header[..40]);
    let is_whole = header == copy && header[12] == 1 && sums.sums == (native(40), native(44));
    let salts = header[32..].first_chunk().copied().unwrap_or_default();
    Ok(is_whole.then(|| WalIndexHeader { salts, frames: u64::from(native(16)) }))
}

/// Running checksum of SQLite's WAL.
struct Sums {
    is_big_endian: bool,
    sums: (u32, u32),
}

impl Sums {
    /// Adds bytes, eight at a time.
    fn add(&mut self, bytes: &[u8]) {
        let read = if self.is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        let (mut first, mut second) = self.sums;
        for pair in bytes.as_chunks::<8>().0 {
            let [a, b, c, d, e, f, g, h] = *pair;
            first = first.wrapping_add(read([a, b, c, d])).wrapping_add(second);
            second = second.wrapping_add(read([e, f, g, h])).wrapping_add(first);
        }
        self.sums = (first, second);
    }
}

struct Frames {
    page_bytes: usize,
    salts: [u8; 8],
    sums: Sums,
}

impl Frames {
    fn after(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let magic = word(header, 0);
        let mut frames = Self {
            page_bytes: usize::try_from(word(header, 8)).ok()?,
            salts: header[16..24].try_into().ok()?,
            sums: Sums { is_big_endian: magic & 1 == 1, sums: (0, 0) },
        };
        frames.sums.add(&header[..24]);
        let is_whole = magic & !1 == MAGIC
            && frames.page_bytes.is_power_of_two()
            && (512..=65_536).contains(&frames.page_bytes)
            && frames.sums.sums == (word(header, 24), word(header, 28));
        is_whole.then_some(frames)
    }

    /// Whether the frame is the next one of this generation.
    fn continues_with(&mut self, frame: &[u8]) -> bool {
        self.sums.add(&frame[..8]);
        self.sums.add(&frame[FRAME_HEADER_BYTES..]);
        frame[8..16] == self.salts && self.sums.sums == (word(frame, 16), word(frame, 20))
    }

    fn damage(
        mut self,
        mut from: impl Read,
        read_index: Option<WalIndexHeader>,
    ) -> io::Result<Option<Damage>> {
        let mut frame = vec![0; FRAME_HEADER_BYTES + self.page_bytes];
        let (mut number, mut broken, mut has_commit) = (0, None, false);
        while fill(&mut from, &mut frame)? {
            number += 1;
            let is_ours = frame[8..16] == self.salts;
            if broken.is_none() && !self.continues_with(&frame) {
                broken = Some(number);
            }
            if let (Some(broken), true) = (broken, is_ours) {
                if has_commit {
                    return Ok(Some(Damage::Frame(broken)));
                }
                has_commit = word(&frame, 4) != 0;
            }
        }
        // The first frame that is unreadable or missing.
        let first = broken.unwrap_or(number + 1);
        let is_missing = |read_index: &WalIndexHeader| {
            read_index.salts == self.salts && read_index.frames >= first
        };
        Ok(read_index.filter(is_missing).map(|_| Damage::Frame(first)))
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

/// Fills `buf`; returns `false` if the file ends before that.
fn fill(from: &mut impl Read, buf: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(buf) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    use rusqlite::Connection;

    /// No index, as after a power cut.
    const NONE: &str = "there is none";

    const PAGE: usize = 1024;
    const FRAME: usize = FRAME_HEADER_BYTES + PAGE;

    /// A WAL with `commits` synced commits, as a killed process leaves it, and its index.
    fn log(commits: usize) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "page_size", PAGE).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.execute_batch("CREATE TABLE t (a)").unwrap();
        for number in 1..commits {
            conn.execute("INSERT INTO t VALUES (?1)", [number]).unwrap();
        }
        let copy = folder.path().join("copy-wal");
        fs::copy(folder.path().join("a.db-wal"), &copy).unwrap();
        fs::copy(folder.path().join("a.db-shm"), folder.path().join("copy-shm")).unwrap();
        (folder, copy)
    }

    fn change(path: &Path, at: usize) -> Option<Damage> {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 0x55;
        fs::write(path, &bytes).unwrap();
        let found = damage(path, NONE.as_ref()).unwrap();
        bytes[at] ^= 0x55;
        fs::write(path, bytes).unwrap();
        found
    }

    #[test]
    fn a_log_that_was_never_written_or_is_whole_is_in_order() {
        let (folder, path) = log(5);
        assert_eq!(damage(&path, NONE.as_ref()).unwrap(), None);
        assert_eq!(damage(&folder.path().join("none"), NONE.as_ref()).unwrap(), None);
        for bytes in [&b""[..], &[0; 4096]] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(damage(&path, NONE.as_ref()).unwrap(), None, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn a_wal_torn_at_any_offset_counts_as_a_crash() {
        let (_folder, path) = log(4);
        let whole = fs::read(&path).unwrap();
        for length in (HEADER_BYTES..whole.len()).step_by(97) {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(damage(&path, NONE.as_ref()).unwrap(), None, "torn at {length}");
        }
    }

    /// Number of locks that this process has on a file, from its own descriptors. The list of all locks of the
    /// machine is read in pieces, and shifts while other processes lock and unlock.
    #[cfg(target_os = "linux")]
    fn locks(file: &Path) -> usize {
        let file = fs::canonicalize(file).unwrap();
        let of_file = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap()).filter(
            // One of the others may be closed by now.
            |entry| fs::read_link(entry.path()).is_ok_and(|to| to == file),
        );
        of_file
            .map(|entry| fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())))
            .map(|info| info.unwrap().lines().filter(|line| line.starts_with("lock:")).count())
            .sum()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn reading_the_index_keeps_the_locks_of_own_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.execute_batch("CREATE TABLE t (a); BEGIN; SELECT * FROM t").unwrap();
        let (log, index) = (folder.path().join("a.db-wal"), folder.path().join("a.db-shm"));
        let before = locks(&index);
        assert!(before > 0, "a connection holds some");
        assert_eq!(damage(&log, &index).unwrap(), None);
        assert!(!is_in_use(&index).unwrap(), "by no other process");
        assert_eq!(locks(&index), before);
    }

    #[test]
    fn a_log_that_ends_within_its_header_is_damaged() {
        let (_folder, path) = log(1);
        let whole = fs::read(&path).unwrap();
        for length in 1..HEADER_BYTES {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(damage(&path, NONE.as_ref()).unwrap(), Some(Damage::Header), "{length}");
        }
    }

    #[test]
    fn a_wal_shorter_than_its_index_is_damaged() {
        let (folder, path) = log(6);
        let index = folder.path().join("copy-shm");
        let whole = fs::read(&path).unwrap();
        assert_eq!(damage(&path, &index).unwrap(), None);
        for length in (HEADER_BYTES..whole.len()).step_by(97) {
            fs::write(&path, &whole[..length]).unwrap();
            let first = u64::try_from((length - HEADER_BYTES) / FRAME + 1).unwrap();
            assert_eq!(damage(&path, &index).unwrap(), Some(Damage::Frame(first)), "{length}");
        }
        let mut bytes = whole.clone();
        bytes[..HEADER_BYTES].fill(0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(damage(&path, &index).unwrap(), Some(Damage::Header), "no header");
        let mut bytes = whole.clone();
        *bytes.last_mut().unwrap() ^= 0x55;
        fs::write(&path, &bytes).unwrap();
        let last = u64::try_from((whole.len() - HEADER_BYTES) / FRAME).unwrap();
        assert_eq!(damage(&path, &index).unwrap(), Some(Damage::Frame(last)), "the last commit");
    }

    #[test]
    fn an_index_that_is_older_or_foreign_or_garbled_is_ignored() {
        let (folder, path) = log(6);
        let index = folder.path().join("copy-shm");
        let (of_now, whole) = (fs::read(&index).unwrap(), fs::read(&path).unwrap());
        let (other, _) = log(6);
        let (older, _) = log(2);
        let torn = &whole[..whole.len() - FRAME];
        fs::write(&path, torn).unwrap();
        for from in [&other, &older] {
            fs::copy(from.path().join("copy-shm"), &index).unwrap();
            assert_eq!(damage(&path, &index).unwrap(), None);
        }
        for at in 0..2 * INDEX_BYTES {
            let mut bytes = of_now.clone();
            bytes[at] ^= 0x55;
            fs::write(&index, bytes).unwrap();
            assert_eq!(damage(&path, &index).unwrap(), None, "byte {at}");
        }
        fs::write(&path, vec![0; whole.len()]).unwrap();
        fs::write(&index, &of_now).unwrap();
        assert_eq!(damage(&path, &index).unwrap(), None, "what is all zeros may be as it was made");
        fs::write(&path, torn).unwrap();
        fs::write(&index, &of_now[..50]).unwrap();
        assert_eq!(damage(&path, &index).unwrap(), None);
    }

    #[test]
    fn zeros_behind_a_log_are_no_damage_and_hide_none() {
        let (_folder, path) = log(6);
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(1 << 20, 0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(damage(&path, NONE.as_ref()).unwrap(), None);
        assert_eq!(change(&path, HEADER_BYTES + FRAME_HEADER_BYTES), Some(Damage::Frame(1)));
    }

    #[test]
    fn damage_before_the_last_commit_is_detected_at_any_offset() {
        let (_folder, path) = log(6);
        let frames = (fs::read(&path).unwrap().len() - HEADER_BYTES) / FRAME;
        assert!(frames >= 6, "a commit is a frame at least");
        for frame in 0..frames - 2 {
            for within in [0, 4, 9, 17, FRAME_HEADER_BYTES, FRAME - 1] {
                let found = change(&path, HEADER_BYTES + frame * FRAME + within);
                let number = u64::try_from(frame + 1).unwrap();
                assert_eq!(found, Some(Damage::Frame(number)), "frame {number}, byte {within}");
            }
        }
        for at in 0..HEADER_BYTES {
            assert_eq!(change(&path, at), Some(Damage::Header), "byte {at} of the header");
        }
    }

    #[test]
    fn damage_in_the_last_commit_looks_like_a_crash() {
        let (_folder, path) = log(6);
        let last = fs::read(&path).unwrap().len() - FRAME;
        assert_eq!(change(&path, last + FRAME_HEADER_BYTES), None);
    }

    #[test]
    fn frames_of_an_earlier_wal_generation_are_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "page_size", PAGE).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.execute_batch("CREATE TABLE t (a)").unwrap();
        for number in 0..20 {
            conn.execute("INSERT INTO t VALUES (?1)", [number]).unwrap();
        }
        conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        conn.execute("INSERT INTO t VALUES (7)", []).unwrap();
        let log = folder.path().join("a.db-wal");
        assert!(fs::metadata(&log).unwrap().len() > 10 * 1024, "the old frames are still there");
        assert_eq!(damage(&log, NONE.as_ref()).unwrap(), None);
    }
}
