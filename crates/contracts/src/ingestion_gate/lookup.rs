//! `GET /v1/ops/lookup`: which receipt is asked for, and how it is told.

use admit_core::json::Object;
use admit_core::{Code, Filed, Issued};

use super::RUN_CLOSED;
use super::facts::Facts;
use super::names::{ArtifactName, outside_id};
use super::words::{Decision, Reason};

/// What is asked for. The first of these in a query counts, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The earliest receipt of this event.
    EventId(String),
    /// The latest receipt with this id; several runs may have one.
    ReceiptId(String),
    /// The earliest receipt under this key.
    DedupeKey(String),
}

/// The question in a query, if there is one.
pub fn question(query: &str) -> Option<Question> {
    let of = |name: &str| {
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value));
        values.next().filter(|value| !value.is_empty())
    };
    None.or_else(|| of("event_id").map(Question::EventId))
        .or_else(|| of("receipt_id").map(Question::ReceiptId))
        .or_else(|| of("dedupe_key").map(Question::DedupeKey))
}

/// What is answered: the receipt that was found, or an empty object.
pub fn answer(found: Option<&Filed>) -> Object<'_> {
    let mut told = Object::new();
    if let Some(Filed { issued: Issued { id, event_id, event_type, decision, path, .. }, .. }) =
        found
    {
        told.push("receipt_id", id);
        told.push("event_id", event_id.as_ref());
        told.push("event_type", event_type.as_ref());
        told.push("decision", &**decision);
        told.push("receipt_ref", path);
    }
    told
}

/// Id and identity that the documents about a delivery can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// The ids to look for.
    pub ids: Vec<String>,
    /// The identity that tells them from others of the same id.
    pub identity: String,
    /// The run they belong to.
    pub run: Option<String>,
}

impl DocumentName {
    /// Whether `filed` is a document about the delivery.
    pub fn is_of(&self, filed: &Filed) -> bool {
        filed.issued.identity == self.identity && filed.issued.run == self.run
    }
}

/// Name of the documents about a delivery that was refused with `code` or, without a code, conflicts.
/// Derived from its facts, because the ledger indexes documents by id and by admission only.
pub fn quarantined(facts: &Object<'_>, code: Option<Code>) -> DocumentName {
    let facts = Facts::new(facts);
    if code == Some(Code::RunClosed) {
        let key = facts.dedupe_key().unwrap_or_default();
        let id = outside_id(key, RUN_CLOSED, facts.payload_hash().unwrap_or_default());
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
        decision: Decision::Quarantine,
        event_id: facts.event_id().unwrap_or_default(),
        class: facts.class().unwrap_or_default(),
        reason: reason.as_str(),
        payload_hash: facts.payload_hash().unwrap_or_default(),
    };
    let run = facts.run().map(str::to_owned);
    DocumentName { ids: vec![name.short(), name.long()], identity: name.long(), run }
}

/// A value of a query as it was meant.
fn decoded(value: &str) -> String {
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
    fn the_first_of_three_names_counts() {
        let asks = |query: &str| question(query);
        let event = |id: &str| Some(Question::EventId(id.to_owned()));
        assert_eq!(asks("dedupe_key=d&receipt_id=r&event_id=e"), event("e"));
        assert_eq!(asks("dedupe_key=d&receipt_id=r"), Some(Question::ReceiptId("r".to_owned())));
        assert_eq!(asks("event_id=&dedupe_key=d"), Some(Question::DedupeKey("d".to_owned())));
        assert_eq!(asks("event_id=a%7Cb+c%2"), event("a|b c%2"));
        assert_eq!(asks("event_id=%C3%A9"), event("é"));
        for nothing in ["", "event_id", "event_id=", "x=1", "event=e"] {
            assert_eq!(asks(nothing), None, "{nothing}");
        }
    }
}
