//! JSON of a receipt, with the same members in every route, command and list.

use admit_contracts::reply_code;
use admit_core::json::{self, Object, Value};
use admit_core::{Code, Receipt};

use crate::receipt_detail::IngestDetail;

/// Reason why an event is in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownReason {
    /// Code of the ledger, the same for all doors.
    pub code: Code,
    /// Code in the reply to the producer; `None` if the reply acknowledged the event as a duplicate.
    pub reply_code: Option<String>,
    /// Description of the error.
    pub message: String,
}

impl ShownReason {
    /// Reason of a refusal (stored in the ledger) or of a conflict (derived from the verdict).
    pub fn of(receipt: &Receipt) -> Option<Self> {
        let door = receipt.door.as_str();
        if let Some((code, message)) = &receipt.reason {
            let (code, message) = (*code, message.clone());
            let reply_code = reply_code::of_refusal(door, code, &facts(receipt));
            return Some(Self { code, reply_code: Some(reply_code), message });
        }
        if receipt.verdict != "conflict" {
            return None;
        }
        let first = receipt.first.map_or_else(String::new, |first| format!(", see {first}"));
        let message = format!("this key was used before for other content{first}");
        let reply_code = reply_code::of_conflict(door);
        Some(Self { code: Code::IdempotencyKeyReused, reply_code, message })
    }
}

fn facts(receipt: &Receipt) -> Object<'_> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(&receipt.facts, &limits) {
        Ok(Value::Object(facts)) => facts,
        _ => Object::new(),
    }
}

/// JSON of a receipt. The members of `facts` are defined by the contract.
pub fn object(receipt: &Receipt) -> Object<'_> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let facts = json::parse(&receipt.facts, &limits).unwrap_or(Value::Null);
    let reason = ShownReason::of(receipt).map(|reason| {
        Object::from_iter([
            ("code", Value::from(reason.code.as_str())),
            ("reply_code", reason.reply_code.into()),
            ("message", reason.message.into()),
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

/// JSON of a receipt with the detail of its door.
pub fn detailed<'r>(receipt: &'r Receipt, detail: Option<&IngestDetail>) -> Object<'r> {
    let mut object = object(receipt);
    if let Some(detail) = detail {
        detail.add_to(&mut object);
    }
    object
}
