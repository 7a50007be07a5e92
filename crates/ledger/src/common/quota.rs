//! Quota of stored refusals.

use admit_core::RefusedSubmission;

/// Storage cost of a refusal besides its texts: the rows of its admission and body, and their index
/// entries.
const ROW_BYTES: u64 = 320;

/// Limits of stored refusals, per producer and door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalQuota {
    /// Maximum number of refusals.
    pub rows_max: u64,
    /// Maximum number of bytes: raw bodies, messages, facts, and 320 for the rows of each.
    pub bytes_max: u64,
}

impl Default for RefusalQuota {
    fn default() -> Self {
        Self { rows_max: 100_000, bytes_max: 256 * 1024 * 1024 }
    }
}

/// Storage cost of a refusal. When retention removes the body, only the body's part is returned to the
/// quota; the reason stays.
pub(crate) fn refusal_cost(refused: &RefusedSubmission, facts: &str) -> u64 {
    let texts = refused.body.len() + refused.message.len() + facts.len();
    ROW_BYTES + texts as u64
}
