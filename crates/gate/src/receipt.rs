//! A receipt as everybody sees it: the same members on every route and in every listing.

use admit_core::Receipt;
use admit_core::json::{self, Object, Value};

/// The receipt as a JSON object, `facts` in the contract's own words.
pub fn object(receipt: &Receipt) -> Object<'_> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let facts = json::parse(&receipt.facts, &limits).unwrap_or(Value::Null);
    let reason = receipt.reason.as_ref().map(|(code, message)| {
        Object::from_iter([
            ("code", Value::from(code.as_str())),
            ("message", message.as_str().into()),
        ])
    });
    Object::from_iter([
        ("id", receipt.id.to_string().into()),
        ("door", receipt.door.as_str().into()),
        ("principal", receipt.principal.as_str().into()),
        ("verdict", receipt.verdict.into()),
        ("key", receipt.key.map(|key| key.to_string()).into()),
        ("digest", receipt.digest.to_string().into()),
        ("received_at", receipt.received_at.to_rfc3339_millis().into()),
        ("last_seen_at", receipt.last_seen_at.to_rfc3339_millis().into()),
        ("duplicate_count", receipt.duplicate_count.into()),
        ("last_attempt", receipt.last_attempt.into()),
        ("first", receipt.first.map(|first| first.to_string()).into()),
        ("reason", reason.into()),
        ("facts", facts),
    ])
}
