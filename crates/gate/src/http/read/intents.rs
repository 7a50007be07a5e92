//! `GET /v1/intents/{receipt_id}`: one intent with its current state and history.

use std::sync::Arc;

use admit_contracts::intents::{DOOR, read};
use admit_core::{Door, Receipt, ReceiptId};
use axum::extract::State;

use super::query::{PathParams, invalid};
use super::{ReadAccess, RouteReply};
use crate::gate::Gate;

pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: ReadAccess,
    PathParams(id): PathParams<String>,
) -> RouteReply {
    let receipt = match admission(&gate, &id).await {
        Ok(receipt) if reader.may_see(&receipt.door) => receipt,
        Ok(_) => return RouteReply::not_found(&gate, "unknown intent"),
        Err(routed) => return routed,
    };
    let seq = receipt.id.seq;
    let found = async { Ok((gate.ledger.effect(seq).await?, gate.ledger.history(seq).await?)) };
    match found.await {
        Ok((effect, history)) => {
            RouteReply::object(200, &read::intent(&receipt, effect.as_ref(), &history))
        }
        Err(fault) => RouteReply::fault(&gate, &fault),
    }
}

/// Returns the receipt of the intent's first delivery; `id` may be that of a duplicate.
pub(in crate::http) async fn admission(gate: &Gate, id: &str) -> Result<Receipt, RouteReply> {
    let Ok(id) = id.parse::<ReceiptId>() else {
        return Err(invalid(gate, "invalid receipt id; expected a form like rcp-5e1f09ab-42"));
    };
    let missing = || RouteReply::not_found(gate, "unknown intent");
    if id.ledger != gate.ledger.tag() {
        return Err(RouteReply::not_found(gate, "the receipt id is of another ledger"));
    }
    let lookup = async |seq| match gate.ledger.receipt(seq).await {
        Ok(found) => found.ok_or_else(missing),
        Err(fault) => Err(RouteReply::fault(gate, &fault)),
    };
    let mut receipt = lookup(id.seq).await?;
    if let Some(first) = receipt.first {
        receipt = lookup(first.seq).await?;
    }
    if receipt.door != Door::new(DOOR) || receipt.verdict != "fresh" {
        return Err(missing());
    }
    Ok(receipt)
}
