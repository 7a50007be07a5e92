//! Receipts, one by its id or many in ledger order.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::json::{Object, Value};
use admit_core::{Code, Receipt, ReceiptId};
use admit_ledger::{ReceiptFilter, ReceiptPage};
use axum::extract::State;

use super::query::{Asked, Named, ReceiptQuery, ReceiptsQuery, after, invalid, rows, verdicts};
use super::{Reader, Routed};
use crate::find::{Unfindable, Wanted, find};
use crate::gate::Gate;
use crate::http::answer;
use crate::receipt;
use crate::receipt_detail::{self, IngestDetail};

/// Most admissions that one page examines where its filter lets little through.
const EXAMINED_MAX: usize = 20_000;

/// Verdicts that keep content. Copies are sightings, counted on the receipt they are copies of.
const KEPT: [&str; 4] = ["fresh", "revision", "conflict", "refused"];
/// Verdicts that keep content without applying it.
const QUARANTINED: [&str; 2] = ["conflict", "refused"];

/// `GET /v1/receipts/{id}`; with `?door=` and `&run=` by the id that the door's own answers give.
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(id): Named<String>,
    Asked(query): Asked<ReceiptQuery>,
) -> Routed {
    match detailed(&gate, &reader, &id, &query).await {
        Ok((receipt, detail)) => Routed::object(200, &receipt::detailed(&receipt, detail.as_ref())),
        Err(refused) => refused,
    }
}

/// `GET /v1/receipts/{id}/document`: the document that the contract issued, as it was stored.
pub(in crate::http) async fn document(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(id): Named<String>,
    Asked(query): Asked<ReceiptQuery>,
) -> Routed {
    let (receipt, detail) = match detailed(&gate, &reader, &id, &query).await {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    match detail.as_ref().and_then(IngestDetail::document) {
        Some(filed) => {
            let body = filed.document.text.clone().into_bytes();
            let (content_type, headers) = ("application/json", Vec::new());
            Routed(Reply { status: 200, content_type, headers, body })
        }
        None => Routed::not_found(&gate, &receipt_detail::missing(&receipt)),
    }
}

/// The receipt that is asked for, with its detail, if the reader may see it.
async fn detailed(
    gate: &Gate,
    reader: &Reader,
    id: &str,
    query: &ReceiptQuery,
) -> Result<(Receipt, Option<IngestDetail>), Routed> {
    let ingest = gate.doors.iter().find_map(|mount| mount.outward.ingest.as_ref());
    let documents = ingest.map(|ingest| ingest.documents());
    let wanted = Wanted { id, door: query.door.as_deref(), run: query.run.as_deref() };
    let receipt = match find(&*gate.ledger, documents, wanted).await {
        Err(Unfindable::Fault(fault)) => return Err(Routed::fault(gate, &fault)),
        Err(Unfindable::RunWithoutItsDoor) => {
            return Err(invalid(gate, "run= goes with door=ingestion-gate"));
        }
        Err(Unfindable::OtherLedger(_)) => {
            return Err(Routed::not_found(gate, "this id is of another ledger"));
        }
        Err(Unfindable::NotAnId) => {
            let message = "a receipt id looks like rcp-5e1f09ab-42; for an id that a contract has \
                           given, such as a dedupe_key, name its door with door=";
            return Err(invalid(gate, message));
        }
        Ok(Some(receipt)) if reader.may_see(&receipt.door) => receipt,
        Ok(_) => return Err(Routed::not_found(gate, "there is no such receipt")),
    };
    let Some(documents) = documents else { return Ok((receipt, None)) };
    let detail = IngestDetail::read(&*gate.ledger, documents, &receipt).await;
    detail.map(|detail| (receipt, detail)).map_err(|fault| Routed::fault(gate, &fault))
}

/// `GET /v1/admissions`.
pub(in crate::http) async fn admissions(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<ReceiptsQuery>,
) -> Routed {
    list(&gate, &reader, query, "admissions", &KEPT).await
}

/// `GET /v1/quarantine`.
pub(in crate::http) async fn quarantine(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Asked(query): Asked<ReceiptsQuery>,
) -> Routed {
    list(&gate, &reader, query, "quarantine", &QUARANTINED).await
}

async fn list(
    gate: &Gate,
    reader: &Reader,
    mut query: ReceiptsQuery,
    name: &'static str,
    allowed: &[&str],
) -> Routed {
    let door = match door(gate, reader, query.door.take()) {
        Ok(door) => door,
        Err(refused) => return refused,
    };
    let filter = match filter(gate, door, &query, allowed) {
        Ok(filter) => filter,
        Err(message) => return invalid(gate, &message),
    };
    let ReceiptPage { receipts, next } = match gate.ledger.page_of(filter, EXAMINED_MAX).await {
        Ok(page) => page,
        Err(fault) => return Routed::fault(gate, &fault),
    };
    let ledger = gate.ledger.tag();
    let next = Value::from(next.map(|seq| ReceiptId { ledger, seq }.to_string()));
    let listed: Value<'_> = receipts.iter().map(receipt::object).collect();
    Routed::object(200, &Object::from_iter([(name, listed), ("next", next)]))
}

/// The door to list: the one that was asked for, or the only one the reader may see.
fn door(gate: &Gate, reader: &Reader, asked: Option<String>) -> Result<Option<String>, Routed> {
    match (asked, reader.doors.as_slice()) {
        (asked, []) => Ok(asked),
        (Some(door), doors) if doors.contains(&door) => Ok(Some(door)),
        (Some(_), _) => {
            let message = "this key may not read this door";
            Err(Routed(answer::refuse(gate, Code::Forbidden, message)))
        }
        (None, [only]) => Ok(Some(only.clone())),
        (None, doors) => {
            Err(invalid(gate, &format!("name one door with door=: {}", doors.join(", "))))
        }
    }
}

fn filter(
    gate: &Gate,
    door: Option<String>,
    query: &ReceiptsQuery,
    allowed: &[&str],
) -> Result<ReceiptFilter, String> {
    Ok(ReceiptFilter {
        door,
        principal: query.principal.clone(),
        verdicts: verdicts(query.verdict.as_deref(), allowed)?,
        after: after(query.after.as_deref(), gate.ledger.tag())?,
        rows_max: rows(query.limit)?,
    })
}
