//! Key index: holds the invariant "one key, one fresh admission".
//!
//! Two implementations. `plain` inserts each key into a unique index at once: simple, and the
//! reference. `merged` logs claims in arrival order and merges them later, in key order, into pages:
//! used by the gate, because random inserts into a large B-tree dirty a page per event. A differential
//! test checks that both give the same verdicts.

pub(super) mod check;
mod claims;
mod filter;
mod filter_loader;
mod key_log;
mod merge_cursor;
mod merged;
mod pages;
mod plain;
mod recovery;
#[cfg(test)]
mod tests;

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::Connection;

pub(super) use claims::Seed;
use merged::MergedIndex;
pub(super) use pages::migrate_plain_index;
use plain::PlainIndex;

/// Kind of key index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIndexKind {
    /// Every claim goes into the unique index at once.
    Plain,
    /// Claims are merged in key order, into pages.
    Merged {
        /// Number of claims in memory above which one is merged for each new one. More means fewer page
        /// writes per claim, more memory (60 to 90 bytes each) and a longer start, which loads twice as
        /// many and more.
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

/// Key index of the writer. Look-ups see committed claims only; the writer tracks those of its batch.
#[derive(Debug)]
pub(super) enum KeyIndex {
    Plain(PlainIndex),
    Merged(Box<MergedIndex>),
}

impl KeyIndex {
    /// Loads the unmerged claims. `path` is the file of `conn`, for background reads.
    pub(super) fn load(
        conn: &Connection,
        path: &Path,
        kind: KeyIndexKind,
    ) -> Result<Self, ClaimError> {
        match kind {
            KeyIndexKind::Plain => PlainIndex::load(conn).map(Self::Plain),
            KeyIndexKind::Merged { unmerged_max } => {
                pages::migrate_plain_index(conn)?;
                let filter = filter_loader::load(conn, path)?;
                Ok(Self::Merged(Box::new(MergedIndex::load(conn, path, filter, unmerged_max)?)))
            }
        }
    }

    /// Prefetches the filter for many keys.
    pub(super) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        match self {
            Self::Plain(_) => {}
            Self::Merged(merged) => merged.prefetch(keys),
        }
    }

    /// Returns the seq that claimed `key`, among committed claims.
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

    /// Writes a batch's claims inside its transaction. They take effect with [`Self::committed`];
    /// [`Self::rolled_back`] discards them.
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

    /// Forgets the claim of `key` by `seq` inside the open transaction, after the batch's own claims were
    /// written. Takes effect with [`Self::committed`]; returns `false` if there is none.
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

    /// The transaction with the last claims was rolled back.
    pub(super) fn rolled_back(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Merged(merged) => merged.rolled_back(),
        }
    }
}

/// The error for a damaged row, the same as SQLite's for a damaged page.
fn damaged(what: &str) -> rusqlite::Error {
    let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(corrupt, Some(format!("{what} is malformed")))
}

/// Returns the seq that claimed `key`, among merged claims in the file.
pub(super) fn find_merged(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    // A ledger that no gate of this version has opened yet has no pages.
    let in_pages = if pages::exist(conn)? { pages::find(conn, key)? } else { None };
    match in_pages {
        Some(seq) => Ok(Some(seq)),
        None => plain::find(conn, key),
    }
}

/// Returns the seq that claimed `key`, in the file. Scans all logged claims: for queries, not for the hot
/// path.
pub(super) fn find_anywhere(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    match find_merged(conn, key)? {
        Some(seq) => Ok(Some(seq)),
        None => key_log::find(conn, key),
    }
}
