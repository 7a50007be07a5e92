//! Whether the log beside the ledger can be read to its end, before SQLite reads it.
//!
//! SQLite takes the log up to the first frame that does not check out, and drops the rest without a word:
//! a crash leaves such an end. But every commit is synced before the next one is written, so a crash can
//! only tear the last one. A whole commit *and* something after it, both behind a frame that does not
//! check out, were once durable. Then the log is damaged, and what producers were told is stored is lost.
//!
//! The format is SQLite's: a header of 32 bytes, then frames of 24 bytes and a page. Frames of an
//! earlier round of the log have other salts.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;

/// What is wrong with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// Nothing of it can be read.
    Header,
    /// From this frame on, counted from one, nothing can be read.
    Frame(u64),
}

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// The two ways the sums are made up; the last bit says which.
const MAGIC: u32 = 0x377f_0682;

/// Looks through the log of a ledger. `None` when it is in order, or torn as a crash leaves it.
pub(super) fn damage(log: &Path) -> io::Result<Option<Damage>> {
    let file = match File::open(log) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut from = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut from, &mut header)? || header == [0; HEADER_BYTES] {
        // Never synced: nothing was stored by it.
        return Ok(None);
    }
    match Frames::after(&header) {
        Some(frames) => frames.damage(from),
        None => Ok(Some(Damage::Header)),
    }
}

struct Frames {
    is_big_endian: bool,
    page_bytes: usize,
    salts: [u8; 8],
    sums: (u32, u32),
}

impl Frames {
    fn after(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let magic = word(header, 0);
        let mut frames = Self {
            is_big_endian: magic & 1 == 1,
            page_bytes: usize::try_from(word(header, 8)).ok()?,
            salts: header[16..24].try_into().ok()?,
            sums: (0, 0),
        };
        frames.add(&header[..24]);
        let is_whole = magic & !1 == MAGIC
            && frames.page_bytes.is_power_of_two()
            && (512..=65_536).contains(&frames.page_bytes)
            && frames.sums == (word(header, 24), word(header, 28));
        is_whole.then_some(frames)
    }

    fn damage(mut self, mut from: impl Read) -> io::Result<Option<Damage>> {
        let mut frame = vec![0; FRAME_HEADER_BYTES + self.page_bytes];
        let (mut number, mut broken, mut has_commit) = (0, None, false);
        while fill(&mut from, &mut frame)? {
            number += 1;
            let is_ours = frame[8..16] == self.salts;
            if broken.is_none() {
                self.add(&frame[..8]);
                self.add(&frame[FRAME_HEADER_BYTES..]);
                if !is_ours || self.sums != (word(&frame, 16), word(&frame, 20)) {
                    broken = Some(number);
                }
            }
            if let (Some(broken), true) = (broken, is_ours) {
                if has_commit {
                    return Ok(Some(Damage::Frame(broken)));
                }
                has_commit = word(&frame, 4) != 0;
            }
        }
        Ok(None)
    }

    /// Adds bytes to the running sums.
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

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}

/// Fills `buf`; `false` where the file ends before that.
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

    const PAGE: usize = 1024;
    const FRAME: usize = FRAME_HEADER_BYTES + PAGE;

    /// A log with `commits` synced commits in it, as a killed process leaves it.
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
        (folder, copy)
    }

    fn change(path: &Path, at: usize) -> Option<Damage> {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 0x55;
        fs::write(path, &bytes).unwrap();
        let found = damage(path).unwrap();
        bytes[at] ^= 0x55;
        fs::write(path, bytes).unwrap();
        found
    }

    #[test]
    fn a_log_that_was_never_written_or_is_whole_is_in_order() {
        let (folder, path) = log(5);
        assert_eq!(damage(&path).unwrap(), None);
        assert_eq!(damage(&folder.path().join("none")).unwrap(), None);
        for bytes in [&b""[..], b"a few", &[0; 4096]] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(damage(&path).unwrap(), None, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn wherever_a_log_is_torn_it_is_what_a_crash_leaves() {
        let (_folder, path) = log(4);
        let whole = fs::read(&path).unwrap();
        for length in (0..whole.len()).step_by(97) {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(damage(&path).unwrap(), None, "torn at {length}");
        }
    }

    #[test]
    fn zeros_behind_a_log_are_no_damage_and_hide_none() {
        let (_folder, path) = log(6);
        let mut bytes = fs::read(&path).unwrap();
        bytes.resize(1 << 20, 0);
        fs::write(&path, &bytes).unwrap();
        assert_eq!(damage(&path).unwrap(), None);
        assert_eq!(change(&path, HEADER_BYTES + FRAME_HEADER_BYTES), Some(Damage::Frame(1)));
    }

    #[test]
    fn damage_before_the_last_commit_is_found_wherever_it_is() {
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
    fn damage_in_the_last_commit_cannot_be_told_from_a_crash() {
        let (_folder, path) = log(6);
        let last = fs::read(&path).unwrap().len() - FRAME;
        assert_eq!(change(&path, last + FRAME_HEADER_BYTES), None);
    }

    #[test]
    fn what_an_earlier_round_of_the_log_left_behind_is_no_damage() {
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
        assert_eq!(damage(&log).unwrap(), None);
    }
}
