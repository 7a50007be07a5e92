//! The gate over real sockets, with a contract and a ledger that do as they are told.

mod abuse;
mod auth;
mod balky;
mod behind;
mod blind;
mod client;
mod door;
mod drain;
mod fakes;
mod forward;
mod http2;
mod ingest;
mod limits;
mod operations;
mod owner;
mod publishing;
mod read;
mod tls;
mod world;
