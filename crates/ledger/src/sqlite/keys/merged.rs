//! The merged index: claims in arrival order first, in the order of their keys later.
//!
//! ```text
//! claim --commit--> waiting (memory) + key_log (disk)
//! too many wait --> the next ones in the round are merged into key_page,
//!                   inside the commit of whatever batch comes by (see `round`)
//! region done ----> what no region needs any more is forgotten in key_log
//! ```
//!
//! Invariants: a key is found among those that wait, among those that are being merged or in `key_page`
//! from the moment its commit is durable and for ever after. Merging a claim twice (a crash in the
//! middle of a region) changes nothing. At start every claim that is not merged for certain is read back
//! from `key_log`. Every claimed key is in the filter first, so that nearly all look-ups of fresh keys end
//! there.

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::Connection;

use super::claims::Claims;
use super::filter::Filter;
use super::read_back::read_back;
use super::round::{Round, Step};
use super::{ClaimError, noted, pages};
use crate::sqlite::queries;

/// Claims merged for each fresh one, however late merging is, and along with few; or what goes into the same
/// page beyond that.
const MERGE_PER_CLAIM: usize = 4;
const MERGE_MIN: usize = 16;

/// Merged claims of `key_log` forgotten for each fresh one, which is faster than they come, and along with
/// few; or what is left of their run beyond that.
const TRIM_PER_CLAIM: usize = 2;
const TRIM_MIN: usize = 16;

/// Claims that are known but not merged.
#[derive(Debug)]
pub(in crate::sqlite) struct Merged {
    unmerged_max: usize,
    waiting: Claims,
    round: Round,
    /// Rows of `key_log` up to here are merged and can be forgotten.
    floor: Seq,
    /// `true` while such rows are left.
    trimming: bool,
    staged: Staged,
    filter: Filter,
}

/// What the open transaction would change here, applied when it is durable.
#[derive(Debug, Default)]
struct Staged {
    claims: Vec<(Key, Seq)>,
    step: Option<Step>,
    trimmed_all: bool,
    forgotten: Vec<(Key, Seq)>,
}

impl Merged {
    pub(super) fn load(
        conn: &Connection,
        path: &Path,
        mut filter: Filter,
        unmerged_max: usize,
    ) -> rusqlite::Result<Self> {
        let round = Round::load(conn)?;
        let floor = round.floor();
        let newest: Option<u64> = conn.query_row(queries::KEY_LOG_LAST, [], |row| row.get(0))?;
        let mut waiting = Claims::default();
        waiting.reach(round.newest());
        read_back(path, floor, Seq(newest.unwrap_or(0)), |key, seq| {
            if !round.is_merged(&key, seq) {
                filter.add(&key);
                waiting.insert(key, seq);
            }
        })?;
        let staged = Staged::default();
        Ok(Self { unmerged_max, waiting, round, floor, trimming: true, staged, filter })
    }

    /// Who claimed `key`, among claims that are not merged yet.
    pub(super) fn recent(&self, key: &Key) -> Option<Seq> {
        self.waiting.get(key).or_else(|| self.round.get(key))
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
        claims.iter().for_each(|(key, _)| self.filter.add(key));
        noted::append(conn, &claims)?;
        let trim = (claims.len() * TRIM_PER_CLAIM).max(TRIM_MIN);
        let due = self.due(claims.len());
        self.staged = Staged { claims, ..Staged::default() };
        if due > 0 {
            self.staged.step = Some(self.round.merge(conn, &mut self.waiting, due)?);
        }
        if self.trimming {
            self.staged.trimmed_all = noted::trim(conn, self.floor, trim)?;
        }
        Ok(())
    }

    /// How many claims are merged along with so many fresh ones: as many as are too many.
    fn due(&self, fresh: usize) -> usize {
        let waiting = self.waiting.len() + self.round.left() + fresh;
        // While the filter is being read the pages may not be in the system's cache yet; reading them
        // there is quicker than merging into them here, unless too many wait.
        let is_put_off = !self.filter.is_complete() && waiting < self.unmerged_max / 2 * 3;
        let due = if is_put_off { 0 } else { waiting.saturating_sub(self.unmerged_max) };
        due.min((fresh * MERGE_PER_CLAIM).max(MERGE_MIN))
    }

    /// Forgets a key inside the open transaction, wherever it is by now; `false` when it is gone.
    pub(super) fn forget(
        &mut self,
        conn: &Connection,
        key: &Key,
        seq: Seq,
    ) -> rusqlite::Result<bool> {
        noted::forget(conn, seq)?;
        let in_memory = self.recent(key) == Some(seq);
        if in_memory {
            self.staged.forgotten.push((*key, seq));
        }
        // What is in memory may be merged already: in this transaction, or before a crash.
        let is_merged = pages::forget(conn, key, seq)?;
        Ok(in_memory || is_merged)
    }

    pub(super) fn committed(&mut self) {
        self.filter.take_in_earlier();
        let staged = std::mem::take(&mut self.staged);
        for (key, seq) in &staged.forgotten {
            if self.waiting.get(key) == Some(*seq) {
                self.waiting.remove(key);
            } else {
                self.round.forget(key, *seq);
            }
        }
        for (key, seq) in staged.claims {
            self.waiting.insert(key, seq);
        }
        if staged.trimmed_all {
            self.trimming = false;
        }
        if staged.step.is_some_and(|step| self.round.committed(step)) {
            self.floor = self.round.floor();
            self.trimming = true;
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.staged = Staged::default();
    }
}
