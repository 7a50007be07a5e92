//! Tests of the streamer: golden and damaged packs, crashes, concurrency, pacing.

// Marks the whole file as test code for clippy, including helper functions.
#![cfg(test)]

mod concurrency;
mod consuming;
mod crash;
mod golden;
mod http;
mod pacing;
mod packs;
mod rows;
#[cfg(feature = "s3")]
mod s3_packs;
#[path = "../../examples/synthetic_pack/pack.rs"]
mod synthetic;
mod world;
