//! Ledger ports that consumers of streams and of the inbox need.

use admit_ledger::{Claims, Inbox, StreamNotifier, Streams};

/// Ordered reads, notifications about new entries, claims, and the inbox.
pub trait StreamPorts: Streams + StreamNotifier + Claims + Inbox {}

impl<L: Streams + StreamNotifier + Claims + Inbox> StreamPorts for L {}
