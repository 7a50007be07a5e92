//! The outbox: what a producer has to say is on its own disk before anything is sent, and stays
//! there until the gate has acknowledged it.
//!
//! [`Outbox`] is the durable queue, [`Sender`] empties it in the background over a [`Wire`]:
//! WebSocket, gRPC or HTTP. A program that links this crate needs nothing else:
//!
//! ```no_run
//! use std::sync::Arc;
//! use admit_edge::{Endpoint, Identity, Options, Outbox, Sender, SenderOptions, WebSocketWire};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let outbox = Arc::new(Outbox::open("listener_outbox.db".as_ref(), Options::default())?);
//! let gate = Endpoint::parse("https://gate.example", None)?;
//! let wire = WebSocketWire::new(gate, "/v1/ingress", Identity::default());
//! let sender = Sender::start(Arc::clone(&outbox), Arc::new(wire), SenderOptions::default())?;
//! outbox.enqueue("evt_1", r#"{"event_id":"evt_1"}"#)?; // durable now
//! sender.stop();
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//! * `enqueue` returns after the commit that holds the row has been synced.
//! * A row is removed by the acknowledgement that matches it, and by nothing else. There is no
//!   largest number of attempts.
//! * One row that is refused for ever delays no other.

mod backoff;
mod budget;
mod flight;
mod invalid;
mod keeper;
mod outbox;
mod progress;
mod sender;
mod status;
mod store;
pub mod wire;

pub use backoff::Backoff;
pub use invalid::{InvalidEnvelope, InvalidEnvelopes, RetryError};
pub use keeper::{EnqueueError, Enqueued};
pub use outbox::{Counters, OpenError, Options, Outbox};
pub use sender::{Sender, SenderOptions};
pub use status::Status;
pub use store::Row;
pub use wire::connect::{Endpoint, EndpointError};
pub use wire::grpc::GrpcWire;
pub use wire::http::{Dialect, HttpWire};
pub use wire::parcel::Parcel;
pub use wire::websocket::WebSocketWire;
pub use wire::{Identity, Wire};
