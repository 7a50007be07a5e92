//! Receipts: one by its id, or pages in ledger order.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::json::{Object, Value};
use admit_core::{Code, Receipt, ReceiptId};
use admit_ledger::{ReceiptFilter, ReceiptPage};
use axum::extract::State;

use super::query::{
    PathParams, QueryParams, ReceiptQuery, ReceiptsQuery, after, invalid, rows, verdicts,
};
use super::{ReadAccess, RouteReply};
use crate::gate::Gate;
use crate::http::response;
use crate::receipt;
use crate::receipt_detail::{self, IngestDetail};
use crate::receipt_lookup::{ReceiptLookup, ReceiptLookupError, find_receipt};

/// Most admissions that one page scans when its filter matches few.
const EXAMINED_MAX: usize = 20_000;

/// Verdicts with stored content. Duplicates have none: they are counted on the receipt of the first delivery.
const STORED_VERDICTS: [&str; 4] = ["fresh", "revision", "conflict", "refused"];
/// Verdicts whose content is stored but not applied.
const QUARANTINE_VERDICTS: [&str; 2] = ["conflict", "refused"];

/// `GET /v1/receipts/{id}`: one receipt. With `?door=` and `&run=` the id is one that the door's contract issued.
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ReceiptQuery>,
) -> RouteReply {
    match find_detailed(&gate, &reader, &id, &query).await {
        Ok((receipt, detail)) => {
            RouteReply::object(200, &receipt::detailed(&receipt, detail.as_ref()))
        }
        Err(refused) => refused,
    }
}

/// `GET /v1/receipts/{id}/document`: the document that the contract issued, as it was stored.
pub(in crate::http) async fn document(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(id): PathParams<String>,
    QueryParams(query): QueryParams<ReceiptQuery>,
) -> RouteReply {
    let (receipt, detail) = match find_detailed(&gate, &reader, &id, &query).await {
        Ok(found) => found,
        Err(refused) => return refused,
    };
    match detail.as_ref().and_then(IngestDetail::document) {
        Some(filed) => {
            let body = filed.document.text.clone().into_bytes();
            let (content_type, headers) = ("application/json", Vec::new());
            RouteReply(Reply { status: 200, content_type, headers, body })
        }
        None => RouteReply::not_found(&gate, &receipt_detail::missing(&receipt)),
    }
}

/// Finds a receipt with its detail, if the reader may see it.
async fn find_detailed(
    gate: &Gate,
    reader: &ReadAccess,
    id: &str,
    query: &ReceiptQuery,
) -> Result<(Receipt, Option<IngestDetail>), RouteReply> {
    let ingest = gate.doors.iter().find_map(|mount| mount.effect_target.ingest.as_ref());
    let documents = ingest.map(|ingest| ingest.documents());
    let lookup = ReceiptLookup { id, door: query.door.as_deref(), run: query.run.as_deref() };
    let receipt = match find_receipt(&*gate.ledger, documents, lookup).await {
        Err(ReceiptLookupError::Fault(fault)) => return Err(RouteReply::fault(gate, &fault)),
        Err(ReceiptLookupError::RunWithoutItsDoor) => {
            return Err(invalid(gate, "run= requires door=ingestion-gate"));
        }
        Err(ReceiptLookupError::OtherLedger(_)) => {
            return Err(RouteReply::not_found(gate, "the receipt id is of another ledger"));
        }
        Err(ReceiptLookupError::NotAnId) => {
            let message = "invalid receipt id; expected a form like rcp-5e1f09ab-42. For an id that a \
                           contract issued, such as a dedupe_key, add door=";
            return Err(invalid(gate, message));
        }
        Ok(Some(receipt)) if reader.may_see(&receipt.door) => receipt,
        Ok(_) => return Err(RouteReply::not_found(gate, "unknown receipt")),
    };
    let Some(documents) = documents else { return Ok((receipt, None)) };
    let detail = IngestDetail::read(&*gate.ledger, documents, &receipt).await;
    detail.map(|detail| (receipt, detail)).map_err(|fault| RouteReply::fault(gate, &fault))
}

/// `GET /v1/admissions`.
pub(in crate::http) async fn admissions(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<ReceiptsQuery>,
) -> RouteReply {
    list(&gate, &reader, query, "admissions", &STORED_VERDICTS).await
}

/// `GET /v1/quarantine`.
pub(in crate::http) async fn quarantine(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    QueryParams(query): QueryParams<ReceiptsQuery>,
) -> RouteReply {
    list(&gate, &reader, query, "quarantine", &QUARANTINE_VERDICTS).await
}

async fn list(
    gate: &Gate,
    reader: &ReadAccess,
    mut query: ReceiptsQuery,
    name: &'static str,
    allowed: &[&str],
) -> RouteReply {
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
        Err(fault) => return RouteReply::fault(gate, &fault),
    };
    let ledger = gate.ledger.tag();
    let next = Value::from(next.map(|seq| ReceiptId { ledger, seq }.to_string()));
    let listed: Value<'_> = receipts.iter().map(receipt::object).collect();
    RouteReply::object(200, &Object::from_iter([(name, listed), ("next", next)]))
}

/// Returns the door to list: the requested one, or the only one that the reader may see.
fn door(
    gate: &Gate,
    reader: &ReadAccess,
    requested: Option<String>,
) -> Result<Option<String>, RouteReply> {
    match (requested, reader.doors.as_slice()) {
        (requested, []) => Ok(requested),
        (Some(door), doors) if doors.contains(&door) => Ok(Some(door)),
        (Some(_), _) => {
            let message = "this principal may not read this door";
            Err(RouteReply(response::refuse(gate, Code::Forbidden, message)))
        }
        (None, [only]) => Ok(Some(only.clone())),
        (None, doors) => {
            Err(invalid(gate, &format!("door= is required; one of {}", doors.join(", "))))
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
