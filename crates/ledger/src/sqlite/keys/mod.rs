//! Which admission claimed a key: the promise "one key, one fresh admission" lives here.
//!
//! Two ways to keep the same promise. `plain` claims each key in the unique index at once: simple,
//! and the yardstick. `merged` notes claims in arrival order and merges them into the same unique
//! index later in sorted slices: what the gate uses, because random inserts into a large B-tree
//! dirty a page per event. A differential test holds the two to the same verdicts.

mod claims;
mod filter;
mod merged;
mod plain;
mod read_back;
#[cfg(test)]
mod tests;
mod walk;

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::queries;
pub(super) use claims::Seed;
use merged::Merged;
use plain::Plain;

/// Which index to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIndexKind {
    /// Every claim goes into the unique index at once.
    Plain,
    /// Claims are merged into the unique index in sorted slices.
    Merged {
        /// How many claims are collected before they are merged. More means fewer page writes per
        /// claim, more memory (about 110 bytes each at the worst moment) and a longer start.
        generation_max: usize,
    },
}

impl Default for KeyIndexKind {
    fn default() -> Self {
        Self::Merged { generation_max: 1_800_000 }
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
            KeyIndexKind::Merged { generation_max } => {
                let filter = walk::load(conn, path)?;
                Ok(Self::Merged(Box::new(Merged::load(conn, path, filter, generation_max)?)))
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
    pub(super) fn find(&self, index: &mut Finder<'_>, key: &Key) -> rusqlite::Result<Option<Seq>> {
        match self {
            Self::Plain(_) => index.find(key),
            Self::Merged(merged) if merged.excludes(key) => Ok(None),
            Self::Merged(merged) => match merged.recent(key) {
                Some(seq) => Ok(Some(seq)),
                None => index.find(key),
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

/// The prepared look-up in the unique index.
pub(super) struct Finder<'c>(CachedStatement<'c>);

impl<'c> Finder<'c> {
    pub(super) fn new(conn: &'c Connection) -> rusqlite::Result<Self> {
        conn.prepare_cached(queries::KEY_FIND).map(Self)
    }

    fn find(&mut self, key: &Key) -> rusqlite::Result<Option<Seq>> {
        self.0.query_row([key.as_bytes()], |row| row.get::<_, u64>(0).map(Seq)).optional()
    }
}

/// Puts one claim into the unique index. The same claim again is fine, another one is not.
fn insert_unique(
    claim: &mut CachedStatement<'_>,
    find: &mut Finder<'_>,
    key: &Key,
    seq: Seq,
) -> Result<(), ClaimError> {
    if claim.execute((key.as_bytes(), seq.0))? == 1 {
        return Ok(());
    }
    match find.find(key)? {
        Some(first) if first != seq => Err(ClaimedTwice { key: *key, first, second: seq }.into()),
        _ => Ok(()),
    }
}
