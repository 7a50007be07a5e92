//! The receipt in the contract's own words: its eleven fields, and what was noted beside them.

use admit_core::Receipt;
use admit_core::json::{Limits, Object, parse};

/// The contract's receipt of an admission or a rejection.
///
/// What a rejected event did not let us read is `null`. `warnings` and `warning_count` are there
/// only where the event broke rules of its category.
pub fn fields(receipt: &Receipt) -> Object<'_> {
    let limits = Limits { bytes_max: usize::MAX, ..Limits::default() };
    let facts = parse(&receipt.facts, &limits).unwrap_or_default();
    let fact = |name: &str| facts.get(name).cloned().unwrap_or_default();
    let status = if receipt.verdict == "refused" { "rejected" } else { "processed" };
    let mut fields = Object::from_iter([
        ("dedupe_key", fact("dedupe_key")),
        ("dedupe_scope", receipt.principal.as_str().into()),
        ("idempotency_key", fact("idempotency_key")),
        ("event_id", fact("event_id")),
        ("event_name", fact("event_name")),
        ("schema_version", fact("schema_version")),
        ("first_seen_at", receipt.received_at.to_rfc3339_seconds().into()),
        ("last_seen_at", receipt.last_seen_at.to_rfc3339_seconds().into()),
        ("duplicate_count", receipt.duplicate_count.into()),
        ("last_transport_attempt", receipt.last_attempt.into()),
        ("status", status.into()),
    ]);
    for name in ["warning_count", "warnings"] {
        if let Some(value) = facts.get(name).filter(|value| !value.is_null()) {
            fields.push(name, value.clone());
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use admit_core::{Digest, Door, Key, Millis, Principal, ReceiptId, Seq, json};

    use super::*;

    fn receipt(verdict: &'static str, facts: &str) -> Receipt {
        Receipt {
            id: ReceiptId { ledger: 1, seq: Seq(1) },
            door: Door::new("pixel-control"),
            principal: Principal::new("arena"),
            verdict,
            key: Some(Key::derive("pixel-control", &[])),
            digest: Digest::of(b""),
            received_at: Millis(1_771_524_842_123),
            last_seen_at: Millis(1_771_524_845_999),
            duplicate_count: 2,
            last_attempt: Some(3),
            first: None,
            reason: None,
            facts: facts.to_owned().into(),
        }
    }

    fn written(receipt: &Receipt) -> String {
        let mut out = Vec::new();
        json::write(&fields(receipt).into(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_receipt_has_the_eleven_fields_of_the_contract() {
        let facts = r#"{"event_id":"e","idempotency_key":"i","dedupe_key":"d","event_name":"n","event_category":"mode","schema_version":"v","source_sequence":1,"warning_count":1,"warnings":["w"]}"#;
        insta::assert_snapshot!(written(&receipt("fresh", facts)), @r#"{"dedupe_key":"d","dedupe_scope":"arena","idempotency_key":"i","event_id":"e","event_name":"n","schema_version":"v","first_seen_at":"2026-02-19T18:14:02Z","last_seen_at":"2026-02-19T18:14:05Z","duplicate_count":2,"last_transport_attempt":3,"status":"processed","warning_count":1,"warnings":["w"]}"#);
    }

    #[test]
    fn what_a_rejected_event_did_not_tell_is_null() {
        insta::assert_snapshot!(written(&receipt("refused", "{}")), @r#"{"dedupe_key":null,"dedupe_scope":"arena","idempotency_key":null,"event_id":null,"event_name":null,"schema_version":null,"first_seen_at":"2026-02-19T18:14:02Z","last_seen_at":"2026-02-19T18:14:05Z","duplicate_count":2,"last_transport_attempt":3,"status":"rejected"}"#);
    }
}
