//! The schemas of what goes in and out, as they are shipped.

use admit_core::json::{Object, Value};

use crate::schema::{EmptyArray, Schema};

/// The envelope, as text.
pub const ENVELOPE: &str = include_str!("schemas/envelope.json");

/// The receipt, as text.
pub const RECEIPT: &str = include_str!("schemas/receipt.json");

/// The quarantine record, as text.
pub const QUARANTINE: &str = include_str!("schemas/quarantine.json");

/// The schema of receipts, compiled.
#[derive(Debug)]
pub(super) struct Receipts(Schema);

impl Receipts {
    pub(super) fn new() -> Self {
        let schema = Schema::compile(&parsed(RECEIPT), EmptyArray::Array);
        Self(schema.expect("the schema of receipts is tested"))
    }

    /// What is wrong with a receipt, if anything is.
    pub(super) fn violation(&self, receipt: Object<'_>) -> Option<String> {
        Some(self.0.told(&Value::from(receipt))?.join("; "))
    }
}

/// A shipped schema as data.
pub(super) fn parsed(schema: &str) -> serde_json::Value {
    serde_json::from_str(schema).expect("shipped schemas are json")
}
