//! Maps each code stored in the ledger to the code in the door's reply.
//!
//! The ledger uses one set of codes for all doors. A contract may use other codes on the wire, so
//! listings show both: an operator can find a refusal by the code that the producer reports.

use admit_core::Code;
use admit_core::json::{Object, Value};

use crate::{ingestion_gate, intents, pixel_control, rounds, skyra};

/// Returns the code in the reply to a submission refused with `code` at `door`, given its stored
/// facts.
pub fn of_refusal(door: &str, code: Code, facts: &Object<'_>) -> String {
    let word = match door {
        ingestion_gate::DOOR => {
            // The state of the run takes precedence over an earlier reason for the same event.
            let is_late = matches!(code, Code::RunClosed | Code::RunClosing);
            let stored = facts.get("reason").filter(|_| !is_late);
            let reason = stored.and_then(Value::as_str);
            return reason.unwrap_or_else(|| ingestion_gate::reply_code(code)).to_owned();
        }
        intents::DOOR => intents::reply_code(code),
        skyra::DOOR => skyra::nack_code(code),
        _ => code.as_str(),
    };
    word.to_owned()
}

/// Returns the code in the reply to a conflict without a stored reason; `None` at doors that
/// acknowledge a conflict as a duplicate.
pub fn of_conflict(door: &str) -> Option<String> {
    let code = Code::IdempotencyKeyReused;
    match door {
        pixel_control::DOOR | skyra::DOOR | intents::DOOR | rounds::DOOR => None,
        ingestion_gate::DOOR => Some(ingestion_gate::reply_code(code).to_owned()),
        _ => Some(code.as_str().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_refusal_has_the_code_of_its_reply() {
        let none = Object::new();
        let of = |door, code| of_refusal(door, code, &none);
        assert_eq!(of("pixel-control", Code::InvalidJson), "invalid_json");
        assert_eq!(of("skyra", Code::InvalidJson), "invalid_envelope");
        assert_eq!(of("intents", Code::InvalidJson), "bad_json");
        assert_eq!(of("ingestion-gate", Code::InvalidJson), "INVALID_JSON");
        assert_eq!(of("events/orders", Code::InvalidJson), "invalid_json");
        let facts = Object::from_iter([("reason", Value::from("SCHEMA_FAIL"))]);
        assert_eq!(of_refusal("ingestion-gate", Code::InvalidEnvelope, &facts), "SCHEMA_FAIL");
    }

    #[test]
    fn a_conflict_has_a_reply_code_where_the_reply_names_it() {
        assert_eq!(of_conflict("ingestion-gate").as_deref(), Some("PAYLOAD_HASH_MISMATCH"));
        assert_eq!(of_conflict("default").as_deref(), Some("idempotency_key_reused"));
        assert_eq!(of_conflict("pixel-control"), None);
    }
}
