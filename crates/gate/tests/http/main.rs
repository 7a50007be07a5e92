//! Tests of the gate over real sockets, with a fake contract and a ledger in memory.

mod abuse;
mod auth;
mod client;
mod door;
mod drain;
mod fakes;
mod flaky_ledger;
mod forward;
mod http2;
mod ingest;
mod limits;
mod operations;
mod publishing;
mod read;
mod test_server;
mod tls;
mod unix_socket;
mod vetting;
mod write_behind;
mod write_only_artifacts;
