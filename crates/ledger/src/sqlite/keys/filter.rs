//! Bloom filter of claimed keys, in memory.
//!
//! Most events are fresh and have an unknown key; finding that out in the index means reading a page of
//! a tree that is far larger than the cache. The filter excludes such keys instead. A false positive, for a
//! key that was never claimed or was forgotten since, costs one look-up.
//!
//! Invariant: once the filter is complete, it excludes no claimed key. Keys enter before the commit that
//! claims them, and are never removed. Those merged in earlier starts are read from the index on a thread
//! of its own (see `filter_loader`); until they are all loaded, nothing is excluded.

use std::hint::black_box;

use admit_core::Key;

use super::filter_loader::BackgroundLoad;

/// Bits per key; about one fresh key in three hundred is a false positive.
const BITS_PER_KEY: usize = 12;

/// A key sets one bit in each word of its block; a block is one cache line.
type Block = [u64; 8];

/// Size of a block in bits, and in bytes.
const BLOCK_BITS: usize = 512;
const BLOCK_BYTES: usize = BLOCK_BITS / 8;

/// Minimum keys of the first layer (1.5 MiB), and of every later one (24 MiB).
const LAYER_KEYS_MIN: usize = 1 << 20;
const LATER_LAYER_KEYS_MIN: usize = 16 << 20;

/// Maximum memory of all layers, enough for 178 million keys; beyond it keys share bits and false
/// positives increase.
const BYTES_MAX: usize = 256 * 1024 * 1024;

/// The filter in front of all claims.
#[derive(Debug)]
pub(super) struct KeyFilter {
    layers: Vec<Layer>,
    /// Background load of the keys of earlier starts, until it is complete.
    loading: Option<BackgroundLoad>,
    bytes_max: usize,
}

impl KeyFilter {
    /// A filter for an index whose keys are all in `layer`.
    pub(super) fn complete(layer: Layer) -> Self {
        Self { layers: vec![layer], loading: None, bytes_max: BYTES_MAX }
    }

    /// A filter for an index that is still being loaded.
    pub(super) fn incomplete(loading: BackgroundLoad) -> Self {
        Self { layers: Vec::new(), loading: Some(loading), bytes_max: BYTES_MAX }
    }

    /// `true` once the keys of earlier starts are loaded.
    pub(super) fn is_complete(&self) -> bool {
        self.loading.is_none()
    }

    /// `true` if `key` is certainly not claimed.
    pub(super) fn excludes(&self, key: &Key) -> bool {
        self.is_complete() && !self.has(key)
    }

    fn has(&self, key: &Key) -> bool {
        self.layers.iter().any(|layer| layer.has(key))
    }

    /// Prefetches the cache lines of keys about to be looked up. Looked up one by one, each would be a cache
    /// miss; here the processor fetches several at a time.
    pub(super) fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k Key>) {
        black_box(keys.filter(|key| self.excludes(key)).count());
    }

    /// Adds a key, before its claim is committed. A key that is present takes no room again: while commits fail
    /// the same keys are added repeatedly.
    pub(super) fn add(&mut self, key: &Key) {
        if self.has(key) {
            return;
        }
        if let Some(layer) = self.layers.iter_mut().find(|layer| layer.has_room()) {
            return layer.add(key);
        }
        // Each new layer has three times the room of all before it, so that there are few of them: a look-up in
        // each is a cache miss.
        let room: usize = self.layers.iter().map(|layer| layer.keys_max).sum();
        let bytes: usize = self.layers.iter().map(Layer::bytes).sum();
        let keys = if room == 0 { 0 } else { (3 * room).max(LATER_LAYER_KEYS_MIN) };
        let left = self.bytes_max.saturating_sub(bytes);
        // With hardly any memory left, keys share bits in the existing layers.
        let is_worth_it = left >= LAYER_KEYS_MIN * BITS_PER_KEY / 8;
        match self.layers.iter_mut().max_by_key(|layer| layer.keys_max) {
            Some(largest) if !is_worth_it => largest.add(key),
            _ => {
                let mut layer = Layer::within(keys, left);
                layer.add(key);
                self.layers.push(layer);
            }
        }
    }

    /// Adds the keys of earlier starts, once they are loaded.
    pub(super) fn add_loaded(&mut self) {
        if let Some(layer) = self.loading.as_ref().and_then(BackgroundLoad::read) {
            tracing::debug!("the filter of merged keys is complete");
            self.layers.insert(0, layer);
            self.loading = None;
        }
    }
}

/// Bloom filter of a fixed size.
#[derive(Debug)]
pub(super) struct Layer {
    blocks: Vec<Block>,
    keys: usize,
    keys_max: usize,
}

impl Layer {
    /// A layer with room for `keys` and a quarter more.
    pub(super) fn for_keys(keys: usize) -> Self {
        Self::within(keys.saturating_add(keys / 4), BYTES_MAX)
    }

    /// A layer with room for `keys`, or as many as fit into `bytes_max`.
    fn within(keys: usize, bytes_max: usize) -> Self {
        let wanted = keys.max(LAYER_KEYS_MIN).saturating_mul(BITS_PER_KEY).div_ceil(BLOCK_BITS);
        let count = wanted.min(bytes_max / BLOCK_BYTES).max(1);
        let keys_max = count * BLOCK_BITS / BITS_PER_KEY;
        // The memory is zeroed by the system and allocated page by page as bits are set.
        Self { blocks: vec![[0; 8]; count], keys: 0, keys_max }
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    fn has_room(&self) -> bool {
        self.keys < self.keys_max
    }

    pub(super) fn add(&mut self, key: &Key) {
        let (at, bits) = self.place(key);
        for (word, bit) in self.blocks[at].iter_mut().zip(bits) {
            *word |= bit;
        }
        self.keys += 1;
    }

    fn has(&self, key: &Key) -> bool {
        let (at, bits) = self.place(key);
        self.blocks[at].iter().zip(bits).all(|(word, bit)| word & bit != 0)
    }

    /// The block of a key and its bit in each word. Keys are hashes, so their bytes will do; blocks are in key
    /// order, so that sorted keys touch memory sequentially.
    fn place(&self, key: &Key) -> (usize, Block) {
        let [lead, bits, ..] = key.as_bytes().as_chunks::<8>().0 else {
            unreachable!("a key has 32 bytes");
        };
        let blocks = self.blocks.len() as u128;
        let at = (u128::from(u64::from_be_bytes(*lead)) * blocks) >> 64;
        let bits = u64::from_be_bytes(*bits);
        let bit_of = |word: usize| 1 << ((bits >> (6 * word)) & 63);
        (
            usize::try_from(at).expect("it is below the number of blocks"),
            std::array::from_fn(bit_of),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admit_testkit::rng::Rng;
    use proptest::prelude::*;

    fn random(rng: &mut Rng) -> Key {
        let mut bytes = [0; 32];
        for chunk in bytes.as_chunks_mut::<8>().0 {
            *chunk = rng.next_u64().to_be_bytes();
        }
        Key::from_bytes(bytes)
    }

    fn with_bytes_max(bytes_max: usize) -> KeyFilter {
        KeyFilter { layers: Vec::new(), loading: None, bytes_max }
    }

    proptest! {
        /// For any keys and any amount of memory.
        #[test]
        fn a_key_that_was_put_in_is_never_excluded(
            keys in prop::collection::vec(any::<[u8; 32]>(), 0..200),
            bytes_max in 0_usize..4096,
        ) {
            let mut filter = with_bytes_max(bytes_max);
            let keys: Vec<Key> = keys.into_iter().map(Key::from_bytes).collect();
            for (index, key) in keys.iter().enumerate() {
                filter.add(key);
                prop_assert!(keys[..=index].iter().all(|key| !filter.excludes(key)));
            }
        }
    }

    #[test]
    fn an_empty_filter_excludes_everything() {
        assert!(with_bytes_max(BYTES_MAX).excludes(&Key::from_bytes([7; 32])));
    }

    #[test]
    fn few_others_are_not_excluded_and_layers_are_few() {
        let mut rng = Rng::seeded(1);
        let mut filter = with_bytes_max(BYTES_MAX);
        for _ in 0..(3 * LAYER_KEYS_MIN) {
            filter.add(&random(&mut rng));
        }
        assert_eq!(filter.layers.len(), 2, "one for a million, one for all that follow");
        let perhaps = (0..100_000).filter(|_| !filter.excludes(&random(&mut rng))).count();
        assert!(perhaps < 1_000, "{perhaps} of 100000 would be looked up for nothing");
    }

    #[test]
    fn keys_added_again_after_a_failed_commit_use_no_more_space() {
        let mut rng = Rng::seeded(4);
        let mut filter = with_bytes_max(BYTES_MAX);
        let keys: Vec<Key> = (0..1_000).map(|_| random(&mut rng)).collect();
        for key in keys.iter().cycle().take(100_000) {
            filter.add(key);
        }
        let counted: usize = filter.layers.iter().map(|layer| layer.keys).sum();
        assert!(counted <= keys.len(), "{counted} for {} keys", keys.len());
    }

    #[test]
    fn the_remaining_memory_is_used_and_not_exceeded() {
        let layer = LAYER_KEYS_MIN * BITS_PER_KEY / 8;
        let mut filter = with_bytes_max(3 * layer);
        let mut rng = Rng::seeded(3);
        let mut sizes = Vec::new();
        for _ in 0..(4 * LAYER_KEYS_MIN) {
            filter.add(&random(&mut rng));
            if sizes.len() < filter.layers.len() {
                sizes.push(filter.layers.last().unwrap().bytes());
            }
        }
        assert_eq!(sizes, [layer, 2 * layer]);
    }

    #[test]
    fn the_bound_on_memory_holds_and_more_keys_still_go_in() {
        let mut rng = Rng::seeded(2);
        let mut filter = with_bytes_max(100_000);
        let keys: Vec<Key> = (0..200_000).map(|_| random(&mut rng)).collect();
        for key in &keys {
            filter.add(key);
        }
        assert!(filter.layers.iter().map(Layer::bytes).sum::<usize>() <= 100_000);
        assert!(keys.iter().all(|key| !filter.excludes(key)));
    }
}
