//! The merged index: claims in arrival order first, sorted slices into the unique index later.
//!
//! ```text
//! claim --commit--> recent (memory) + key_log (disk)
//! recent full ----> sealed: sorted on a thread of its own, then merged slice by slice,
//!                   each slice inside the commit of whatever batch comes by
//! last slice -----> the watermark moves past the generation in that same commit,
//!                   its key_log rows are forgotten in slices after that
//! ```
//!
//! Invariants: a key is found in `recent`, in `sealed` or in `key_index` from the moment its commit
//! is durable and for ever after. Merging a slice twice (a crash before the watermark moved)
//! changes nothing. At start everything after the watermark is read back from `key_log`.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use admit_core::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::claims::Claims;
use super::{ClaimError, Finder, insert_unique};
use crate::sqlite::queries;

/// The name of the watermark among the single values.
const WATERMARK: &str = "key_watermark";

/// Sealed claims merged for every four fresh ones: a little faster than they come, so that merging
/// is spread evenly and still ends before the next generation is full.
const MERGE_PER_FOUR: usize = 5;

/// Merged `key_log` rows forgotten per fresh claim.
const TRIM_PER_CLAIM: usize = 4;

/// The smallest slice, so that a trickle of events makes progress too.
const SLICE_MIN: usize = 16;

/// Claims that are known but not merged.
#[derive(Debug)]
pub(in crate::sqlite) struct Merged {
    generation_max: usize,
    recent: Claims,
    sealed: Option<Sealed>,
    /// Rows of `key_log` up to here are merged and can be forgotten.
    watermark: Seq,
    /// `true` while such rows are left.
    trimming: bool,
    staged: Staged,
}

/// A generation on its way into the unique index.
#[derive(Debug)]
struct Sealed {
    keys: Claims,
    /// Keys that were forgotten since the generation was sealed and must not be merged.
    forgotten: HashSet<Key>,
    last: Seq,
    order: Order,
}

#[derive(Debug)]
enum Order {
    Sorting(Receiver<Vec<(Key, Seq)>>),
    Sorted { claims: Vec<(Key, Seq)>, next: usize },
}

/// A sealed generation whose sorting is done.
struct Sorted<'s> {
    claims: &'s [(Key, Seq)],
    next: usize,
    forgotten: &'s HashSet<Key>,
}

/// What the open transaction would change here, applied when it is durable.
#[derive(Debug, Default)]
struct Staged {
    claims: Vec<(Key, Seq)>,
    merged: usize,
    trimmed_all: bool,
    forgotten: Vec<(Key, Seq)>,
}

impl Merged {
    pub(super) fn load(conn: &Connection, generation_max: usize) -> rusqlite::Result<Self> {
        let watermark = conn
            .prepare_cached(queries::META_GET)?
            .query_row([WATERMARK], |row| row.get::<_, u64>(0))
            .optional()?
            .unwrap_or(0);
        let mut recent = Claims::default();
        let mut rows = conn.prepare_cached(queries::KEY_LOG_READ)?;
        let mut rows = rows.query([watermark])?;
        while let Some(row) = rows.next()? {
            recent.insert(Key::from_bytes(row.get(1)?), Seq(row.get(0)?));
        }
        Ok(Self {
            generation_max,
            recent,
            sealed: None,
            watermark: Seq(watermark),
            trimming: true,
            staged: Staged::default(),
        })
    }

    /// Who claimed `key`, among claims that are not merged yet.
    pub(super) fn recent(&self, key: &Key) -> Option<Seq> {
        let sealed = || self.sealed.as_ref().and_then(|sealed| sealed.keys.get(key));
        self.recent.get(key).or_else(sealed)
    }

    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        claims: Vec<(Key, Seq)>,
    ) -> Result<(), ClaimError> {
        let mut append = conn.prepare_cached(queries::KEY_LOG_APPEND)?;
        for (key, seq) in &claims {
            append.execute((seq.0, key.as_bytes()))?;
        }
        let slice = (claims.len() * MERGE_PER_FOUR / 4).max(SLICE_MIN);
        let trim = (claims.len() * TRIM_PER_CLAIM).max(SLICE_MIN);
        self.staged = Staged { claims, ..Staged::default() };
        self.staged.merged = self.merge_slice(conn, slice)?;
        if self.staged.merged == 0 && self.trimming {
            let forgotten =
                conn.prepare_cached(queries::KEY_LOG_TRIM)?.execute((self.watermark.0, trim))?;
            self.staged.trimmed_all = forgotten < trim;
        }
        Ok(())
    }

    /// Merges the next slice of the sealed generation, and moves the watermark with the last one.
    /// Returns how many claims it took.
    fn merge_slice(&mut self, conn: &Connection, slice: usize) -> Result<usize, ClaimError> {
        let Some(sealed) = &mut self.sealed else { return Ok(0) };
        let last = sealed.last;
        let Some(Sorted { claims, next, forgotten }) = sealed.sorted() else { return Ok(0) };
        let end = (next + slice).min(claims.len());
        let mut claim = conn.prepare_cached(queries::KEY_CLAIM)?;
        let mut find = Finder::new(conn)?;
        for (key, seq) in &claims[next..end] {
            if forgotten.is_empty() || !forgotten.contains(key) {
                insert_unique(&mut claim, &mut find, key, *seq)?;
            }
        }
        if end == claims.len() {
            conn.prepare_cached(queries::META_PUT)?.execute((WATERMARK, last.0))?;
        }
        Ok(end - next)
    }

    /// Forgets a key inside the open transaction, wherever it is by now; `false` when it is gone.
    pub(super) fn forget(
        &mut self,
        conn: &Connection,
        key: &Key,
        seq: Seq,
    ) -> rusqlite::Result<bool> {
        conn.prepare_cached(queries::KEY_LOG_FORGET)?.execute([seq.0])?;
        let in_memory = self.recent(key) == Some(seq);
        if in_memory {
            self.staged.forgotten.push((*key, seq));
        }
        // What is recent is not in the index; what is sealed may be.
        if self.recent.get(key) == Some(seq) {
            return Ok(true);
        }
        let row = (key.as_bytes(), seq.0);
        let in_index = conn.prepare_cached(queries::KEY_FORGET)?.execute(row)? == 1;
        Ok(in_memory || in_index)
    }

    pub(super) fn committed(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        for (key, seq) in &staged.forgotten {
            if self.recent.get(key) == Some(*seq) {
                self.recent.remove(key);
            } else if let Some(sealed) = &mut self.sealed {
                sealed.forget(key, *seq);
            }
        }
        for (key, seq) in staged.claims {
            self.recent.insert(key, seq);
        }
        if staged.trimmed_all {
            self.trimming = false;
        }
        let finished = self.sealed.as_mut().is_some_and(|sealed| sealed.advance(staged.merged));
        if finished && let Some(sealed) = self.sealed.take() {
            self.watermark = sealed.last;
            self.trimming = true;
        }
        if self.sealed.is_none() && self.recent.len() >= self.generation_max {
            self.seal();
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.staged = Staged::default();
    }

    /// Closes the generation.
    fn seal(&mut self) {
        let keys = std::mem::take(&mut self.recent);
        let claims: Vec<(Key, Seq)> = keys.iter().collect();
        let last = claims.iter().map(|(_, seq)| *seq).max().unwrap_or(self.watermark);
        let (order, forgotten) = (Order::Sorting(sort_aside(claims)), HashSet::new());
        self.sealed = Some(Sealed { keys, forgotten, last, order });
    }
}

impl Sealed {
    /// The claims in key order, how far they are merged and which to leave out, once the sorting is
    /// done.
    fn sorted(&mut self) -> Option<Sorted<'_>> {
        if let Order::Sorting(sorted) = &self.order {
            let claims = match sorted.try_recv() {
                Ok(claims) => claims,
                Err(TryRecvError::Empty) => return None,
                // There was no thread to be had. Late is better than never.
                Err(TryRecvError::Disconnected) => {
                    let mut claims: Vec<(Key, Seq)> = self.keys.iter().collect();
                    claims.sort_unstable();
                    claims
                }
            };
            self.order = Order::Sorted { claims, next: 0 };
        }
        match &self.order {
            Order::Sorting(_) => None,
            Order::Sorted { claims, next } => {
                Some(Sorted { claims, next: *next, forgotten: &self.forgotten })
            }
        }
    }

    fn forget(&mut self, key: &Key, seq: Seq) {
        if self.keys.get(key) == Some(seq) {
            self.keys.remove(key);
            self.forgotten.insert(*key);
        }
    }

    /// Counts merged claims in; `true` when they were the last ones.
    fn advance(&mut self, merged: usize) -> bool {
        match &mut self.order {
            Order::Sorting(_) => false,
            Order::Sorted { claims, next } => {
                *next += merged;
                *next == claims.len()
            }
        }
    }
}

/// Sorts away from the writer's thread: a million claims take a tenth of a second.
fn sort_aside(mut claims: Vec<(Key, Seq)>) -> Receiver<Vec<(Key, Seq)>> {
    let (done, sorted) = sync_channel(1);
    let sort = move || {
        claims.sort_unstable();
        // The writer may be gone by now; then nobody needs the order.
        done.send(claims).unwrap_or_default();
    };
    if let Err(error) = thread::Builder::new().name("ledger-sort".to_owned()).spawn(sort) {
        tracing::warn!(%error, "no thread to sort keys on, sorting them in line");
    }
    sorted
}
