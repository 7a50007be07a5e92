//! One intent as it stands, with its history.

use std::sync::Arc;

use admit_contracts::intents::{DOOR, read};
use admit_core::{Door, Receipt, ReceiptId};
use axum::extract::State;

use super::query::{Named, invalid};
use super::{Reader, Routed};
use crate::gate::Gate;

/// `GET /v1/intents/{receipt_id}`.
pub(in crate::http) async fn one(
    State(gate): State<Arc<Gate>>,
    reader: Reader,
    Named(id): Named<String>,
) -> Routed {
    let receipt = match admission(&gate, &id).await {
        Ok(receipt) if reader.may_see(&receipt.door) => receipt,
        Ok(_) => return Routed::not_found(&gate, "there is no such intent"),
        Err(routed) => return routed,
    };
    let seq = receipt.id.seq;
    let found = async { Ok((gate.ledger.effect(seq).await?, gate.ledger.history(seq).await?)) };
    match found.await {
        Ok((effect, history)) => {
            Routed::object(200, &read::intent(&receipt, effect.as_ref(), &history))
        }
        Err(fault) => Routed::fault(&gate, &fault),
    }
}

/// The receipt of the intent that `id` names, or is a copy of.
pub(in crate::http) async fn admission(gate: &Gate, id: &str) -> Result<Receipt, Routed> {
    let Ok(id) = id.parse::<ReceiptId>() else {
        return Err(invalid(gate, "a receipt id looks like rcp-5e1f09ab-42"));
    };
    let missing = || Routed::not_found(gate, "there is no such intent");
    if id.ledger != gate.ledger.tag() {
        return Err(Routed::not_found(gate, "this id is of another ledger"));
    }
    let look = async |seq| match gate.ledger.receipt(seq).await {
        Ok(found) => found.ok_or_else(missing),
        Err(fault) => Err(Routed::fault(gate, &fault)),
    };
    let mut receipt = look(id.seq).await?;
    if let Some(first) = receipt.first {
        receipt = look(first.seq).await?;
    }
    if receipt.door != Door::new(DOOR) || receipt.verdict != "fresh" {
        return Err(missing());
    }
    Ok(receipt)
}
