//! What the gate needs of a ledger to let the events of streams out again.

use admit_ledger::{Claims, Inbox, StreamNotifier, Streams};

/// Ordered reads, a sign when there is something new, claims, and the inbox.
pub trait WayOut: Streams + StreamNotifier + Claims + Inbox {}

impl<L: Streams + StreamNotifier + Claims + Inbox> WayOut for L {}
