//! Runs of a data platform: what feeds the ingestion gate, and what is said about a run.
//!
//! The streamer reads a sealed pack and pushes its rows to a gate. It decides nothing about
//! admission: the gate does, and what a streamer remembers is progress, never truth.

pub mod catalogue;
pub mod closure;
pub mod report;
pub mod runner;
pub mod shape;
pub mod streamer;
