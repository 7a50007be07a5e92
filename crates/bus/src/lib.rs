//! The bus: where admitted events are published, behind one small port.
//!
//! Every adapter passes the same contract suite (`admit-testkit`). Common guarantees:
//!
//! - A result never claims more than is known. *Committed* survives a crash of everything. *Not
//!   written* is a proof: no byte of the message can turn up later. Everything in between is
//!   *unknown* until a search (reconcile) settles it.
//! - A message carries its dedupe key, so that it can be found again.
//! - Order is kept per partition key: the message published first has the smaller offset.
//! - The bus never retries. The caller decides whether a message may be sent again.

pub mod file;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "kinesis")]
pub mod kinesis;
pub mod name;
#[cfg(feature = "nats")]
pub mod nats;
pub mod port;
#[cfg(any(feature = "nats", feature = "kafka"))]
mod search_window;

pub use port::{
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, Reference,
    SearchQuery, SearchResult, StoredMessage,
};
