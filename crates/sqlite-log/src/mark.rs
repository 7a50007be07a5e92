//! `ledger.mark`: WAL generations with acknowledged commits, and the position of the newest commit.
//!
//! SQLite silently ignores a WAL that is missing, empty or has other salts. The mark makes that
//! loss visible (docs/decisions/0040). It lies beside the database and has a fixed size, so that
//! writing it never needs new disk space:
//!
//! - two slots for the *generation*, written alternately and synced before the first commit of a generation is
//!   acknowledged, so that a torn write leaves the slot before it;
//! - one slot for the *copy*: set while a checkpoint copies pages into the database file, so that a file with a
//!   partial commit is not taken for complete;
//! - one slot for the *position* of the newest acknowledged commit, written after each commit without a sync.
//!   It survives the death of the process; after a power cut it may be older than the log, never newer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// File name, beside the database.
pub const NAME: &str = "ledger.mark";

/// File size, fixed.
const FILE_BYTES: usize = 4096;

/// A slot is one sector: a disk writes all of it or nothing.
const SLOT_BYTES: u64 = 512;

/// Slot of the position, behind the two slots of the generation.
const POSITION_SLOT: u64 = 2;

/// Slot of the copy, behind the position.
const COPY_SLOT: u64 = 3;

const MAGIC: &[u8; 8] = b"ADMTMARK";

/// Maximum number of generations that may be on disk while the newest has no acknowledged commit.
const SALTS_MAX: usize = 4;

/// Maximum length of a slot body.
const BODY_BYTES_MAX: usize = 48;

/// The two salts in the WAL header and in each frame.
pub type Salts = [u8; 8];

/// Boot id of the machine that wrote a position; never equal if unknown.
type Boot = [u8; 16];

/// Marks a position as final for every boot: no commit came after it.
const FINAL: Boot = [0xff; 16];

/// Position of the newest commit: highest seq, and number of commits without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitPosition {
    /// Highest seq.
    pub last_seq: u64,
    /// Number of commits with other operations than recording.
    pub tasks: u64,
}

/// Mark left by a process that did not shut down cleanly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalInUse {
    /// WAL generations that may be on disk.
    pub salts: Vec<Salts>,
    /// Lower bound of acknowledged commits.
    pub reach: CommitPosition,
    /// Whether `reach` is exact: it was written under this boot of the machine, or at clean
    /// shutdown.
    pub is_exact: bool,
    /// WAL generation that was being checkpointed into the database file, if any.
    pub copying: Option<Salts>,
}

/// Status of the mark file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkStatus {
    /// Missing: the ledger is new or from an earlier version.
    Missing,
    /// All acknowledged commits are in the database file, up to at least this position.
    Clear(CommitPosition),
    /// Acknowledged commits may be in the WAL only.
    InUse(WalInUse),
    /// No slot is readable.
    Unreadable,
}

/// Error while marking a generation.
#[derive(Debug)]
pub(crate) enum MarkError {
    Written(io::Error),
    Synced,
}

/// Mark of an open ledger, shared by the writer and its connection.
#[derive(Debug)]
pub struct Mark {
    file: File,
    path: PathBuf,
    boot: Boot,
    state: Mutex<MarkState>,
}

#[derive(Debug, Default)]
struct MarkState {
    /// Counter of generation slot writes; its last bit selects the slot.
    turn: u64,
    /// Newest first; empty if the mark is clear.
    salts: Vec<Salts>,
    /// Whether a commit of the newest generation was acknowledged.
    is_confirmed: bool,
    reach: CommitPosition,
    /// Checkpoints in progress.
    copies: u32,
    /// Whether a checkpoint failed and none has succeeded since.
    is_partly_copied: bool,
}

/// Reads the mark beside a database.
///
/// # Errors
/// Returns I/O errors.
pub fn read(path: &Path) -> io::Result<MarkStatus> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(MarkStatus::Missing),
        Err(error) => return Err(error),
    };
    let newest = (0..POSITION_SLOT).filter_map(|at| slot(&bytes, at)).max_by_key(|slot| slot.turn);
    let Some(newest) = newest else { return Ok(MarkStatus::Unreadable) };
    let salts: Vec<Salts> = newest.body[1..]
        .as_chunks::<8>()
        .0
        .iter()
        .take(usize::from(newest.body[0]).min(SALTS_MAX))
        .copied()
        .collect();
    let position = slot(&bytes, POSITION_SLOT).map(|slot| slot.body);
    let number = |at| position.as_ref().map_or(0, |body| u64_at(body, at));
    let reach = CommitPosition { last_seq: number(0), tasks: number(8) };
    if salts.is_empty() {
        return Ok(MarkStatus::Clear(reach));
    }
    let wrote = position.and_then(|body| body[16..32].first_chunk::<16>().copied());
    let is_exact = wrote.is_some_and(|wrote| wrote == FINAL || Some(wrote) == boot());
    let copying = slot(&bytes, COPY_SLOT)
        .filter(|slot| slot.body[0] == 1)
        .and_then(|slot| slot.body[1..9].first_chunk().copied());
    Ok(MarkStatus::InUse(WalInUse { salts, reach, is_exact, copying }))
}

impl Mark {
    /// Opens the mark at `path`, cleared and durable; creates it if missing. All commits up to
    /// `reach` are in the database file.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn open(path: &Path, reach: CommitPosition) -> io::Result<Self> {
        let turn = match fs::read(path) {
            Ok(bytes) if bytes.len() == FILE_BYTES => {
                let turns = (0..POSITION_SLOT).filter_map(|at| slot(&bytes, at));
                turns.map(|slot| slot.turn).max().unwrap_or(0)
            }
            Ok(_) => make(path).map(|()| 0)?,
            Err(error) if error.kind() == ErrorKind::NotFound => make(path).map(|()| 0)?,
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().write(true).open(path)?;
        let state = Mutex::new(MarkState { turn, ..MarkState::default() });
        let boot = boot().unwrap_or_default();
        let mark = Self { file, path: path.to_owned(), boot, state };
        mark.write_copy(None)?;
        mark.clear(reach)?;
        Ok(mark)
    }

    /// Durably records that the WAL of the ledger beside `path` is about to be checkpointed.
    /// Opening or clearing the mark removes the record.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn begin_copy_at(path: &Path) -> io::Result<()> {
        let MarkStatus::InUse(in_use) = read(path)? else { return Ok(()) };
        let file = OpenOptions::new().write(true).open(path)?;
        let salts = in_use.salts.first().copied().unwrap_or_default();
        file.write_all_at(&encoded(0, &copy_body(Some(salts))), COPY_SLOT * SLOT_BYTES)?;
        file.sync_data()
    }

    /// Records the start of a checkpoint. Not synced: a record from another boot of the machine is
    /// not trusted anyway.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn begin_copy(&self) -> io::Result<()> {
        let mut state = self.state();
        state.copies += 1;
        self.write_copy(Some(state.salts.first().copied().unwrap_or_default()))
    }

    /// Records the end of a checkpoint; `is_whole` if the database file contains complete commits
    /// only.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn end_copy(&self, is_whole: bool) -> io::Result<()> {
        let mut state = self.state();
        state.copies = state.copies.saturating_sub(1);
        state.is_partly_copied = !is_whole;
        if state.copies > 0 || state.is_partly_copied { Ok(()) } else { self.write_copy(None) }
    }

    /// Records that a checkpoint copied nothing, because another one was under way.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn skip_copy(&self) -> io::Result<()> {
        let mut state = self.state();
        state.copies = state.copies.saturating_sub(1);
        if state.copies > 0 || state.is_partly_copied { Ok(()) } else { self.write_copy(None) }
    }

    /// Clears the mark at `path`, if it exists. All acknowledged commits are in the database file.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn clear_at(path: &Path) -> io::Result<()> {
        match read(path)? {
            MarkStatus::Missing | MarkStatus::Clear(_) => Ok(()),
            MarkStatus::InUse(in_use) => Self::open(path, in_use.reach).map(drop),
            MarkStatus::Unreadable => Self::open(path, CommitPosition::default()).map(drop),
        }
    }

    /// Durably records that all commits up to `reach` are in the database file. Must precede
    /// emptying the WAL.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn clear(&self, reach: CommitPosition) -> io::Result<()> {
        let mut state = self.state();
        self.write_position(reach, self.boot)?;
        self.write_salts(&mut state, Vec::new())?;
        (state.reach, state.is_confirmed) = (reach, false);
        self.file.sync_data()
    }

    /// Records that commits up to `reach` may be acknowledged. Not synced.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn committed(&self, reach: CommitPosition) -> io::Result<()> {
        let mut state = self.state();
        (state.reach, state.is_confirmed) = (reach, true);
        self.write_position(reach, self.boot)
    }

    /// Rewrites and syncs the position to check that the disk accepts writes.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn probe(&self) -> io::Result<()> {
        self.write_position(self.state().reach, self.boot)?;
        self.file.sync_data()
    }

    /// Durably records a clean end: no more commits, though some may be in the WAL only.
    ///
    /// # Errors
    /// Returns I/O errors.
    pub fn finish(&self) -> io::Result<()> {
        self.write_position(self.state().reach, FINAL)?;
        self.file.sync_data()
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the generation about to be written, unless it is marked. Durable on return.
    pub(crate) fn begin(&self, salts: Salts) -> Result<(), MarkError> {
        let mut state = self.state();
        if state.salts.first() == Some(&salts) {
            return Ok(());
        }
        // Until a commit of the newest generation is acknowledged, the WAL on disk may be any of
        // the earlier ones.
        let before = if state.is_confirmed { 1 } else { SALTS_MAX - 1 };
        let before = state.salts.iter().take(before).copied();
        let all = std::iter::once(salts).chain(before).collect();
        self.write_salts(&mut state, all).map_err(MarkError::Written)?;
        state.is_confirmed = false;
        self.file.sync_data().map_err(|_| {
            // The next commit must not treat it as marked.
            state.salts.clear();
            MarkError::Synced
        })
    }

    fn state(&self) -> MutexGuard<'_, MarkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_salts(&self, state: &mut MarkState, salts: Vec<Salts>) -> io::Result<()> {
        let mut body = [0; BODY_BYTES_MAX];
        body[0] = u8::try_from(salts.len()).unwrap_or_default();
        for (place, salts) in body[1..].as_chunks_mut::<8>().0.iter_mut().zip(&salts) {
            *place = *salts;
        }
        let turn = state.turn + 1;
        self.write(turn % POSITION_SLOT, turn, &body)?;
        (state.turn, state.salts) = (turn, salts);
        Ok(())
    }

    fn write_copy(&self, copying: Option<Salts>) -> io::Result<()> {
        self.write(COPY_SLOT, 0, &copy_body(copying))
    }

    fn write_position(&self, reach: CommitPosition, boot: Boot) -> io::Result<()> {
        let mut body = [0; BODY_BYTES_MAX];
        body[..8].copy_from_slice(&reach.last_seq.to_be_bytes());
        body[8..16].copy_from_slice(&reach.tasks.to_be_bytes());
        body[16..32].copy_from_slice(&boot);
        self.write(POSITION_SLOT, 0, &body)
    }

    fn write(&self, slot: u64, turn: u64, body: &[u8; BODY_BYTES_MAX]) -> io::Result<()> {
        self.file.write_all_at(&encoded(turn, body), slot * SLOT_BYTES)
    }
}

fn copy_body(copying: Option<Salts>) -> [u8; BODY_BYTES_MAX] {
    let mut body = [0; BODY_BYTES_MAX];
    if let Some(salts) = copying {
        body[0] = 1;
        body[1..9].copy_from_slice(&salts);
    }
    body
}

/// Readable slot.
struct Slot {
    turn: u64,
    body: [u8; BODY_BYTES_MAX],
}

const SUM_AT: usize = 16 + BODY_BYTES_MAX;

fn encoded(turn: u64, body: &[u8; BODY_BYTES_MAX]) -> [u8; SUM_AT + 8] {
    let mut bytes = [0; SUM_AT + 8];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&turn.to_be_bytes());
    bytes[16..SUM_AT].copy_from_slice(body);
    let sum = sum(&bytes[..SUM_AT]);
    bytes[SUM_AT..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn slot(bytes: &[u8], at: u64) -> Option<Slot> {
    let start = usize::try_from(at * SLOT_BYTES).ok()?;
    let bytes: &[u8; SUM_AT + 8] = bytes.get(start..)?.first_chunk()?;
    let is_whole = bytes.starts_with(MAGIC) && sum(&bytes[..SUM_AT]) == u64_at(bytes, SUM_AT);
    let body = *bytes[16..].first_chunk()?;
    is_whole.then(|| Slot { turn: u64_at(bytes, 8), body })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |number| u64::from_be_bytes(*number))
}

/// FNV-1a checksum: detects torn slots.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Atomically creates a clear mark.
fn make(path: &Path) -> io::Result<()> {
    let aside = path.with_extension("mark.new");
    let mut bytes = vec![0; FILE_BYTES];
    let slot = encoded(0, &[0; BODY_BYTES_MAX]);
    bytes[..slot.len()].copy_from_slice(&slot);
    let mut file = File::create(&aside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Boot id of this machine, if available.
fn boot() -> Option<Boot> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let mut boot = Boot::default();
    let mut digits = text.bytes().filter_map(|byte| char::from(byte).to_digit(16));
    for byte in &mut boot {
        *byte = u8::try_from(digits.next()? << 4 | digits.next()?).ok()?;
    }
    Some(boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Salts = *b"aaaaaaaa";
    const B: Salts = *b"bbbbbbbb";
    const C: Salts = *b"cccccccc";

    fn reach(last_seq: u64) -> CommitPosition {
        CommitPosition { last_seq, tasks: 7 }
    }

    fn made() -> (tempfile::TempDir, PathBuf, Mark) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert_eq!(read(&path).unwrap(), MarkStatus::Missing);
        let mark = Mark::open(&path, reach(5)).unwrap();
        assert_eq!(read(&path).unwrap(), MarkStatus::Clear(reach(5)));
        (folder, path, mark)
    }

    fn in_use(path: &Path) -> WalInUse {
        match read(path).unwrap() {
            MarkStatus::InUse(found) => found,
            found @ (MarkStatus::Missing | MarkStatus::Clear(_) | MarkStatus::Unreadable) => {
                panic!("{found:?}")
            }
        }
    }

    #[test]
    fn a_generation_is_in_use_until_it_is_cleared() {
        let (_folder, path, mark) = made();
        mark.begin(A).unwrap();
        let expected = |salts: &[Salts], last_seq| WalInUse {
            salts: salts.to_vec(),
            reach: reach(last_seq),
            is_exact: cfg!(target_os = "linux"),
            copying: None,
        };
        assert_eq!(in_use(&path), expected(&[A], 5));
        mark.committed(reach(6)).unwrap();
        mark.begin(A).unwrap();
        assert_eq!(in_use(&path), expected(&[A], 6));
        mark.begin(B).unwrap();
        assert_eq!(in_use(&path), expected(&[B, A], 6), "no commit of the new one yet");
        mark.begin(C).unwrap();
        assert_eq!(in_use(&path), expected(&[C, B, A], 6), "nor of the one before");
        mark.committed(reach(9)).unwrap();
        mark.begin(A).unwrap();
        assert_eq!(in_use(&path), expected(&[A, C], 9));
        mark.clear(reach(9)).unwrap();
        assert_eq!(read(&path).unwrap(), MarkStatus::Clear(reach(9)));
        mark.begin(A).unwrap();
        assert_eq!(in_use(&path), expected(&[A], 9), "the same generation may be used again");
        drop(mark);
        Mark::clear_at(&path).unwrap();
        assert_eq!(read(&path).unwrap(), MarkStatus::Clear(reach(9)), "how far it went is kept");
    }

    #[test]
    fn a_checkpoint_is_recorded_until_all_have_succeeded() {
        let (_folder, path, mark) = made();
        mark.begin(A).unwrap();
        mark.begin_copy().unwrap();
        assert_eq!(in_use(&path).copying, Some(A));
        mark.begin_copy().unwrap();
        mark.end_copy(true).unwrap();
        assert_eq!(in_use(&path).copying, Some(A), "one is still under way");
        mark.end_copy(false).unwrap();
        assert_eq!(in_use(&path).copying, Some(A), "the file holds a part of a commit");
        mark.begin_copy().unwrap();
        mark.skip_copy().unwrap();
        assert_eq!(in_use(&path).copying, Some(A), "one that copied nothing changes nothing");
        mark.begin_copy().unwrap();
        mark.end_copy(true).unwrap();
        assert_eq!(in_use(&path).copying, None);
        Mark::begin_copy_at(&path).unwrap();
        assert_eq!(in_use(&path).copying, Some(A));
        let mark = Mark::open(&path, reach(5)).unwrap();
        mark.begin(B).unwrap();
        assert_eq!(in_use(&path).copying, None, "a mark that is opened begins anew");
    }

    #[test]
    fn a_torn_write_leaves_the_previous_slot() {
        let (_folder, path, mark) = made();
        mark.begin(A).unwrap();
        mark.committed(reach(6)).unwrap();
        let before = fs::read(&path).unwrap();
        mark.begin(B).unwrap();
        let after = fs::read(&path).unwrap();
        let changed: Vec<usize> = (0..after.len()).filter(|at| before[*at] != after[*at]).collect();
        for torn in 1..changed.len() {
            let mut bytes = before.clone();
            for at in &changed[..torn] {
                bytes[*at] = after[*at];
            }
            fs::write(&path, &bytes).unwrap();
            assert_eq!(in_use(&path).salts, [A], "{torn} bytes of it were written");
        }
        let mut bytes = after;
        bytes[usize::try_from(POSITION_SLOT * SLOT_BYTES).unwrap() + 20] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let expected = WalInUse {
            salts: vec![B, A],
            reach: CommitPosition::default(),
            is_exact: false,
            copying: None,
        };
        assert_eq!(in_use(&path), expected, "a torn position is ignored");
    }

    #[test]
    fn a_position_of_another_boot_is_a_lower_bound_unless_it_is_final() {
        let (_folder, path, mut mark) = made();
        mark.boot = [3; 16];
        mark.begin(A).unwrap();
        mark.committed(reach(6)).unwrap();
        assert!(!in_use(&path).is_exact);
        mark.finish().unwrap();
        assert_eq!((in_use(&path).is_exact, in_use(&path).reach), (true, reach(6)));
    }

    #[test]
    fn an_invalid_file_is_unreadable() {
        let (_folder, path, _mark) = made();
        for bytes in [&b""[..], &[0; FILE_BYTES], b"ledger"] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap(), MarkStatus::Unreadable);
        }
    }
}
