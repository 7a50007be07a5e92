//! Generated ids: ULIDs and trace ids, derived from a nonce and the time.

use admit_core::{Digest, Millis};

/// Crockford base32 digits: no I, L, O, U.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// ULID: 48 bits of time, 80 of the nonce. `label` separates the ids of one request.
pub(super) fn ulid(at: Millis, nonce: &[u8; 16], label: &str) -> String {
    let time = u128::from(at.0.max(0).unsigned_abs() & 0xffff_ffff_ffff);
    let mut random = [0; 16];
    random[6..].copy_from_slice(&derive_bytes(nonce, label)[..10]);
    let number = time << 80 | u128::from_be_bytes(random);
    (0..26).rev().map(|place| char::from(DIGITS[(number >> (place * 5) & 31) as usize])).collect()
}

/// Trace id: 32 hex digits, as in W3C trace context.
pub(super) fn trace(nonce: &[u8; 16]) -> String {
    admit_core::hash::hex(&derive_bytes(nonce, "trace")[..16])
}

/// Bytes that are unpredictable without the nonce and differ for every label.
fn derive_bytes(nonce: &[u8; 16], label: &str) -> [u8; 32] {
    *Digest::of(&[nonce, label.as_bytes()].concat()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_sort_by_time_and_are_distinct() {
        let at = Millis(1_771_524_842_123);
        let id = ulid(at, &[7; 16], "intent");
        assert_eq!(id.len(), 26);
        assert!(id.starts_with("01KHVHQRMB"), "{id}");
        assert!(id < ulid(Millis(at.0 + 1), &[0; 16], "intent"));
        assert_ne!(id, ulid(at, &[7; 16], "correlation"));
        assert_ne!(id, ulid(at, &[8; 16], "intent"));
        assert_eq!(trace(&[7; 16]).len(), 32);
    }
}
