//! What the gate needs of a ledger to let the events of streams out again.

use admit_ledger::{Claims, News, Streams};

/// Ordered reads, a sign when there is something new, and claims.
pub trait WayOut: Streams + News + Claims {}

impl<L: Streams + News + Claims> WayOut for L {}
