//! Durable outbox on the producer's machine: an event is on disk before it is sent, and stays there
//! until the gate has acknowledged it.
//!
//! [`Outbox`] is the durable queue; [`Sender`] sends its rows in the background over a [`Wire`]:
//! WebSocket, gRPC or HTTP. Usage:
//!
//! ```no_run
//! use std::sync::Arc;
//! use admit_edge::{Endpoint, Options, Outbox, Sender, SenderIdentity, SenderOptions, WebSocketWire};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let outbox = Arc::new(Outbox::open("listener_outbox.db".as_ref(), Options::default())?);
//! let gate = Endpoint::parse("https://gate.example", None)?;
//! let wire = WebSocketWire::new(gate, "/v1/ingress", SenderIdentity::default());
//! let sender = Sender::start(Arc::clone(&outbox), Arc::new(wire), SenderOptions::default())?;
//! outbox.enqueue("evt_1", r#"{"event_id":"evt_1"}"#)?; // durable now
//! sender.stop();
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! * `enqueue` returns after the commit with the row has been synced.
//! * A row is removed only by its own acknowledgement. The number of attempts is unlimited.
//! * A row that is always refused delays no other row.

mod backoff;
mod budget;
mod in_flight;
mod invalid;
mod outbox;
mod outbox_writer;
mod progress;
mod refused;
mod sender;
mod status;
mod store;
pub mod wire;

pub use backoff::Backoff;
pub use invalid::{InvalidEnvelope, InvalidEnvelopes, RetryError};
pub use outbox::{OpenError, Options, Outbox, OutboxCounters};
pub use outbox_writer::{EnqueueError, EnqueueOutcome};
pub use refused::{RefusedRow, RefusedRows};
pub use sender::{Sender, SenderOptions};
pub use status::OutboxStatus;
pub use store::OutboxRow;
pub use wire::connect::{Endpoint, EndpointError};
pub use wire::grpc::GrpcWire;
pub use wire::http::{Dialect, HttpWire};
pub use wire::row_request::RowRequest;
pub use wire::websocket::WebSocketWire;
pub use wire::{SenderIdentity, Wire};
