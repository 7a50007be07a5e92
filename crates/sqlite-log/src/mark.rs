//! `ledger.mark`: which generation of the log holds acknowledged commits, and how far they go.
//!
//! SQLite drops a log that is missing, empty or of other salts without an error. The mark makes that loss
//! visible (docs/decisions/0040). It lies beside the database and has a fixed size, so that writing to it
//! never needs new space:
//!
//! - two slots for the *generation*, written in turn and synced before the first commit of a generation is
//!   acknowledged, so that a torn write leaves the slot before it;
//! - one slot for the *position* of the newest acknowledged commit, written after each commit without a sync.
//!   It survives the death of the process; after a power cut it may be older than the log, never newer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The name of the file, beside the database.
pub const NAME: &str = "ledger.mark";

/// The size of the file, for ever.
const FILE_BYTES: usize = 4096;

/// A slot is a sector of its own: a disk writes all of it or nothing.
const SLOT_BYTES: u64 = 512;

/// The slot of the position, behind the two of the generation.
const POSITION_SLOT: u64 = 2;

const MAGIC: &[u8; 8] = b"ADMTMARK";

/// Salts of generations that may be on the disk while the newest has no acknowledged commit.
const SALTS_MAX: usize = 4;

/// Longest body of a slot.
const BODY_BYTES_MAX: usize = 48;

/// The two salts in the header of a log and in each of its frames.
pub type Salts = [u8; 8];

/// The boot of the machine that wrote a position; unequal to itself where it is not known.
type Boot = [u8; 16];

/// A position that is final, whichever boot reads it: no commit came after it.
const FINAL: Boot = [0xff; 16];

/// How far the commits of a ledger go: the newest place, and commits that gave out none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The newest place.
    pub last_seq: u64,
    /// Commits with work other than recording.
    pub tasks: u64,
}

/// What the mark of a killed process says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Generations of the log that may be on the disk.
    pub salts: Vec<Salts>,
    /// At least so much was acknowledged.
    pub reach: Reach,
    /// Whether nothing beyond `reach` was acknowledged: it was written under this boot of the machine, or
    /// when the process ended.
    pub is_exact: bool,
}

/// What a look at the file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none: the ledger is new, or of an earlier version.
    Missing,
    /// Everything acknowledged is in the database file, which goes so far at least.
    Clear(Reach),
    /// Acknowledged commits may be in the log alone.
    InUse(InUse),
    /// None of its slots can be read.
    Unreadable,
}

/// Why a generation could not be marked.
#[derive(Debug)]
pub(crate) enum NotMarked {
    Written(io::Error),
    Synced,
}

/// The mark of a ledger that is being written to. The writer and its connection share it.
#[derive(Debug)]
pub struct Mark {
    file: File,
    path: PathBuf,
    boot: Boot,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the writes of generation slots; its last bit says which slot.
    turn: u64,
    /// Newest first; empty when the mark is clear.
    salts: Vec<Salts>,
    /// Whether a commit of the newest generation was acknowledged.
    is_confirmed: bool,
    reach: Reach,
}

/// Reads the mark beside a database.
///
/// # Errors
/// As the system says.
pub fn read(path: &Path) -> io::Result<Found> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    let newest = (0..POSITION_SLOT).filter_map(|at| slot(&bytes, at)).max_by_key(|slot| slot.turn);
    let Some(newest) = newest else { return Ok(Found::Unreadable) };
    let salts: Vec<Salts> = newest.body[1..]
        .as_chunks::<8>()
        .0
        .iter()
        .take(usize::from(newest.body[0]).min(SALTS_MAX))
        .copied()
        .collect();
    let position = slot(&bytes, POSITION_SLOT).map(|slot| slot.body);
    let number = |at| position.as_ref().map_or(0, |body| u64_at(body, at));
    let reach = Reach { last_seq: number(0), tasks: number(8) };
    if salts.is_empty() {
        return Ok(Found::Clear(reach));
    }
    let wrote = position.and_then(|body| body[16..32].first_chunk::<16>().copied());
    let is_exact = wrote.is_some_and(|wrote| wrote == FINAL || Some(wrote) == boot());
    Ok(Found::InUse(InUse { salts, reach, is_exact }))
}

impl Mark {
    /// Opens the mark at `path`, clear and durable; makes it if there is none. Everything up to `reach` is
    /// in the database file.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(path: &Path, reach: Reach) -> io::Result<Self> {
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
        let state = Mutex::new(State { turn, ..State::default() });
        let boot = boot().unwrap_or_default();
        let mark = Self { file, path: path.to_owned(), boot, state };
        mark.clear(reach)?;
        Ok(mark)
    }

    /// Clears the mark at `path`, if there is one. Everything acknowledged is in the database file.
    ///
    /// # Errors
    /// As the system says.
    pub fn clear_at(path: &Path) -> io::Result<()> {
        match read(path)? {
            Found::Missing | Found::Clear(_) => Ok(()),
            Found::InUse(in_use) => Self::open(path, in_use.reach).map(drop),
            Found::Unreadable => Self::open(path, Reach::default()).map(drop),
        }
    }

    /// Notes, durably, that everything up to `reach` is in the database file. Comes before the log is emptied.
    ///
    /// # Errors
    /// As the system says.
    pub fn clear(&self, reach: Reach) -> io::Result<()> {
        let mut state = self.state();
        self.write_position(reach, self.boot)?;
        self.write_salts(&mut state, Vec::new())?;
        (state.reach, state.is_confirmed) = (reach, false);
        self.file.sync_data()
    }

    /// Notes that the commits up to `reach` may be acknowledged. Not synced.
    ///
    /// # Errors
    /// As the system says.
    pub fn committed(&self, reach: Reach) -> io::Result<()> {
        let mut state = self.state();
        (state.reach, state.is_confirmed) = (reach, true);
        self.write_position(reach, self.boot)
    }

    /// Writes the position once more and syncs it: whether the disk takes writes at all.
    ///
    /// # Errors
    /// As the system says.
    pub fn probe(&self) -> io::Result<()> {
        self.write_position(self.state().reach, self.boot)?;
        self.file.sync_data()
    }

    /// Notes, durably, that no commit comes any more, though some may be in the log alone.
    ///
    /// # Errors
    /// As the system says.
    pub fn end(&self) -> io::Result<()> {
        self.write_position(self.state().reach, FINAL)?;
        self.file.sync_data()
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the generation that is about to be written to, unless it is marked. Durable when it returns.
    pub(crate) fn begin(&self, salts: Salts) -> Result<(), NotMarked> {
        let mut state = self.state();
        if state.salts.first() == Some(&salts) {
            return Ok(());
        }
        // Until a commit of the newest is acknowledged, the log on the disk may be any of those before it.
        let before = if state.is_confirmed { 1 } else { SALTS_MAX - 1 };
        let before = state.salts.iter().take(before).copied();
        let all = std::iter::once(salts).chain(before).collect();
        self.write_salts(&mut state, all).map_err(NotMarked::Written)?;
        state.is_confirmed = false;
        self.file.sync_data().map_err(|_| {
            // Not to be taken for marked by the next commit.
            state.salts.clear();
            NotMarked::Synced
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_salts(&self, state: &mut State, salts: Vec<Salts>) -> io::Result<()> {
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

    fn write_position(&self, reach: Reach, boot: Boot) -> io::Result<()> {
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

/// A slot that could be read.
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

/// FNV-1a: tells a slot that was written from one that was torn.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Makes a clear mark, which is there whole or not at all.
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

/// The boot of this machine, where the system tells.
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

    fn reach(last_seq: u64) -> Reach {
        Reach { last_seq, tasks: 7 }
    }

    fn made() -> (tempfile::TempDir, PathBuf, Mark) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        assert_eq!(read(&path).unwrap(), Found::Missing);
        let mark = Mark::open(&path, reach(5)).unwrap();
        assert_eq!(read(&path).unwrap(), Found::Clear(reach(5)));
        (folder, path, mark)
    }

    fn in_use(path: &Path) -> InUse {
        match read(path).unwrap() {
            Found::InUse(found) => found,
            found @ (Found::Missing | Found::Clear(_) | Found::Unreadable) => panic!("{found:?}"),
        }
    }

    #[test]
    fn a_generation_is_in_use_from_its_mark_until_it_is_cleared() {
        let (_folder, path, mark) = made();
        mark.begin(A).unwrap();
        let expected = |salts: &[Salts], last_seq| InUse {
            salts: salts.to_vec(),
            reach: reach(last_seq),
            is_exact: cfg!(target_os = "linux"),
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
        assert_eq!(read(&path).unwrap(), Found::Clear(reach(9)));
        mark.begin(A).unwrap();
        assert_eq!(in_use(&path), expected(&[A], 9), "the same generation may be used again");
        drop(mark);
        Mark::clear_at(&path).unwrap();
        assert_eq!(read(&path).unwrap(), Found::Clear(reach(9)), "how far it went is kept");
    }

    #[test]
    fn a_write_that_is_torn_leaves_what_was_there_before() {
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
        let expected = InUse { salts: vec![B, A], reach: Reach::default(), is_exact: false };
        assert_eq!(in_use(&path), expected, "a position that is torn says nothing");
    }

    #[test]
    fn a_position_of_another_boot_is_a_lower_bound_unless_it_is_final() {
        let (_folder, path, mut mark) = made();
        mark.boot = [3; 16];
        mark.begin(A).unwrap();
        mark.committed(reach(6)).unwrap();
        assert!(!in_use(&path).is_exact);
        mark.end().unwrap();
        assert_eq!((in_use(&path).is_exact, in_use(&path).reach), (true, reach(6)));
    }

    #[test]
    fn what_is_no_mark_is_unreadable() {
        let (_folder, path, _mark) = made();
        for bytes in [&b""[..], &[0; FILE_BYTES], b"ledger"] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap(), Found::Unreadable);
        }
    }
}
