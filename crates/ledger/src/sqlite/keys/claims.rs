//! Claims in memory, partitioned by key prefix.
//!
//! One large map moves everything when it grows, which would delay the commits of that moment, or needs
//! all of its memory up front. Many small ones grow one at a time, and each is small enough to be sorted
//! between two commits.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use admit_core::{Key, Seq};

/// Number of partitions. Keys are hashes, so their first twelve bits spread them evenly.
pub(super) const PARTS: usize = 1 << 12;

/// Map from key to the seq that claimed it.
#[derive(Debug)]
pub(super) struct KeyClaims {
    parts: Vec<HashMap<Key, Seq, Seed>>,
    len: usize,
    last: Seq,
}

impl Default for KeyClaims {
    fn default() -> Self {
        let seed = Seed::drawn();
        let parts = (0..PARTS).map(|_| HashMap::with_hasher(seed)).collect();
        Self { parts, len: 0, last: Seq(0) }
    }
}

impl KeyClaims {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The newest seq that ever claimed a key.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// Sets the newest seq to at least `place`.
    pub(super) fn reach(&mut self, place: Seq) {
        self.last = self.last.max(place);
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

    /// Removes a partition and returns its claims sorted by key.
    pub(super) fn take(&mut self, part: usize) -> Vec<(Key, Seq)> {
        let emptied = HashMap::with_hasher(*self.parts[part].hasher());
        let taken = std::mem::replace(&mut self.parts[part], emptied);
        self.len -= taken.len();
        let mut claims: Vec<_> = taken.into_iter().collect();
        claims.sort_unstable();
        claims
    }
}

/// Partition of a key. Partitions are in key order.
pub(super) fn part_of(key: &Key) -> usize {
    let bytes = key.as_bytes();
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]) >> 4)
}

/// Hash builder for keys. They are hashes already and only need a random value mixed in that a producer who
/// chooses keys cannot know.
#[derive(Clone, Copy, Debug)]
pub(in crate::sqlite) struct Seed(u64);

impl Seed {
    pub(in crate::sqlite) fn drawn() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }
}

impl BuildHasher for Seed {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0)
    }
}

/// An odd number with well-distributed bits.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hasher state.
pub(in crate::sqlite) struct KeyHasher(u64);

impl Hasher for KeyHasher {
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
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_behave_like_a_sorted_map(
            put in prop::collection::vec((any::<[u8; 2]>(), any::<u8>()), 0..200),
            others in prop::collection::vec((any::<[u8; 2]>(), any::<u8>()), 0..50),
        ) {
            let key = |([a, b], c): ([u8; 2], u8)| {
                let mut bytes = [0; 32];
                (bytes[0], bytes[1], bytes[31]) = (a, b, c);
                Key::from_bytes(bytes)
            };
            let (mut claims, mut plain) = (KeyClaims::default(), BTreeMap::new());
            for (seq, parts) in (1..).map(Seq).zip(&put) {
                claims.insert(key(*parts), seq);
                plain.insert(key(*parts), seq);
            }
            for key in others.into_iter().map(key) {
                prop_assert_eq!(claims.get(&key), plain.get(&key).copied());
                prop_assert_eq!(claims.remove(&key), plain.remove(&key));
            }
            prop_assert_eq!(claims.last(), Seq(put.len() as u64));
            prop_assert_eq!(claims.len(), plain.len());
            let taken: Vec<_> = (0..PARTS).flat_map(|part| claims.take(part)).collect();
            prop_assert_eq!(taken, plain.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(claims.len(), 0);
        }
    }
}
