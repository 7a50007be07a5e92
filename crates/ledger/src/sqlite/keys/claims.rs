//! Claims in memory: a map in many small parts.
//!
//! One large map has to move everything when it grows, which would hold up the commits of that
//! moment, or take all of its memory before it is needed. Many small ones grow one at a time.

use std::collections::HashMap;

use admit_core::{Key, Seq};

/// Keys are hashes, so their first byte spreads them evenly.
const PARTS: usize = 256;

/// Which place claimed a key.
#[derive(Debug)]
pub(super) struct Claims {
    parts: Vec<HashMap<Key, Seq>>,
    len: usize,
}

impl Default for Claims {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| HashMap::new()).collect(), len: 0 }
    }
}

impl Claims {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &Key) -> Option<Seq> {
        self.parts[part_of(key)].get(key).copied()
    }

    pub(super) fn insert(&mut self, key: Key, seq: Seq) {
        if self.parts[part_of(&key)].insert(key, seq).is_none() {
            self.len += 1;
        }
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Seq> {
        let removed = self.parts[part_of(key)].remove(key);
        self.len -= usize::from(removed.is_some());
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Seq)> + '_ {
        self.parts.iter().flatten().map(|(key, seq)| (*key, *seq))
    }
}

fn part_of(key: &Key) -> usize {
    usize::from(key.as_bytes()[0]) % PARTS
}
