//! How much of what is refused is kept.

use admit_core::Refused;

/// What a kept refusal costs beside its texts: the rows of its admission and its body, and their places
/// in the indexes.
const ROW_BYTES: u64 = 320;

/// How much of refused submissions is kept, for each producer at each door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalQuota {
    /// At most so many.
    pub rows_max: u64,
    /// At most so many bytes: raw bodies, messages, facts, and 320 for the rows of each.
    pub bytes_max: u64,
}

impl Default for RefusalQuota {
    fn default() -> Self {
        Self { rows_max: 100_000, bytes_max: 256 * 1024 * 1024 }
    }
}

/// What keeping a refusal costs. When retention removes its body, only the body's part is given back:
/// the reason stays.
pub(crate) fn refusal_cost(refused: &Refused, facts: &str) -> u64 {
    let texts = refused.body.len() + refused.message.len() + facts.len();
    ROW_BYTES + texts as u64
}
