//! The streamer, held to its promises: on the golden pack, on damaged ones, killed and raced.

// Always true for a test; it tells the lints so, also in functions that are not marked as one.
#![cfg(test)]

#[cfg(feature = "s3")]
mod bucket;
mod consuming;
mod crash;
mod golden;
mod http;
mod pacing;
mod packs;
mod racing;
mod rows;
#[path = "../../examples/synthetic_pack/pack.rs"]
mod synthetic;
mod world;
