//! What is collected: bytes that follow each other in the file.

/// As much as is collected at most. A commit of a few hundred events is about one megabyte.
const BYTES_MAX: usize = 1 << 20;

/// As much as is handed on at a time. SQLite's own layer on Unix takes less than 128 KiB in one call.
const STEP_BYTES: usize = 64 << 10;

/// A piece of a file that is not written yet.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    at: i64,
    bytes: Vec<u8>,
    /// What the first write that failed was told; zero as long as none has. What came before it in the
    /// same transaction may be lost, so nothing that comes after it may go well.
    failure: i32,
}

impl Piece {
    /// Takes `bytes` for the place `at`, unless they do not follow what is here or are too many.
    pub(crate) fn take(&mut self, at: i64, bytes: &[u8]) -> bool {
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
        self.bytes.clear();
        self.failure
    }
}

/// A length as SQLite counts places.
fn place(len: usize) -> i64 {
    i64::try_from(len).expect("a piece is at most a megabyte")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
