//! Write buffer for consecutive bytes of a file.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use crate::mark::{Mark, MarkError, Salts};

/// Maximum size of the buffer. A commit of a few hundred events is about one megabyte.
const BYTES_MAX: usize = 1 << 20;

/// Maximum size of one write. SQLite's system VFS on Unix accepts less than 128 KiB per call.
const STEP_BYTES: usize = 64 << 10;

/// Growth step of a WAL.
const PREALLOCATE_STEP: i64 = 1 << 20;

/// Minimum length for preallocation: most WALs are never longer.
const PREALLOCATE_FROM: i64 = 256 << 10;

/// Consecutive bytes of a file that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    /// Path of the file.
    path: CString,
    at: i64,
    bytes: Vec<u8>,
    /// End of the last write since the last sync, or zero.
    written: i64,
    /// Known length of the file.
    reach: i64,
    /// Error code of the first failed write; zero if none failed. Earlier bytes of the same
    /// transaction may be lost, so no later write may succeed.
    failure: i32,
    /// Mark for WAL generations, on the connection that acknowledges commits.
    pub(crate) mark: Option<Arc<Mark>>,
    /// WAL generation of the bytes written since the last sync.
    generation: Option<Salts>,
}

/// Size of the WAL header, and offset of its salts.
const LOG_HEADER_BYTES: usize = 32;
const LOG_HEADER_SALTS: usize = 16;

/// Size of a frame header, which SQLite writes separately, and offset of its salts.
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_HEADER_SALTS: usize = 8;

impl WriteBuffer {
    /// Creates an empty buffer for the file at `path`.
    pub(crate) fn of(path: &CStr) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Buffers `bytes` for offset `at`. Returns `false` if they do not follow the buffered bytes or
    /// exceed the limit.
    pub(crate) fn append(&mut self, at: i64, bytes: &[u8]) -> bool {
        if at == 0 {
            // The WAL is restarted, and another process may have truncated it meanwhile.
            self.reach = 0;
        }
        if self.bytes.is_empty() {
            self.at = at;
        } else if self.at + offset(self.bytes.len()) != at {
            return false;
        }
        let fits = self.bytes.len() + bytes.len() <= BYTES_MAX;
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// Records the WAL generation of a write. Frames are checked too, because another program may
    /// have restarted the WAL.
    pub(crate) fn note_generation(&mut self, at: i64, bytes: &[u8]) {
        let salts = match bytes.len() {
            LOG_HEADER_BYTES if at == 0 => &bytes[LOG_HEADER_SALTS..],
            FRAME_HEADER_BYTES => &bytes[FRAME_HEADER_SALTS..],
            _ => return,
        };
        self.generation = salts.first_chunk().copied();
    }

    /// Marks the generation of the bytes about to be synced, unless it is marked.
    pub(crate) fn mark_generation(&mut self) -> Result<(), MarkError> {
        match (&self.mark, self.generation.take()) {
            (Some(mark), Some(salts)) => mark.begin(salts),
            _ => Ok(()),
        }
    }

    /// The file is about to be truncated: its length must be queried again.
    pub(crate) fn truncate(&mut self) {
        self.reach = 0;
    }

    /// Drops the buffered bytes; every later write fails with this code.
    pub(crate) fn fail(&mut self, code: i32) -> i32 {
        self.bytes.clear();
        self.failure = code;
        code
    }

    /// Passes all buffered bytes to `write`, which returns zero on success. After a failure the
    /// buffer is empty and every call returns the same code: the file must be closed.
    pub(crate) fn write_out(&mut self, mut write: impl FnMut(i64, &[u8]) -> i32) -> i32 {
        let mut at = self.at;
        for step in self.bytes.chunks(STEP_BYTES) {
            if self.failure == 0 {
                self.failure = write(at, step);
            }
            at += offset(step.len());
        }
        if !self.bytes.is_empty() {
            self.written = at;
        }
        self.bytes.clear();
        self.failure
    }

    /// Extends the file with zeros before the sync of a commit, while no other writer is active, if
    /// it ends with the written bytes: later commits then change no file metadata that the file
    /// system would have to sync. `len` queries the file length, `has_room` whether the disk has
    /// enough space: the last space is for events and for copying them. Nothing depends on the
    /// zeros: without them the WAL grows with every commit.
    pub(crate) fn preallocate(
        &mut self,
        len: impl FnOnce() -> Option<i64>,
        has_room: impl FnOnce(&CStr) -> bool,
        mut write: impl FnMut(i64, &[u8]) -> i32,
    ) {
        let end = std::mem::take(&mut self.written);
        if end <= self.reach || end < PREALLOCATE_FROM {
            return;
        }
        let Some(len) = len() else { return };
        self.reach = len.max(end);
        if len != end || !has_room(&self.path) {
            return;
        }
        let until = (end / PREALLOCATE_STEP + 1) * PREALLOCATE_STEP;
        for at in (end..until).step_by(STEP_BYTES) {
            let step = usize::try_from(until - at).map_or(STEP_BYTES, |left| left.min(STEP_BYTES));
            if write(at, &ZEROS[..step]) != 0 {
                return;
            }
        }
        self.reach = until;
    }
}

/// Zeros for preallocation, one step.
static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// Length as an SQLite file offset.
fn offset(len: usize) -> i64 {
    i64::try_from(len).expect("a buffer is at most a megabyte")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Error code of a full disk.
    const FULL: i32 = 13;

    /// Writes like a file, filling gaps with zeros.
    fn write_at(file: &mut Vec<u8>, at: i64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    proptest! {
        /// Writes at random offsets, flushed at random times.
        #[test]
        fn buffered_writes_give_the_same_file_as_direct_writes(
            writes in prop::collection::vec(
                (0_i64..400, prop::collection::vec(any::<u8>(), 1..80), any::<bool>(), any::<bool>()),
                0..40,
            ),
        ) {
            let (mut at_once, mut collected) = (Vec::new(), Vec::new());
            let mut buffer = WriteBuffer::default();
            let mut next = 0;
            for (at, bytes, follows, then_out) in writes {
                let at = if follows { next } else { at };
                next = at + offset(bytes.len());
                write_at(&mut at_once, at, &bytes);
                let mut out = |buffer: &mut WriteBuffer| buffer.write_out(|at, bytes| {
                    write_at(&mut collected, at, bytes);
                    0
                });
                if !buffer.append(at, &bytes) {
                    assert_eq!(out(&mut buffer), 0);
                    assert!(buffer.append(at, &bytes));
                }
                if then_out {
                    assert_eq!(out(&mut buffer), 0);
                }
            }
            buffer.write_out(|at, bytes| {
                write_at(&mut collected, at, bytes);
                0
            });
            prop_assert_eq!(at_once, collected);
        }
    }

    proptest! {
        /// Commits at random offsets, with restarts, truncation and limited disk space.
        #[test]
        fn zeros_are_written_only_behind_the_end_of_the_file(
            commits in prop::collection::vec((1_usize..200_000, 0_u8..20), 1..30),
            room in 0_usize..4_000_000,
            has_room in prop::bool::weighted(0.8),
        ) {
            let (mut plain, mut ahead) = (Vec::new(), Vec::new());
            let (mut buffer, mut at) = (WriteBuffer::default(), 0);
            for (number, (len, chance)) in (1..).zip(commits) {
                match chance {
                    0 => at = 0,
                    1 => {
                        at = 0;
                        plain.clear();
                        ahead.clear();
                    }
                    _ => {}
                }
                let bytes = vec![number; len];
                prop_assert!(buffer.append(at, &bytes));
                let end = at + offset(bytes.len());
                write_at(&mut plain, at, &bytes);
                buffer.write_out(|at, bytes| {
                    write_at(&mut ahead, at, bytes);
                    0
                });
                let len = offset(ahead.len());
                buffer.preallocate(|| Some(len), |_| has_room, |at, zeros| {
                    assert!(at >= len, "there is something at {at}");
                    let is_full = ahead.len() + zeros.len() > room;
                    if !is_full {
                        write_at(&mut ahead, at, zeros);
                    }
                    if is_full { FULL } else { 0 }
                });
                prop_assert_eq!(buffer.write_out(|_, _| panic!("nothing is left")), 0);
                prop_assert_eq!(&ahead[..plain.len()], &plain[..]);
                prop_assert!(ahead[plain.len()..].iter().all(|byte| *byte == 0));
                prop_assert!(has_room || ahead.len() == plain.len());
                at = end;
            }
        }
    }

    #[test]
    fn a_long_wal_grows_in_steps() {
        let (mut buffer, mut len, mut grown) = (WriteBuffer::default(), 0, 0);
        for end in (1..=64).map(|commit| commit * 100_000) {
            let is_longer = end > len;
            len = len.max(end);
            let mut zeros = 0;
            buffer.written = end;
            buffer.preallocate(
                || Some(len),
                |_| true,
                |_, bytes| {
                    zeros += offset(bytes.len());
                    0
                },
            );
            assert_eq!(zeros > 0, is_longer && end >= PREALLOCATE_FROM, "at {end}");
            len += zeros;
            grown += i64::from(is_longer);
        }
        assert_eq!(len % PREALLOCATE_STEP, 0);
        assert!(grown <= 2 + 64 * 100_000 / PREALLOCATE_STEP + 1, "it grew {grown} times");
    }

    #[test]
    fn the_buffer_and_each_write_are_limited() {
        let mut buffer = WriteBuffer::default();
        let bytes = vec![7; BYTES_MAX];
        assert!(buffer.append(5, &bytes));
        assert!(!buffer.append(5 + offset(BYTES_MAX), &[8]));
        let mut next = 5;
        buffer.write_out(|at, step| {
            assert!(step.len() <= STEP_BYTES);
            assert_eq!(at, next);
            next += offset(step.len());
            0
        });
        assert_eq!(next, 5 + offset(BYTES_MAX));
    }

    #[test]
    fn after_a_failure_every_write_fails() {
        let mut buffer = WriteBuffer::default();
        assert!(buffer.append(0, &vec![1; 3 * STEP_BYTES]));
        let mut calls = 0;
        let code = buffer.write_out(|_, _| {
            calls += 1;
            if calls == 2 { 13 } else { 0 }
        });
        assert_eq!((code, calls), (13, 2));
        assert!(buffer.append(0, &[1]));
        assert_eq!(buffer.write_out(|_, _| panic!("it is not tried again")), 13);
        assert_eq!(buffer.write_out(|_, _| panic!("there is nothing to write")), 13);
    }
}
