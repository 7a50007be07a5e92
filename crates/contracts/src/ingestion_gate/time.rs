//! Timestamp formats of this contract.

use admit_core::Millis;

/// `2026-02-12T08:56:37.123000+00:00`, for receipts, records and references.
pub fn utc(at: Millis) -> String {
    with_micros(at, "+00:00")
}

/// `2026-02-12T08:56:37.123000Z`, the format of `ts_utc` in an envelope.
pub(super) fn ts_utc(at: Millis) -> String {
    with_micros(at, "Z")
}

fn with_micros(at: Millis, zone: &str) -> String {
    let millis = at.to_rfc3339_millis();
    format!("{}000{zone}", millis.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits_and_a_zone() {
        let at = Millis(1_771_524_842_123);
        assert_eq!(utc(at), "2026-02-19T18:14:02.123000+00:00");
        assert_eq!(ts_utc(at), "2026-02-19T18:14:02.123000Z");
        assert_eq!(Millis::parse_rfc3339(&utc(at)), Some(at));
    }
}
