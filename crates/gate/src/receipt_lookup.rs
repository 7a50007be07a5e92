//! Lookup of one receipt, by its ledger id or by an id from the contract's replies.

use admit_contracts::{external_ids, ingestion_gate};
use admit_core::{Fault, Receipt, ReceiptId, StoredDocument};
use admit_ledger::{DocumentReader, Reader};

/// Key of a receipt lookup.
#[derive(Clone, Copy, Debug)]
pub struct ReceiptLookup<'a> {
    /// Id of the ledger; with a door, also an id from that door's replies.
    pub id: &'a str,
    /// Restricts the lookup to one door.
    pub door: Option<&'a str>,
    /// Run of the event, for the ids of the ingestion gate, which are unique only within a run.
    pub run: Option<&'a str>,
}

/// Reason why a lookup is impossible.
#[derive(Debug)]
pub enum ReceiptLookupError {
    /// Not a ledger id, and no door is given whose id it could be.
    NotAnId,
    /// A run is given without the door whose ids belong to runs.
    RunWithoutItsDoor,
    /// Id of another ledger.
    OtherLedger(ReceiptId),
    /// The ledger cannot be read.
    Fault(Fault),
}

impl From<Fault> for ReceiptLookupError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Finds the receipt with the wanted id. `documents` reads the documents of the ingestion gate, if the
/// gate has one.
pub async fn find_receipt(
    ledger: &dyn Reader,
    documents: Option<&dyn DocumentReader>,
    wanted: ReceiptLookup<'_>,
) -> Result<Option<Receipt>, ReceiptLookupError> {
    let ReceiptLookup { id, door, run } = wanted;
    if run.is_some() && door != Some(ingestion_gate::DOOR) {
        return Err(ReceiptLookupError::RunWithoutItsDoor);
    }
    // Ids of a contract have any form, so they take precedence.
    if let Some(door) = door
        && let Some(receipt) = find_by_external_id(door, ledger, documents, id, run).await?
    {
        return Ok(Some(receipt));
    }
    match id.parse::<ReceiptId>() {
        Ok(id) if id.ledger != ledger.tag() => Err(ReceiptLookupError::OtherLedger(id)),
        Ok(id) => {
            let found = ledger.receipt(id.seq).await?;
            Ok(found.filter(|receipt| door.is_none_or(|door| receipt.door.as_str() == door)))
        }
        Err(_) if door.is_none() => Err(ReceiptLookupError::NotAnId),
        Err(_) => Ok(None),
    }
}

/// Finds the receipt of the event with the external id `id` at `door`.
async fn find_by_external_id(
    door: &str,
    ledger: &dyn Reader,
    documents: Option<&dyn DocumentReader>,
    id: &str,
    run: Option<&str>,
) -> Result<Option<Receipt>, Fault> {
    let documents = documents.filter(|_| door == ingestion_gate::DOOR);
    let is_of_run =
        |filed: &StoredDocument| run.is_none_or(|run| filed.document.run.as_deref() == Some(run));
    if let Some(documents) = documents {
        let named = documents.named(id.to_owned()).await?;
        if let Some(filed) = named.iter().rfind(|filed| is_of_run(filed)) {
            return ledger.receipt(filed.seq).await;
        }
    }
    let Some(key) = external_ids::key(door, id) else { return Ok(None) };
    let Some(receipt) = ledger.find(key).await? else { return Ok(None) };
    let is_it = match (documents, run) {
        (Some(documents), Some(_)) => {
            documents.filed_of(receipt.id.seq).await?.iter().any(is_of_run)
        }
        _ => true,
    };
    Ok(is_it.then_some(receipt))
}
