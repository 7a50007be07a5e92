//! The gate over HTTP: HTTP/1.1 and HTTP/2 on one port, in the clear or through TLS.
//!
//! * Connections: `listen` accepts and shuts down, `connection` serves one peer, `peer_stream` is plain
//!   TCP, TLS or a Unix socket, `io_timeouts` enforces the timeouts on it.
//! * Requests: `door` handles submissions, `routes` is the table of all other routes, `websocket` and
//!   `grpc_calls` hand a request over to WebSocket and gRPC, `trace` gives it an id for the logs.
//! * Routes: `read` has the queries; `intent_replay`, `publications`, `round_acceptance`, `confirm_time`,
//!   `run_reports`, `ingest` and `runs` have the actions of operators; `openapi` describes all of them.

mod body;
mod confirm_time;
mod connection;
mod door;
mod fixed_document;
mod grpc_calls;
mod head_limits;
mod ingest;
mod intent_replay;
mod io_timeouts;
mod listen;
mod openapi;
mod peer_stream;
mod publications;
mod read;
mod response;
mod round_acceptance;
mod routes;
mod run_reports;
mod runs;
mod trace;
mod websocket;

pub(crate) use fixed_document::FixedDocument;
pub use listen::{DrainReport, Listeners, ServeError, serve};
pub(crate) use read::health::is_ready;
pub(crate) use routes::is_own_route;
pub(crate) use trace::field as trace_field;
