//! Merge cursor: merging cycles through the keys in order.
//!
//! When the cursor reaches a row of merged keys, it merges every unmerged claim for it, so the longer a
//! cycle takes, the more claims share the write of a row. A claim waits half a cycle on average, so one
//! cycle merges twice as many claims as the limit of unmerged ones.
//!
//! For each region of keys the ledger stores the seq up to which its claims are merged: the highest seq
//! when the cursor entered the region. Claims of the region after that seq are loaded at start, and claims
//! that no region needs any more are trimmed from `key_log`.

use std::collections::{HashSet, VecDeque};

use admit_core::{Key, Seq};
use rusqlite::Connection;

use super::claims::{KeyClaims, PARTS, part_of};
use super::{ClaimError, pages};
use crate::sqlite::queries;

/// Partitions per region. Fewer regions mean fewer rows to write, and somewhat more to load.
const REGION_PARTS: usize = 16;
const REGIONS: usize = PARTS / REGION_PARTS;

/// Position of the merge cursor.
#[derive(Debug)]
pub(super) struct MergeCursor {
    /// Seq up to which each region is merged.
    merged_to: Vec<Seq>,
    /// The next partition.
    next: usize,
    /// Highest seq when the cursor entered the region of that partition.
    region_start: Seq,
    /// Partitions that are taken and not completely merged.
    merging: VecDeque<MergingPart>,
}

/// A partition being merged.
#[derive(Debug)]
struct MergingPart {
    part: usize,
    /// Sorted by key.
    claims: Vec<(Key, Seq)>,
    /// How many are merged.
    next: usize,
    /// Keys forgotten since it was taken, which must not be merged.
    forgotten: HashSet<Key>,
    /// For the last partition of a region: seq up to which the region is merged then.
    region_to: Option<Seq>,
}

/// Progress of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MergeStep {
    /// Partitions merged completely,
    parts: usize,
    /// and claims of the next one.
    into: usize,
}

impl MergeCursor {
    /// Begins with the region that has waited longest.
    pub(super) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let mut merged_to = vec![Seq(0); REGIONS];
        let mut read = conn.prepare(queries::KEY_REGION_READ)?;
        let mut rows = read.query([])?;
        while let Some(row) = rows.next()? {
            if let Some(to) = merged_to.get_mut(row.get::<_, usize>(0)?) {
                *to = Seq(row.get(1)?);
            }
        }
        let longest = (0..REGIONS).min_by_key(|region| merged_to[*region]).unwrap_or(0);
        let next = longest * REGION_PARTS;
        Ok(Self { merged_to, next, region_start: Seq(0), merging: VecDeque::new() })
    }

    /// Every claim up to here is merged.
    pub(super) fn floor(&self) -> Seq {
        self.merged_to.iter().min().copied().unwrap_or(Seq(0))
    }

    /// The highest seq that any region is merged up to.
    pub(super) fn newest(&self) -> Seq {
        self.merged_to.iter().max().copied().unwrap_or(Seq(0))
    }

    /// `true` if this claim is certainly merged.
    pub(super) fn is_merged(&self, key: &Key, seq: Seq) -> bool {
        seq <= self.merged_to[part_of(key) / REGION_PARTS]
    }

    /// Returns the seq that claimed `key`, among the claims being merged.
    pub(super) fn get(&self, key: &Key) -> Option<Seq> {
        let part = part_of(key);
        self.merging
            .iter()
            .filter(|merging| merging.part == part)
            .find_map(|merging| merging.get(key))
    }

    /// Number of claims taken and not merged.
    pub(super) fn unmerged_left(&self) -> usize {
        self.merging.iter().map(|merging| merging.claims.len() - merging.next).sum()
    }

    /// Merges at least `wanted` unmerged claims, if there are that many. Takes effect with
    /// [`Self::committed`].
    pub(super) fn merge(
        &mut self,
        conn: &Connection,
        unmerged: &mut KeyClaims,
        wanted: usize,
    ) -> Result<MergeStep, ClaimError> {
        let (mut merged, mut parts) = (0, 0);
        let mut into = self.merging.front().map_or(0, |merging| merging.next);
        while merged < wanted && (parts < self.merging.len() || self.take(unmerged)) {
            let merging = &self.merging[parts];
            let rest = &merging.claims[into..];
            let is_gone = |key: &Key| merging.forgotten.contains(key);
            let count = pages::merge(conn, rest, wanted - merged, is_gone)?;
            merged += count;
            into += count;
            if count == rest.len() {
                if let Some(to) = merging.region_to {
                    let row = (merging.part / REGION_PARTS, to.0);
                    conn.prepare_cached(queries::KEY_REGION_PUT)?.execute(row)?;
                }
                parts += 1;
                into = 0;
            }
        }
        Ok(MergeStep { parts, into })
    }

    /// Takes the next non-empty partition, or the last of a region; returns `false` if nothing is unmerged.
    fn take(&mut self, unmerged: &mut KeyClaims) -> bool {
        while unmerged.len() > 0 {
            let part = self.next;
            self.next = (part + 1) % PARTS;
            if part.is_multiple_of(REGION_PARTS) {
                self.region_start = unmerged.last();
            }
            let claims = unmerged.take(part);
            let is_last = self.next.is_multiple_of(REGION_PARTS);
            let region_to = is_last.then_some(self.region_start);
            if is_last || !claims.is_empty() {
                let forgotten = HashSet::new();
                self.merging.push_back(MergingPart { part, claims, next: 0, forgotten, region_to });
                return true;
            }
        }
        false
    }

    /// The transaction of this step is durable; returns `true` if a region is merged further than before.
    pub(super) fn committed(&mut self, step: MergeStep) -> bool {
        let mut is_further = false;
        for merging in self.merging.drain(..step.parts) {
            if let Some(to) = merging.region_to {
                self.merged_to[merging.part / REGION_PARTS] = to;
                is_further = true;
            }
        }
        if let Some(merging) = self.merging.front_mut() {
            merging.next = step.into;
        }
        is_further
    }

    /// Excludes a claim that is not merged yet.
    pub(super) fn forget(&mut self, key: &Key, seq: Seq) {
        for merging in self.merging.iter_mut().filter(|merging| merging.get(key) == Some(seq)) {
            merging.forgotten.insert(*key);
        }
    }
}

impl MergingPart {
    fn get(&self, key: &Key) -> Option<Seq> {
        let at = self.claims.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        (!self.forgotten.contains(key)).then_some(self.claims[at].1)
    }
}
