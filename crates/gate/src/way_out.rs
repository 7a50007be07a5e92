//! What the gate needs of a ledger to let the events of streams out again.

use admit_ledger::{Claims, Inbox, News, Streams};

/// Ordered reads, a sign when there is something new, claims, and the inbox.
pub trait WayOut: Streams + News + Claims + Inbox {}

impl<L: Streams + News + Claims + Inbox> WayOut for L {}
