//! Shipped schemas of requests and documents.

use admit_core::json::{Object, Value};

use crate::schema::{CompiledSchema, EmptyArray};

/// Envelope schema.
pub const ENVELOPE: &str = include_str!("schemas/envelope.json");

/// Receipt schema.
pub const RECEIPT: &str = include_str!("schemas/receipt.json");

/// Quarantine record schema.
pub const QUARANTINE: &str = include_str!("schemas/quarantine.json");

/// Compiled receipt schema.
#[derive(Debug)]
pub(super) struct Receipts(CompiledSchema);

impl Receipts {
    pub(super) fn new() -> Self {
        let schema = CompiledSchema::compile(&parse_schema(RECEIPT), EmptyArray::Array);
        Self(schema.expect("the schema of receipts is tested"))
    }

    /// Returns the first violation of the schema, if any.
    pub(super) fn violation(&self, receipt: Object<'_>) -> Option<String> {
        Some(self.0.violations(&Value::from(receipt))?.join("; "))
    }
}

/// Parses a shipped schema.
pub(super) fn parse_schema(schema: &str) -> serde_json::Value {
    serde_json::from_str(schema).expect("shipped schemas are json")
}
