//! The schemas of what goes in and out, as they are shipped.

use std::fmt;

use admit_core::json::{Object, Value};
use jsonschema::Validator;

use crate::checking::{to_serde, told};

/// The envelope, as text.
pub const ENVELOPE: &str = include_str!("schemas/envelope.json");

/// The receipt, as text.
pub const RECEIPT: &str = include_str!("schemas/receipt.json");

/// The quarantine record, as text.
pub const QUARANTINE: &str = include_str!("schemas/quarantine.json");

/// The schema of receipts, compiled.
pub(super) struct Receipts(Validator);

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipts")
    }
}

impl Receipts {
    pub(super) fn new() -> Self {
        Self(jsonschema::validator_for(&parsed(RECEIPT)).expect("the schema of receipts is tested"))
    }

    /// What is wrong with a receipt, if anything is.
    pub(super) fn violation(&self, receipt: Object<'_>) -> Option<String> {
        let receipt = to_serde(&Value::from(receipt));
        if self.0.is_valid(&receipt) { None } else { Some(told(&self.0, &receipt).join("; ")) }
    }
}

/// A shipped schema as data.
pub(super) fn parsed(schema: &str) -> serde_json::Value {
    serde_json::from_str(schema).expect("shipped schemas are json")
}
