//! Lookup of events by the ids in a contract's replies, for contracts whose replies do not contain
//! a receipt id.

use admit_core::Key;
use admit_core::hash::unhex32;

use crate::{ingestion_gate, pixel_control, skyra};

/// Returns the key of the event that replies at `door` identify by `id`: the `dedupe_key` of
/// pixel-control and ingestion-gate, the `event_id` of skyra. `None` if `id` is malformed or if the
/// door's replies contain the receipt id.
pub fn key(door: &str, id: &str) -> Option<Key> {
    match door {
        pixel_control::DOOR => unhex32(id).map(|dedupe_key| Key::derive(door, &[&dedupe_key])),
        ingestion_gate::DOOR | skyra::DOOR => Some(Key::derive(door, &[id.as_bytes()])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_id_has_no_key() {
        let dedupe_key = "a5b1e0a9b052deea79b562bcbfb8c08ab92888372a7588d7bb44ae8ac1f86f32";
        assert!(key("pixel-control", dedupe_key).is_some());
        assert_ne!(key("pixel-control", dedupe_key), key("ingestion-gate", dedupe_key));
        for id in ["", "rcp-5e1f09ab-42", &dedupe_key[1..]] {
            assert_eq!(key("pixel-control", id), None, "{id:?}");
        }
        assert_eq!(key("events/orders", dedupe_key), None, "its answers name the receipt");
    }
}
