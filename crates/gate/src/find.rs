//! Finding one receipt: by the id that the ledger gave it, or by what a contract's own answers call its event.

use admit_contracts::{external_ids, ingestion_gate};
use admit_core::{Fault, StoredDocument, Receipt, ReceiptId};
use admit_ledger::{DocumentReader, Reader};

/// Which receipt is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The ledger's id, or with a door one that its answers give.
    pub id: &'a str,
    /// The door it must be of.
    pub door: Option<&'a str>,
    /// The run it is of, for the ids of the ingestion gate: each run has its own.
    pub run: Option<&'a str>,
}

/// Why nothing can be looked for.
#[derive(Debug)]
pub enum Unfindable {
    /// It is not an id of a ledger, and no door is named that could have given it.
    NotAnId,
    /// A run is named, and not the door whose ids are of runs.
    RunWithoutItsDoor,
    /// It is an id of another ledger.
    OtherLedger(ReceiptId),
    /// The ledger could not be asked.
    Fault(Fault),
}

impl From<Fault> for Unfindable {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The receipt that is asked for, if there is one. `documents` are those that the ingestion gate has issued,
/// where there is one.
pub async fn find(
    ledger: &dyn Reader,
    documents: Option<&dyn DocumentReader>,
    wanted: Wanted<'_>,
) -> Result<Option<Receipt>, Unfindable> {
    let Wanted { id, door, run } = wanted;
    if run.is_some() && door != Some(ingestion_gate::DOOR) {
        return Err(Unfindable::RunWithoutItsDoor);
    }
    // A contract may name its events as it likes, so its own ids come first.
    if let Some(door) = door
        && let Some(receipt) = named_at(door, ledger, documents, id, run).await?
    {
        return Ok(Some(receipt));
    }
    match id.parse::<ReceiptId>() {
        Ok(id) if id.ledger != ledger.tag() => Err(Unfindable::OtherLedger(id)),
        Ok(id) => {
            let found = ledger.receipt(id.seq).await?;
            Ok(found.filter(|receipt| door.is_none_or(|door| receipt.door.as_str() == door)))
        }
        Err(_) if door.is_none() => Err(Unfindable::NotAnId),
        Err(_) => Ok(None),
    }
}

/// The receipt of the event that the answers at `door` call `id`.
async fn named_at(
    door: &str,
    ledger: &dyn Reader,
    documents: Option<&dyn DocumentReader>,
    id: &str,
    run: Option<&str>,
) -> Result<Option<Receipt>, Fault> {
    let documents = documents.filter(|_| door == ingestion_gate::DOOR);
    let is_of_run = |filed: &StoredDocument| run.is_none_or(|run| filed.document.run.as_deref() == Some(run));
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
