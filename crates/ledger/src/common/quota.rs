//! How much of what is refused is kept.

/// How much of refused submissions is kept, for each producer at each door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalQuota {
    /// At most so many.
    pub rows_max: u64,
    /// At most so many bytes of raw bodies.
    pub bytes_max: u64,
}

impl Default for RefusalQuota {
    fn default() -> Self {
        Self { rows_max: 100_000, bytes_max: 256 * 1024 * 1024 }
    }
}
