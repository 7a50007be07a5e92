//! One peer against another: whatever one does, the other's events are taken as before.

mod bodies;
mod connections;
mod keys;
mod overlapping;
mod patterns;
mod readers;
mod roles;
mod routes;
mod shares;
