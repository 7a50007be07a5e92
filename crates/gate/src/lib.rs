//! The server: doors over HTTP, WebSocket and gRPC, who may knock, how much may wait, and the one path behind them.
//!
//! [`Gate`] is what a server knows, [`serve`] is a running one, [`pipeline::admit`] is the path
//! every submission takes. Which parts a gate is made of is decided outside, in [`Parts`].
//!
//! Invariants:
//! * At a door's path every layer answers in the words of the door's contract, with a body. Some
//!   producers take an empty body for "drop it" and a foreign body for "delivered".
//! * Whatever has been handed to the ledger is finished, also when the producer hangs up or the
//!   answer comes too late for it.

pub mod accounts;
mod auth;
mod bus_call;
mod clock;
mod connections;
mod exposition;
pub mod find;
mod finish;
mod gate;
pub mod gateway;
mod grpc;
mod http;
mod in_work;
pub mod ingest;
mod lane;
pub mod limits;
pub mod metrics;
mod parts;
mod peer;
mod perform;
pub mod pipeline;
pub mod principals;
pub mod publisher;
mod rate;
pub mod receipt;
pub mod receipt_detail;
mod request_permit;
pub mod reserve;
pub mod retention;
mod room;
pub mod rounds;
pub mod runs;
mod shares;
mod standing;
mod takeover;
pub mod tls;
mod vetting;
mod way_out;
mod ws;

pub use clock::SystemClock;
pub use gate::Gate;
pub use http::{Drained, Listeners, ServeError, serve};
pub use limits::Limits;
pub use parts::{DoorMount, GateError, Parts, Place, check_doors};
pub use principals::Principals;
pub use tls::{Tls, TlsFiles};
pub use way_out::WayOut;
