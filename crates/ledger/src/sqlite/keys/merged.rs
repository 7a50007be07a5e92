//! The merged index: claims are logged in arrival order first, and merged in key order later.
//!
//! ```text
//! claim --commit--> unmerged (memory) + key_log (disk)
//! too many unmerged -> the next ones in key order are merged into key_page,
//!                      in the commit of any batch (see `merge_cursor`)
//! region done -------> claims that no region needs any more are trimmed from key_log
//! ```
//!
//! Invariants: a key is found among the unmerged claims, among those being merged or in `key_page`
//! from the moment its commit is durable and for ever after. Merging a claim twice (a crash in the
//! middle of a region) changes nothing. At start every claim that is not certainly merged is loaded
//! from `key_log`. Every claimed key is in the filter first, so nearly all look-ups of fresh keys end
//! there.

use std::path::Path;

use admit_core::{Key, Seq};
use rusqlite::Connection;

use super::claims::KeyClaims;
use super::filter::KeyFilter;
use super::merge_cursor::{MergeCursor, MergeStep};
use super::recovery::read_unmerged;
use super::{ClaimError, key_log, pages};
use crate::sqlite::queries;

/// Claims merged per fresh one, however late merging is, and the minimum per batch; or all that go into the
/// same page beyond that.
const MERGE_PER_CLAIM: usize = 4;
const MERGE_MIN: usize = 16;

/// Merged claims of `key_log` trimmed per fresh one, which is faster than they arrive, and the minimum per
/// batch; or the rest of their row beyond that.
const TRIM_PER_CLAIM: usize = 2;
const TRIM_MIN: usize = 16;

/// Claims that are not merged yet.
#[derive(Debug)]
pub(in crate::sqlite) struct MergedIndex {
    unmerged_max: usize,
    unmerged: KeyClaims,
    cursor: MergeCursor,
    /// Rows of `key_log` up to here are merged and can be trimmed.
    floor: Seq,
    /// `true` while such rows are left.
    trimming: bool,
    pending: PendingChanges,
    filter: KeyFilter,
}

/// Changes by the open transaction, applied when it is durable.
#[derive(Debug, Default)]
struct PendingChanges {
    claims: Vec<(Key, Seq)>,
    step: Option<MergeStep>,
    trimmed_all: bool,
    forgotten: Vec<(Key, Seq)>,
}

impl MergedIndex {
    pub(super) fn load(
        conn: &Connection,
        path: &Path,
        mut filter: KeyFilter,
        unmerged_max: usize,
    ) -> rusqlite::Result<Self> {
        let cursor = MergeCursor::load(conn)?;
        let floor = cursor.floor();
        let newest: Option<u64> = conn.query_row(queries::KEY_LOG_LAST, [], |row| row.get(0))?;
        let mut unmerged = KeyClaims::default();
        unmerged.reach(cursor.newest());
        read_unmerged(path, floor, Seq(newest.unwrap_or(0)), |key, seq| {
            if !cursor.is_merged(&key, seq) {
                filter.add(&key);
                unmerged.insert(key, seq);
            }
        })?;
        let pending = PendingChanges::default();
        Ok(Self { unmerged_max, unmerged, cursor, floor, trimming: true, pending, filter })
    }

    /// Returns the seq that claimed `key`, among unmerged claims.
    pub(super) fn recent(&self, key: &Key) -> Option<Seq> {
        self.unmerged.get(key).or_else(|| self.cursor.get(key))
    }

    /// `true` if `key` is certainly not claimed.
    pub(super) fn excludes(&self, key: &Key) -> bool {
        self.filter.excludes(key)
    }

    /// Prefetches the filter for many keys.
    pub(super) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        self.filter.prefetch(keys);
    }

    pub(super) fn claim(
        &mut self,
        conn: &Connection,
        claims: Vec<(Key, Seq)>,
    ) -> Result<(), ClaimError> {
        claims.iter().for_each(|(key, _)| self.filter.add(key));
        key_log::append(conn, &claims)?;
        let trim = (claims.len() * TRIM_PER_CLAIM).max(TRIM_MIN);
        let merge_due = self.merge_due(claims.len());
        self.pending = PendingChanges { claims, ..PendingChanges::default() };
        if merge_due > 0 {
            self.pending.step = Some(self.cursor.merge(conn, &mut self.unmerged, merge_due)?);
        }
        if self.trimming {
            self.pending.trimmed_all = key_log::trim(conn, self.floor, trim)?;
        }
        Ok(())
    }

    /// Number of claims to merge along with `fresh` new ones: as many as exceed the limit.
    fn merge_due(&self, fresh: usize) -> usize {
        let unmerged = self.unmerged.len() + self.cursor.unmerged_left() + fresh;
        // While the filter is being loaded the pages may not be in the system's cache yet; reading them there is
        // faster than merging into them here, unless there are too many unmerged claims.
        let is_put_off = !self.filter.is_complete() && unmerged < self.unmerged_max / 2 * 3;
        let merge_due = if is_put_off { 0 } else { unmerged.saturating_sub(self.unmerged_max) };
        merge_due.min((fresh * MERGE_PER_CLAIM).max(MERGE_MIN))
    }

    /// Forgets a key inside the open transaction; returns `false` if it is gone.
    pub(super) fn forget(
        &mut self,
        conn: &Connection,
        key: &Key,
        seq: Seq,
    ) -> rusqlite::Result<bool> {
        key_log::forget(conn, seq)?;
        let in_memory = self.recent(key) == Some(seq);
        if in_memory {
            self.pending.forgotten.push((*key, seq));
        }
        // A claim in memory may be merged already: in this transaction, or before a crash.
        let is_merged = pages::forget(conn, key, seq)?;
        Ok(in_memory || is_merged)
    }

    pub(super) fn committed(&mut self) {
        self.filter.add_loaded();
        let pending = std::mem::take(&mut self.pending);
        for (key, seq) in &pending.forgotten {
            if self.unmerged.get(key) == Some(*seq) {
                self.unmerged.remove(key);
            } else {
                self.cursor.forget(key, *seq);
            }
        }
        for (key, seq) in pending.claims {
            self.unmerged.insert(key, seq);
        }
        if pending.trimmed_all {
            self.trimming = false;
        }
        if pending.step.is_some_and(|step| self.cursor.committed(step)) {
            self.floor = self.cursor.floor();
            self.trimming = true;
        }
    }

    pub(super) fn rolled_back(&mut self) {
        self.pending = PendingChanges::default();
    }
}
