//! Contract tests through the public API: bytes in, entries and replies out.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

mod events;
mod ingestion_gate;
mod intents;
mod pixel_control;
mod rounds;
mod skyra;
