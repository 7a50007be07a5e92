//! Isolation between peers: a hostile peer must not affect the events of others.

mod bodies;
mod connections;
mod keys;
mod overlapping;
mod patterns;
mod readers;
mod roles;
mod routes;
mod shares;
