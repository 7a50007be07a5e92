//! The gate over HTTP: HTTP/1.1 and HTTP/2 without TLS on one port.
//!
//! `listen` accepts and shuts down, `connection` carries one peer, `watch` guards its bytes, `door`
//! takes submissions in, `routes` is the table of everything else, `read` and `operate`
//! answer it.

mod answer;
mod body;
mod connection;
mod door;
mod finish;
mod listen;
mod operate;
mod read;
mod routes;
mod watch;

pub use listen::{Drained, ServeError, serve};
pub(crate) use routes::is_own_route;
