//! The server: doors over HTTP, WebSocket and gRPC, authentication, limits, and the admission pipeline.
//!
//! [`Gate`] is the shared state of a server, [`serve`] runs it, and [`pipeline::admit`] is the path of
//! every submission. The caller supplies the parts of a gate in [`GateParts`].
//!
//! Invariants:
//! * At a door's path, every layer replies in the format of the door's contract, with a body. Some
//!   producers read an empty body as "drop the event" and an unknown body as "delivered".
//! * A write that was handed to the ledger is completed even if the producer disconnects or its
//!   request times out.

mod admission_limiter;
mod auth;
mod builder;
mod bus_call;
mod clock;
mod connections;
mod dead_gate_recovery;
mod detach_on_drop;
mod exposition;
mod gate;
pub mod gateway;
mod gateway_delivery;
mod grpc;
mod http;
mod in_flight_effects;
pub mod ingest;
pub mod limits;
pub mod metrics;
mod peer;
pub mod pipeline;
mod pipelined_session;
pub mod principals;
pub mod publisher;
mod rate_limit;
pub mod receipt;
pub mod receipt_detail;
pub mod receipt_lookup;
mod request_permit;
pub mod reserve;
pub mod retention;
pub mod rounds;
pub mod run_reports;
pub mod scenario_runner;
mod shares;
mod stream_ports;
pub mod tls;
mod unauthenticated_connections;
mod vetting;
mod ws;

pub use builder::{DoorMount, DoorPath, GateError, GateParts, check_doors};
pub use clock::SystemClock;
pub use gate::Gate;
pub use http::{DrainReport, Listeners, ServeError, serve};
pub use limits::Limits;
pub use principals::Principals;
pub use stream_ports::StreamPorts;
pub use tls::{Tls, TlsFiles};
