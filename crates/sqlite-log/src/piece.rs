//! What is collected: bytes that follow each other in the file.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use crate::mark::{Mark, NotMarked, Salts};

/// As much as is collected at most. A commit of a few hundred events is about one megabyte.
const BYTES_MAX: usize = 1 << 20;

/// As much as is handed on at a time. SQLite's own layer on Unix takes less than 128 KiB in one call.
const STEP_BYTES: usize = 64 << 10;

/// A log that grows does so in steps of this length.
const AHEAD: i64 = 1 << 20;

/// A shorter log grows with every commit: most are never longer.
const AHEAD_FROM: i64 = 256 << 10;

/// A piece of a file that is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// The file.
    path: CString,
    at: i64,
    bytes: Vec<u8>,
    /// Where the last write since the last sync ended, or zero.
    written: i64,
    /// As far as the file is known to reach.
    reach: i64,
    /// What the first write that failed was told; zero as long as none has. What came before it in the
    /// same transaction may be lost, so nothing that comes after it may go well.
    failure: i32,
    /// Where generations of the log are marked, on the connection that acknowledges commits.
    pub(crate) mark: Option<Arc<Mark>>,
    /// The generation of what was written since the last sync.
    generation: Option<Salts>,
}

/// The header of a log, and where its salts are.
const LOG_HEADER_BYTES: usize = 32;
const LOG_HEADER_SALTS: usize = 16;

/// The header of a frame, which SQLite writes by itself, and where its salts are.
const FRAME_HEADER_BYTES: usize = 24;
const FRAME_HEADER_SALTS: usize = 8;

impl Piece {
    /// Nothing yet, for the file of this name.
    pub(crate) fn of(path: &CStr) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Takes `bytes` for the place `at`, unless they do not follow what is here or are too many.
    pub(crate) fn take(&mut self, at: i64, bytes: &[u8]) -> bool {
        if at == 0 {
            // The log starts over, and somebody else may have cut it meanwhile.
            self.reach = 0;
        }
        if self.bytes.is_empty() {
            self.at = at;
        } else if self.at + place(self.bytes.len()) != at {
            return false;
        }
        let fits = self.bytes.len() + bytes.len() <= BYTES_MAX;
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    /// Notes which generation of the log is written to. Frames are looked at too, because another program
    /// may have started the log over.
    pub(crate) fn note_generation(&mut self, at: i64, bytes: &[u8]) {
        let salts = match bytes.len() {
            LOG_HEADER_BYTES if at == 0 => &bytes[LOG_HEADER_SALTS..],
            FRAME_HEADER_BYTES => &bytes[FRAME_HEADER_SALTS..],
            _ => return,
        };
        self.generation = salts.first_chunk().copied();
    }

    /// Marks the generation of what is about to be synced, unless it is marked.
    pub(crate) fn mark_generation(&mut self) -> Result<(), NotMarked> {
        match (&self.mark, self.generation.take()) {
            (Some(mark), Some(salts)) => mark.begin(salts),
            _ => Ok(()),
        }
    }

    /// The file is about to be cut: how long it is must be asked again.
    pub(crate) fn cut(&mut self) {
        self.reach = 0;
    }

    /// Drops what is collected; everything fails with this code from now on.
    pub(crate) fn fail(&mut self, code: i32) -> i32 {
        self.bytes.clear();
        self.failure = code;
        code
    }

    /// Hands everything to `write`, which returns zero when it went well. After a failure nothing is left
    /// and it returns the same for ever: the file is to be closed.
    pub(crate) fn write_out(&mut self, mut write: impl FnMut(i64, &[u8]) -> i32) -> i32 {
        let mut at = self.at;
        for step in self.bytes.chunks(STEP_BYTES) {
            if self.failure == 0 {
                self.failure = write(at, step);
            }
            at += place(step.len());
        }
        if !self.bytes.is_empty() {
            self.written = at;
        }
        self.bytes.clear();
        self.failure
    }

    /// Before the sync of a commit, while nobody else may write: if the file ends with what was written it is
    /// made longer with zeros, so that the commits that follow change nothing about it that the file system
    /// would have to sync with them. `len` asks how long it is, `has_room` whether its disk is far from full:
    /// the last room is for events, and for copying them. Nobody depends on the zeros: without them a log
    /// grows with every commit.
    pub(crate) fn reach_ahead(
        &mut self,
        len: impl FnOnce() -> Option<i64>,
        has_room: impl FnOnce(&CStr) -> bool,
        mut write: impl FnMut(i64, &[u8]) -> i32,
    ) {
        let end = std::mem::take(&mut self.written);
        if end <= self.reach || end < AHEAD_FROM {
            return;
        }
        let Some(len) = len() else { return };
        self.reach = len.max(end);
        if len != end || !has_room(&self.path) {
            return;
        }
        let until = (end / AHEAD + 1) * AHEAD;
        for at in (end..until).step_by(STEP_BYTES) {
            let step = usize::try_from(until - at).map_or(STEP_BYTES, |left| left.min(STEP_BYTES));
            if write(at, &ZEROS[..step]) != 0 {
                return;
            }
        }
        self.reach = until;
    }
}

/// The zeros that are written behind a log that grows, a step at a time.
static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// A length as SQLite counts places.
fn place(len: usize) -> i64 {
    i64::try_from(len).expect("a piece is at most a megabyte")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As a disk that is full.
    const FULL: i32 = 13;

    /// Writes as a file would, growing it with zeros.
    fn write_at(file: &mut Vec<u8>, at: i64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    proptest! {
        /// Whatever is written where, in whatever order, and whenever it is written out.
        #[test]
        fn what_is_collected_arrives_as_if_it_had_been_written_at_once(
            writes in prop::collection::vec(
                (0_i64..400, prop::collection::vec(any::<u8>(), 1..80), any::<bool>(), any::<bool>()),
                0..40,
            ),
        ) {
            let (mut at_once, mut collected) = (Vec::new(), Vec::new());
            let mut piece = Piece::default();
            let mut next = 0;
            for (at, bytes, follows, then_out) in writes {
                let at = if follows { next } else { at };
                next = at + place(bytes.len());
                write_at(&mut at_once, at, &bytes);
                let mut out = |piece: &mut Piece| piece.write_out(|at, bytes| {
                    write_at(&mut collected, at, bytes);
                    0
                });
                if !piece.take(at, &bytes) {
                    assert_eq!(out(&mut piece), 0);
                    assert!(piece.take(at, &bytes));
                }
                if then_out {
                    assert_eq!(out(&mut piece), 0);
                }
            }
            piece.write_out(|at, bytes| {
                write_at(&mut collected, at, bytes);
                0
            });
            prop_assert_eq!(at_once, collected);
        }
    }

    proptest! {
        /// Wherever commits go, when the log starts over or is cut, and however much room the disk has.
        #[test]
        fn zeros_go_behind_the_end_of_the_file_and_nowhere_else(
            commits in prop::collection::vec((1_usize..200_000, 0_u8..20), 1..30),
            room in 0_usize..4_000_000,
            has_room in prop::bool::weighted(0.8),
        ) {
            let (mut plain, mut ahead) = (Vec::new(), Vec::new());
            let (mut piece, mut at) = (Piece::default(), 0);
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
                prop_assert!(piece.take(at, &bytes));
                let end = at + place(bytes.len());
                write_at(&mut plain, at, &bytes);
                piece.write_out(|at, bytes| {
                    write_at(&mut ahead, at, bytes);
                    0
                });
                let len = place(ahead.len());
                piece.reach_ahead(|| Some(len), |_| has_room, |at, zeros| {
                    assert!(at >= len, "there is something at {at}");
                    let is_full = ahead.len() + zeros.len() > room;
                    if !is_full {
                        write_at(&mut ahead, at, zeros);
                    }
                    if is_full { FULL } else { 0 }
                });
                prop_assert_eq!(piece.write_out(|_, _| panic!("nothing is left")), 0);
                prop_assert_eq!(&ahead[..plain.len()], &plain[..]);
                prop_assert!(ahead[plain.len()..].iter().all(|byte| *byte == 0));
                prop_assert!(has_room || ahead.len() == plain.len());
                at = end;
            }
        }
    }

    #[test]
    fn a_log_that_grows_does_so_in_steps_once_it_is_long() {
        let (mut piece, mut len, mut grown) = (Piece::default(), 0, 0);
        for end in (1..=64).map(|commit| commit * 100_000) {
            let is_longer = end > len;
            len = len.max(end);
            let mut zeros = 0;
            piece.written = end;
            piece.reach_ahead(
                || Some(len),
                |_| true,
                |_, bytes| {
                    zeros += place(bytes.len());
                    0
                },
            );
            assert_eq!(zeros > 0, is_longer && end >= AHEAD_FROM, "at {end}");
            len += zeros;
            grown += i64::from(is_longer);
        }
        assert_eq!(len % AHEAD, 0);
        assert!(grown <= 2 + 64 * 100_000 / AHEAD + 1, "it grew {grown} times");
    }

    #[test]
    fn no_more_is_collected_than_the_limit_and_no_more_handed_on_than_a_step() {
        let mut piece = Piece::default();
        let bytes = vec![7; BYTES_MAX];
        assert!(piece.take(5, &bytes));
        assert!(!piece.take(5 + place(BYTES_MAX), &[8]));
        let mut next = 5;
        piece.write_out(|at, step| {
            assert!(step.len() <= STEP_BYTES);
            assert_eq!(at, next);
            next += place(step.len());
            0
        });
        assert_eq!(next, 5 + place(BYTES_MAX));
    }

    #[test]
    fn after_a_failure_nothing_more_is_written_and_everything_fails() {
        let mut piece = Piece::default();
        assert!(piece.take(0, &vec![1; 3 * STEP_BYTES]));
        let mut calls = 0;
        let code = piece.write_out(|_, _| {
            calls += 1;
            if calls == 2 { 13 } else { 0 }
        });
        assert_eq!((code, calls), (13, 2));
        assert!(piece.take(0, &[1]));
        assert_eq!(piece.write_out(|_, _| panic!("it is not tried again")), 13);
        assert_eq!(piece.write_out(|_, _| panic!("there is nothing to write")), 13);
    }
}
