//! The bus: where admitted events are published, behind one small port.
//!
//! Every adapter passes the one contract suite in `admit-testkit`. What they share:
//!
//! - An answer never claims more than is known. *Committed* means that a crash of everything cannot
//!   take it back. *Not written* is a proof: no byte of the message can turn up later. Everything in
//!   between is *unknown*, and stays so until somebody looks.
//! - A message carries its dedupe key, so that whoever looks can find it again.
//! - Order is kept per partition key: what was handed over first has the smaller offset.
//! - Nothing is retried here. Whether a message may be sent again is not the bus's to decide.

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
mod window;

pub use port::{
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Reference,
    Sought,
};
