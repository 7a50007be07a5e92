//! How far merging is: it goes round and round through the keys.
//!
//! Whoever comes to a row of merged keys brings along every claim that waits for it, so the longer a
//! round takes, the more claims share the writing of a row. A claim waits half a round on average, which
//! is why twice as many as may wait are merged in one.
//!
//! For each region of the keys the ledger keeps up to which place its claims are merged: the place that
//! was the newest when the round came to it. Claims of the region after that place are read back at a
//! start, and whatever no region needs any more is forgotten in `key_log`.

use std::collections::{HashSet, VecDeque};

use admit_core::{Key, Seq};
use rusqlite::Connection;

use super::claims::{Claims, PARTS, part_of};
use super::{ClaimError, pages};
use crate::sqlite::queries;

/// Parts of a region. Fewer regions mean fewer rows to write, and somewhat more to read back.
const REGION_PARTS: usize = 16;
const REGIONS: usize = PARTS / REGION_PARTS;

/// Where the round is.
#[derive(Debug)]
pub(super) struct Round {
    /// Up to which place each region is merged.
    merged_to: Vec<Seq>,
    /// The part it comes to next.
    next: usize,
    /// The newest place when it came to the region of that part.
    begun: Seq,
    /// Parts that it has come to and that are not merged to their end.
    taken: VecDeque<Taken>,
}

/// A part that is being merged.
#[derive(Debug)]
struct Taken {
    part: usize,
    /// In the order of their keys.
    claims: Vec<(Key, Seq)>,
    /// How many are merged.
    next: usize,
    /// Keys that were forgotten since it was taken and must not be merged.
    forgotten: HashSet<Key>,
    /// With the last part of a region: up to which place the region is merged then.
    region_to: Option<Seq>,
}

/// What a transaction has merged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    /// So many parts to their end,
    parts: usize,
    /// and so many claims of the next one.
    into: usize,
}

impl Round {
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
        Ok(Self { merged_to, next, begun: Seq(0), taken: VecDeque::new() })
    }

    /// Every claim up to here is merged.
    pub(super) fn floor(&self) -> Seq {
        self.merged_to.iter().min().copied().unwrap_or(Seq(0))
    }

    /// The newest place that any region is merged up to.
    pub(super) fn newest(&self) -> Seq {
        self.merged_to.iter().max().copied().unwrap_or(Seq(0))
    }

    /// `true` when this claim is merged for certain.
    pub(super) fn is_merged(&self, key: &Key, seq: Seq) -> bool {
        seq <= self.merged_to[part_of(key) / REGION_PARTS]
    }

    /// Who claimed `key`, among the claims that are being merged.
    pub(super) fn get(&self, key: &Key) -> Option<Seq> {
        let part = part_of(key);
        self.taken.iter().filter(|taken| taken.part == part).find_map(|taken| taken.get(key))
    }

    /// How many claims it has taken and not merged.
    pub(super) fn left(&self) -> usize {
        self.taken.iter().map(|taken| taken.claims.len() - taken.next).sum()
    }

    /// Merges at least so many of the claims that wait, as long as there are any. It counts once
    /// [`Self::committed`] is told of the step.
    pub(super) fn merge(
        &mut self,
        conn: &Connection,
        waiting: &mut Claims,
        wanted: usize,
    ) -> Result<Step, ClaimError> {
        let (mut merged, mut parts) = (0, 0);
        let mut into = self.taken.front().map_or(0, |taken| taken.next);
        while merged < wanted && (parts < self.taken.len() || self.take(waiting)) {
            let taken = &self.taken[parts];
            let rest = &taken.claims[into..];
            let is_gone = |key: &Key| taken.forgotten.contains(key);
            let count = pages::merge(conn, rest, wanted - merged, is_gone)?;
            merged += count;
            into += count;
            if count == rest.len() {
                if let Some(to) = taken.region_to {
                    let row = (taken.part / REGION_PARTS, to.0);
                    conn.prepare_cached(queries::KEY_REGION_PUT)?.execute(row)?;
                }
                parts += 1;
                into = 0;
            }
        }
        Ok(Step { parts, into })
    }

    /// Takes the next part that has anything to merge, or ends a region; `false` when nothing waits.
    fn take(&mut self, waiting: &mut Claims) -> bool {
        while waiting.len() > 0 {
            let part = self.next;
            self.next = (part + 1) % PARTS;
            if part.is_multiple_of(REGION_PARTS) {
                self.begun = waiting.last();
            }
            let claims = waiting.take(part);
            let is_last = self.next.is_multiple_of(REGION_PARTS);
            let region_to = is_last.then_some(self.begun);
            if is_last || !claims.is_empty() {
                let forgotten = HashSet::new();
                self.taken.push_back(Taken { part, claims, next: 0, forgotten, region_to });
                return true;
            }
        }
        false
    }

    /// The transaction with this step is durable; `true` when a region is merged further than before.
    pub(super) fn committed(&mut self, step: Step) -> bool {
        let mut is_further = false;
        for taken in self.taken.drain(..step.parts) {
            if let Some(to) = taken.region_to {
                self.merged_to[taken.part / REGION_PARTS] = to;
                is_further = true;
            }
        }
        if let Some(taken) = self.taken.front_mut() {
            taken.next = step.into;
        }
        is_further
    }

    /// Leaves a claim out that is not merged yet.
    pub(super) fn forget(&mut self, key: &Key, seq: Seq) {
        for taken in self.taken.iter_mut().filter(|taken| taken.get(key) == Some(seq)) {
            taken.forgotten.insert(*key);
        }
    }
}

impl Taken {
    fn get(&self, key: &Key) -> Option<Seq> {
        let at = self.claims.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        (!self.forgotten.contains(key)).then_some(self.claims[at].1)
    }
}
