//! Claims in memory: a map in many small parts while they come, a sorted list once they are sealed.
//!
//! One large map has to move everything when it grows, which would hold up the commits of that
//! moment, or take all of its memory before it is needed. Many small ones grow one at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use admit_core::{Key, Seq};

/// Keys are hashes, so their first byte spreads them evenly.
const PARTS: usize = 256;

/// How many first two bytes there are.
const LEADS: usize = 1 << 16;

/// Which place claimed a key.
#[derive(Debug)]
pub(super) struct Claims {
    parts: Vec<HashMap<Key, Seq, Seed>>,
    len: usize,
    last: Seq,
}

impl Default for Claims {
    fn default() -> Self {
        Self::with_room(0)
    }
}

impl Claims {
    /// Has the memory for so many at once, where their number is known.
    pub(super) fn with_room(len: usize) -> Self {
        let (seed, each) = (Seed::drawn(), len / PARTS);
        let part = |_| HashMap::with_capacity_and_hasher(each, seed);
        Self { parts: (0..PARTS).map(part).collect(), len: 0, last: Seq(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The newest place that was ever put in.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    pub(super) fn get(&self, key: &Key) -> Option<Seq> {
        self.parts[part_of(key)].get(key).copied()
    }

    pub(super) fn insert(&mut self, key: Key, seq: Seq) {
        self.last = self.last.max(seq);
        if self.parts[part_of(&key)].insert(key, seq).is_none() {
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Seq> {
        let removed = self.parts[part_of(key)].remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// The same claims in the order of their keys.
    pub(super) fn sorted(&self) -> SortedClaims {
        let mut claims = Vec::with_capacity(self.len);
        for part in &self.parts {
            let start = claims.len();
            claims.extend(part.iter().map(|(key, seq)| (*key, *seq)));
            claims[start..].sort_unstable();
        }
        SortedClaims::of(claims)
    }
}

/// Claims in the order of their keys.
#[derive(Debug)]
pub(super) struct SortedClaims {
    claims: Vec<(Key, Seq)>,
    /// Where the keys with the same first two bytes begin, and where the last of them end.
    starts: Vec<usize>,
}

impl SortedClaims {
    fn of(claims: Vec<(Key, Seq)>) -> Self {
        let mut starts = Vec::with_capacity(LEADS + 1);
        for (at, (key, _)) in claims.iter().enumerate() {
            starts.resize(starts.len().max(lead_of(key) + 1), at);
        }
        starts.resize(LEADS + 1, claims.len());
        Self { claims, starts }
    }

    pub(super) fn as_slice(&self) -> &[(Key, Seq)] {
        &self.claims
    }

    pub(super) fn get(&self, key: &Key) -> Option<Seq> {
        let lead = lead_of(key);
        let near = &self.claims[self.starts[lead]..self.starts[lead + 1]];
        let at = near.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
        Some(near[at].1)
    }
}

fn lead_of(key: &Key) -> usize {
    let bytes = key.as_bytes();
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn part_of(key: &Key) -> usize {
    usize::from(key.as_bytes()[0])
}

/// Hashes keys. They are hashes already and only need something mixed in that a producer who chooses
/// their keys cannot know.
#[derive(Clone, Copy, Debug)]
pub(in crate::sqlite) struct Seed(u64);

impl Seed {
    pub(in crate::sqlite) fn drawn() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }
}

impl BuildHasher for Seed {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed(self.0)
    }
}

/// An odd number with its bits well spread.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash in the making.
pub(in crate::sqlite) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = u128::from(self.0 ^ word) * u128::from(MULTIPLIER);
        let [low, high] = [mixed, mixed >> 64].map(|half| (half & u128::from(u64::MAX)) as u64);
        self.0 = low ^ high;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sorted_claims_find_what_the_map_finds(
            put in prop::collection::vec((any::<[u8; 2]>(), any::<u8>()), 0..200),
            others in prop::collection::vec((any::<[u8; 2]>(), any::<u8>()), 0..50),
        ) {
            let key = |([a, b], c): ([u8; 2], u8)| {
                let mut bytes = [0; 32];
                (bytes[0], bytes[1], bytes[31]) = (a, b, c);
                Key::from_bytes(bytes)
            };
            let mut claims = Claims::default();
            for (seq, parts) in (1..).zip(&put) {
                claims.insert(key(*parts), Seq(seq));
            }
            let sorted = claims.sorted();
            prop_assert!(sorted.as_slice().is_sorted());
            prop_assert_eq!(sorted.as_slice().len(), claims.len());
            prop_assert_eq!(claims.last(), Seq(put.len() as u64));
            for key in put.into_iter().chain(others).map(key) {
                prop_assert_eq!(sorted.get(&key), claims.get(&key));
            }
        }
    }
}
