//! The gate over HTTP: HTTP/1.1 and HTTP/2 on one port, in the clear or through TLS.
//!
//! `listen` accepts and shuts down, `connection` carries one peer, `watch` guards its bytes, `door`
//! takes submissions in, `routes` is the table of everything else, `read` and `operate` answer it,
//! `openapi` describes all of it. `socket` and `calls`
//! lead to a WebSocket and to gRPC. `wire` is plain or TLS, `trace` names a request in the logs.

mod accept;
mod accounts;
mod answer;
mod body;
mod calls;
mod clock;
mod connection;
mod door;
mod fixed;
mod head;
mod ingest;
mod listen;
mod openapi;
mod operate;
mod publications;
mod read;
mod routes;
mod runs;
mod socket;
mod trace;
mod watch;
mod wire;

pub(crate) use fixed::FixedDocument;
pub use listen::{Drained, Listeners, ServeError, serve};
pub(crate) use read::health::is_ready;
pub(crate) use routes::is_own_route;
pub(crate) use trace::field as trace_field;
