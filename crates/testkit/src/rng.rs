//! Seeded random number generator for reproducible tests.

/// SplitMix64 generator: good enough to shuffle and choose, and identical on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator; equal seeds give equal numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Number below `end`, which must not be zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// `true` once in `n` draws, on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}
