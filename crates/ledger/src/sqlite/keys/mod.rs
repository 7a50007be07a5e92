//! Which admission claimed a key: the promise "one key, one fresh admission" lives here.
//!
//! Two ways to keep the same promise. `plain` claims each key in a unique index at once: simple,
//! and the yardstick. `merged` notes claims in arrival order and merges them later, in the order of
//! their keys, into pages of many: what the gate uses, because random inserts into a large B-tree
//! dirty a page per event. A differential test holds the two to the same verdicts.

pub(super) mod check;
mod claims;
mod filter;
mod merged;
mod noted;
mod pages;
mod plain;
mod read_back;
mod round;
#[cfg(test)]
mod tests;
mod walk;

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::Connection;

pub(super) use claims::Seed;
use merged::Merged;
pub(super) use pages::take_over;
use plain::Plain;

/// Which index to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIndexKind {
    /// Every claim goes into the unique index at once.
    Plain,
    /// Claims are merged in the order of their keys, into pages of many.
    Merged {
        /// How many claims wait in memory before one is merged for each that comes. More means fewer
        /// page writes per claim, more memory (60 to 90 bytes each) and a longer start, which reads
        /// back twice as many and more.
        unmerged_max: usize,
    },
}

impl Default for KeyIndexKind {
    fn default() -> Self {
        Self::Merged { unmerged_max: 2_000_000 }
    }
}

/// A claim that contradicts an earlier one. It cannot happen; if it does, the gate must stop.
#[derive(Debug, thiserror::Error)]
#[error("key {key} was claimed by place {first} and again by place {second}", first = first.0, second = second.0)]
pub(super) struct ClaimedTwice {
    key: Key,
    first: Seq,
    second: Seq,
}

/// Why claims could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    ClaimedTwice(#[from] ClaimedTwice),
}

/// The key index of a writer. Lookups see committed claims only; the writer keeps its own batch's.
#[derive(Debug)]
pub(super) enum KeyIndex {
    Plain(Plain),
    Merged(Box<Merged>),
}

impl KeyIndex {
    /// Reads back what is not merged yet. `path` is the file of `conn`, for whatever is read later
    /// and aside.
    pub(super) fn load(
        conn: &Connection,
        path: &Path,
        kind: KeyIndexKind,
    ) -> Result<Self, ClaimError> {
        match kind {
            KeyIndexKind::Plain => Plain::load(conn).map(Self::Plain),
            KeyIndexKind::Merged { unmerged_max } => {
                pages::take_over(conn)?;
                let filter = walk::load(conn, path)?;
                Ok(Self::Merged(Box::new(Merged::load(conn, path, filter, unmerged_max)?)))
            }
        }
    }

    /// Makes looking for many keys at once quicker.
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        match self {
            Self::Plain(_) => {}
            Self::Merged(merged) => merged.warm(keys),
        }
    }

    /// Who claimed `key`, among committed claims.
    pub(super) fn find(&self, conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
        match self {
            Self::Plain(_) => plain::find(conn, key),
            Self::Merged(merged) if merged.excludes(key) => Ok(None),
            Self::Merged(merged) => match merged.recent(key) {
                Some(seq) => Ok(Some(seq)),
                None => pages::find(conn, key),
            },
        }
    }

    /// Writes a batch's claims inside its transaction. They count once [`Self::committed`] is
    /// called; [`Self::rolled_back`] forgets them.
    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        claims: Vec<(Key, Seq)>,
    ) -> Result<(), ClaimError> {
        match self {
            Self::Plain(plain) => plain.claim(conn, &claims),
            Self::Merged(merged) => merged.claim(conn, claims),
        }
    }

    /// Forgets the claim of `key` by `seq` inside the open transaction, after the batch's own claims
    /// were written. It counts once [`Self::committed`] is called; `false` when there is none.
    pub(super) fn forget(
        &mut self,
        conn: &Connection,
        key: &Key,
        seq: Seq,
    ) -> rusqlite::Result<bool> {
        match self {
            Self::Plain(plain) => plain.forget(conn, key, seq),
            Self::Merged(merged) => merged.forget(conn, key, seq),
        }
    }

    /// The transaction with the last claims is durable.
    pub(super) fn committed(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Merged(merged) => merged.committed(),
        }
    }

    /// The transaction with the last claims did not happen.
    pub(super) fn rolled_back(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Merged(merged) => merged.rolled_back(),
        }
    }
}

/// What SQLite would say of a page that it cannot read, of one that we cannot.
fn damaged(what: &str) -> rusqlite::Error {
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(corrupt, Some(format!("{what} is not whole")))
}

/// Who claimed `key`, in the file, where it is not only noted.
pub(super) fn find_merged(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    // A ledger that no gate of this version has opened yet has no pages.
    let in_pages = if pages::exist(conn)? { pages::find(conn, key)? } else { None };
    match in_pages {
        Some(seq) => Ok(Some(seq)),
        None => plain::find(conn, key),
    }
}

/// Who claimed `key`, wherever it is in the file. Reads all that are noted: for questions, never on the way
/// of an event.
pub(super) fn find_anywhere(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    match find_merged(conn, key)? {
        Some(seq) => Ok(Some(seq)),
        None => noted::find(conn, key),
    }
}
