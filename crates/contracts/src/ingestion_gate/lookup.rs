//! `GET /v1/ops/lookup`: receipt lookup query and response.

use admit_core::json::Object;
use admit_core::{Code, Document, StoredDocument};

use super::enums::{Reason, ReceiptDecision};
use super::facts::DeliveryFacts;
use super::names::{ArtifactName, outside_id};
use super::{RUN_CLOSED, RUN_CLOSING};

/// Lookup query. Parameters take precedence in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupQuery {
    /// Earliest receipt of this event.
    EventId(String),
    /// Latest receipt with this id; several runs may have one.
    ReceiptId(String),
    /// Earliest receipt under this key.
    DedupeKey(String),
}

/// Parses the query string; `None` if it names no receipt.
pub fn parse_query(query: &str) -> Option<LookupQuery> {
    let of = |name: &str| {
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut values =
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| percent_decode(value));
        values.next().filter(|value| !value.is_empty())
    };
    None.or_else(|| of("event_id").map(LookupQuery::EventId))
        .or_else(|| of("receipt_id").map(LookupQuery::ReceiptId))
        .or_else(|| of("dedupe_key").map(LookupQuery::DedupeKey))
}

/// Renders the response: the receipt, or an empty object.
pub fn response(found: Option<&StoredDocument>) -> Object<'_> {
    let mut object = Object::new();
    if let Some(StoredDocument {
        document: Document { id, event_id, event_type, decision, path, .. },
        ..
    }) = found
    {
        object.push("receipt_id", id);
        object.push("event_id", event_id.as_ref());
        object.push("event_type", event_type.as_ref());
        object.push("decision", &**decision);
        object.push("receipt_ref", path);
    }
    object
}

/// Possible ids and the identity of the documents about a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// Candidate ids.
    pub ids: Vec<String>,
    /// Identity that distinguishes them from other documents with the same id.
    pub identity: String,
    /// Run they belong to.
    pub run: Option<String>,
}

impl DocumentName {
    /// Returns whether `filed` is a document about the delivery.
    pub fn is_of(&self, filed: &StoredDocument) -> bool {
        filed.document.identity == self.identity && filed.document.run == self.run
    }
}

/// Returns the name of the documents about a delivery that was refused with `code` or, without a
/// code, conflicts. It is derived from the facts because the ledger indexes documents by id and by
/// admission only.
pub fn quarantine_document_name(facts: &Object<'_>, code: Option<Code>) -> DocumentName {
    let facts = DeliveryFacts::new(facts);
    let late = match code {
        Some(Code::RunClosed) => Some(RUN_CLOSED),
        Some(Code::RunClosing) => Some(RUN_CLOSING),
        _ => None,
    };
    if let Some(reason) = late {
        let key = facts.dedupe_key().unwrap_or_default();
        let id = outside_id(key, reason, facts.payload_hash().unwrap_or_default());
        return DocumentName { ids: vec![id.clone()], identity: id, run: None };
    }
    if let Some(id) = facts.unscoped_id() {
        return DocumentName { ids: vec![id.to_owned()], identity: id.to_owned(), run: None };
    }
    let reason = match code {
        None => Reason::PayloadHashMismatch,
        Some(_) => facts.reason().and_then(Reason::parse).unwrap_or(Reason::InternalError),
    };
    let name = ArtifactName {
        decision: ReceiptDecision::Quarantine,
        event_id: facts.event_id().unwrap_or_default(),
        class: facts.class().unwrap_or_default(),
        reason: reason.as_str(),
        payload_hash: facts.payload_hash().unwrap_or_default(),
    };
    let run = facts.run().map(str::to_owned);
    DocumentName { ids: vec![name.short(), name.long()], identity: name.long(), run }
}

/// Percent-decodes a query value.
fn percent_decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = |offset: usize| {
            bytes.get(at + offset).and_then(|digit| char::from(*digit).to_digit(16))
        };
        match (byte, hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            (b'+', ..) => {
                out.push(b' ');
                at += 1;
            }
            (other, ..) => {
                out.push(*other);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_takes_precedence_over_receipt_id_and_dedupe_key() {
        let parse = |query: &str| parse_query(query);
        let event = |id: &str| Some(LookupQuery::EventId(id.to_owned()));
        assert_eq!(parse("dedupe_key=d&receipt_id=r&event_id=e"), event("e"));
        assert_eq!(
            parse("dedupe_key=d&receipt_id=r"),
            Some(LookupQuery::ReceiptId("r".to_owned()))
        );
        assert_eq!(parse("event_id=&dedupe_key=d"), Some(LookupQuery::DedupeKey("d".to_owned())));
        assert_eq!(parse("event_id=a%7Cb+c%2"), event("a|b c%2"));
        assert_eq!(parse("event_id=%C3%A9"), event("é"));
        for nothing in ["", "event_id", "event_id=", "x=1", "event=e"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }
}
