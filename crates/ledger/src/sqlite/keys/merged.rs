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
//! changes nothing. At start everything after the watermark is read back from `key_log`, except what
//! is merged of the sealed generation, which goes on where it was. Every claimed key is in the filter
//! first, so that nearly all look-ups of fresh keys end there.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use admit_core::{Key, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::claims::{Claims, SortedClaims};
use super::filter::Filter;
use super::read_back::read_back;
use super::{ClaimError, Finder, insert_unique};
use crate::sqlite::queries;

/// The name of the watermark among the single values.
const WATERMARK: &str = "key_watermark";

/// The names under which a start finds how far the sealed generation is: where it ends, and up to
/// which key it is merged.
const SEALED_LAST: &str = "key_sealed_last";
const SEALED_TO: &str = "key_sealed_to";

/// Sealed claims merged at most for each fresh one, however late merging is.
const MERGE_PER_CLAIM_MAX: usize = 4;

/// Merged `key_log` rows forgotten per fresh claim: faster than they come.
const TRIM_PER_CLAIM: usize = 2;

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
    filter: Filter,
}

/// A generation on its way into the unique index.
#[derive(Debug)]
struct Sealed {
    claims: Order,
    /// How many are merged.
    next: usize,
    /// Keys that were forgotten since the generation was sealed and must not be merged.
    forgotten: HashSet<Key>,
    last: Seq,
}

#[derive(Debug)]
enum Order {
    Sorting { claims: Arc<Claims>, sorted: Receiver<SortedClaims> },
    Sorted(SortedClaims),
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
    pub(super) fn load(
        conn: &Connection,
        path: &Path,
        mut filter: Filter,
        generation_max: usize,
    ) -> rusqlite::Result<Self> {
        let value = |name: &str| {
            let mut get = conn.prepare_cached(queries::META_GET)?;
            let found = get.query_row([name], |row| row.get::<_, u64>(0)).optional()?;
            Ok::<u64, rusqlite::Error>(found.unwrap_or(0))
        };
        let (watermark, last) = (value(WATERMARK)?, Seq(value(SEALED_LAST)?));
        let merged_to = value(SEALED_TO)?;
        let newest: Option<u64> = conn.query_row(queries::KEY_LOG_LAST, [], |row| row.get(0))?;
        let newest = Seq(newest.unwrap_or(0));
        // There may be far fewer claims than places, where most events were copies.
        let room = |to: u64, from: u64| {
            usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).min(generation_max)
        };
        let mut sealed = Claims::with_room(room(last.0, watermark));
        let mut recent = Claims::with_room(room(newest.0, last.0.max(watermark)));
        read_back(path, Seq(watermark), newest, |key, seq| {
            if seq > last {
                filter.add(&key);
                recent.insert(key, seq);
            } else if lead(&key) >= merged_to {
                filter.add(&key);
                sealed.insert(key, seq);
            }
        })?;
        Ok(Self {
            generation_max: generation_max.max(1),
            recent,
            sealed: (sealed.len() > 0).then(|| Sealed::new(sealed, last)),
            watermark: Seq(watermark),
            trimming: true,
            staged: Staged::default(),
            filter,
        })
    }

    /// Who claimed `key`, among claims that are not merged yet.
    pub(super) fn recent(&self, key: &Key) -> Option<Seq> {
        let sealed = || self.sealed.as_ref().and_then(|sealed| sealed.get(key));
        self.recent.get(key).or_else(sealed)
    }

    /// `true` when nobody has claimed `key` for certain.
    pub(super) fn excludes(&self, key: &Key) -> bool {
        self.filter.excludes(key)
    }

    /// Makes looking for many keys at once quicker.
    pub(super) fn warm<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        self.filter.warm(keys);
    }

    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        claims: Vec<(Key, Seq)>,
    ) -> Result<(), ClaimError> {
        let mut append = conn.prepare_cached(queries::KEY_LOG_APPEND)?;
        for (key, seq) in &claims {
            self.filter.add(key);
            append.execute((seq.0, key.as_bytes()))?;
        }
        let slice = self.due(claims.len()).max(SLICE_MIN);
        let trim = (claims.len() * TRIM_PER_CLAIM).max(SLICE_MIN);
        self.staged = Staged { claims, ..Staged::default() };
        self.staged.merged = self.merge_slice(conn, slice)?;
        if self.trimming {
            self.staged.trimmed_all = self.trim_slice(conn, trim)?;
        }
        Ok(())
    }

    /// How many sealed claims are merged along with so many fresh ones: what is left of them is spread
    /// evenly over the claims that are still to come before the next generation is nearly full.
    fn due(&self, fresh: usize) -> usize {
        let left = self.sealed.as_ref().map_or(0, Sealed::left);
        let nearly_full = self.generation_max - self.generation_max / 16;
        let to_come = nearly_full.saturating_sub(self.recent.len()).max(1);
        (left * fresh).div_ceil(to_come).min(fresh * MERGE_PER_CLAIM_MAX)
    }

    /// Forgets a slice of the rows that are merged; `true` when it was the last.
    fn trim_slice(&self, conn: &Connection, slice: usize) -> rusqlite::Result<bool> {
        let more = conn
            .prepare_cached(queries::KEY_LOG_TRIM_TO)?
            .query_row((self.watermark.0, slice), |row| row.get::<_, u64>(0))
            .optional()?;
        let end = more.unwrap_or(self.watermark.0 + 1);
        conn.prepare_cached(queries::KEY_LOG_TRIM)?.execute([end])?;
        Ok(more.is_none())
    }

    /// Merges the next slice of the sealed generation, and moves the watermark with the last one.
    /// Returns how many claims it took.
    fn merge_slice(&mut self, conn: &Connection, slice: usize) -> Result<usize, ClaimError> {
        // While the filter is being read the index may not be in the system's cache yet; reading it
        // there is quicker than merging into it here, unless the next generation is waiting.
        if !self.filter.is_complete() && self.recent.len() < self.generation_max {
            return Ok(0);
        }
        let Some(sealed) = &mut self.sealed else { return Ok(0) };
        sealed.take_in_order();
        let Sealed { claims: Order::Sorted(claims), next, forgotten, last } = sealed else {
            return Ok(0);
        };
        let (claims, next) = (claims.as_slice(), *next);
        let end = (next + slice).min(claims.len());
        let mut claim = conn.prepare_cached(queries::KEY_CLAIM)?;
        let mut find = Finder::new(conn)?;
        for (key, seq) in &claims[next..end] {
            if forgotten.is_empty() || !forgotten.contains(key) {
                insert_unique(&mut claim, &mut find, key, *seq)?;
            }
        }
        let mut put = conn.prepare_cached(queries::META_PUT)?;
        if end == claims.len() {
            put.execute((WATERMARK, last.0))?;
        } else {
            put.execute((SEALED_LAST, last.0))?;
            put.execute((SEALED_TO, lead(&claims[end].0)))?;
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
        self.filter.take_in_earlier();
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
            drop_aside(sealed);
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
        let claims = std::mem::take(&mut self.recent);
        let last = claims.last().max(self.watermark);
        self.sealed = Some(Sealed::new(claims, last));
    }
}

impl Sealed {
    /// The claims up to `last` that are not merged.
    fn new(claims: Claims, last: Seq) -> Self {
        let claims = Arc::new(claims);
        let sorted = sort_aside(claims.clone());
        let claims = Order::Sorting { claims, sorted };
        Self { claims, next: 0, forgotten: HashSet::new(), last }
    }

    fn get(&self, key: &Key) -> Option<Seq> {
        let found = match &self.claims {
            Order::Sorting { claims, .. } => claims.get(key),
            Order::Sorted(claims) => claims.get(key),
        };
        found.filter(|_| self.forgotten.is_empty() || !self.forgotten.contains(key))
    }

    /// Takes in the claims in the order of their keys, once the sorting is done.
    fn take_in_order(&mut self) {
        let Order::Sorting { claims, sorted } = &self.claims else { return };
        let sorted = match sorted.try_recv() {
            Ok(sorted) => sorted,
            Err(TryRecvError::Empty) => return,
            // There was no thread to be had. Late is better than never.
            Err(TryRecvError::Disconnected) => claims.sorted(),
        };
        drop_aside(std::mem::replace(&mut self.claims, Order::Sorted(sorted)));
    }

    /// How many are not merged.
    fn left(&self) -> usize {
        self.len() - self.next
    }

    fn len(&self) -> usize {
        match &self.claims {
            Order::Sorting { claims, .. } => claims.len(),
            Order::Sorted(claims) => claims.as_slice().len(),
        }
    }

    fn forget(&mut self, key: &Key, seq: Seq) {
        if self.get(key) == Some(seq) {
            self.forgotten.insert(*key);
        }
    }

    /// Counts merged claims in; `true` when they were the last ones.
    fn advance(&mut self, merged: usize) -> bool {
        self.next += merged;
        self.left() == 0
    }
}

/// The beginning of a key as a number that SQLite can hold, in the same order.
fn lead(key: &Key) -> u64 {
    let bytes = key.as_bytes().first_chunk().expect("a key has 32 bytes");
    u64::from_be_bytes(*bytes) >> 1
}

/// Sorts away from the writer's thread: a million claims take a tenth of a second.
fn sort_aside(claims: Arc<Claims>) -> Receiver<SortedClaims> {
    let (done, sorted) = sync_channel(1);
    let sort = move || {
        // The writer may be gone by now; then nobody needs the order.
        done.send(claims.sorted()).unwrap_or_default();
    };
    if let Err(error) = thread::Builder::new().name("ledger-sort".to_owned()).spawn(sort) {
        tracing::warn!(%error, "no thread to sort keys on, sorting them in line");
    }
    sorted
}

/// Gives memory back away from the writer's thread: a generation of it would hold up a commit.
fn drop_aside<T: Send + 'static>(memory: T) {
    let gone = thread::Builder::new().name("ledger-free".to_owned()).spawn(move || drop(memory));
    if let Err(error) = gone {
        tracing::debug!(%error, "no thread to free memory on, freed in line");
    }
}
