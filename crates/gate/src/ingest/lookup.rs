//! Questions of whoever wants to know what became of an event.

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_contracts::ingestion_gate::lookup::LookupQuery;
use admit_contracts::ingestion_gate::names::{self, ArtifactName};
use admit_core::{Fault, StoredDocument, DocumentKind};
use admit_ledger::DocumentReader;

use super::Ingest;

impl Ingest {
    /// The documents it has issued.
    pub(crate) fn documents(&self) -> &dyn DocumentReader {
        &*self.ledger
    }

    /// The receipt that answers a question.
    pub(crate) async fn look_up(&self, question: &LookupQuery) -> Result<Option<StoredDocument>, Fault> {
        let is_receipt = |filed: &StoredDocument| filed.document.kind == DocumentKind::Receipt;
        match question {
            LookupQuery::ReceiptId(id) => {
                let named = self.ledger.named(id.clone()).await?;
                Ok(named.into_iter().rfind(is_receipt))
            }
            // Every first receipt of a decision has the short id, and so has the earliest of all.
            LookupQuery::EventId(event_id) => {
                let mut earliest: Option<StoredDocument> = None;
                for decision in [ReceiptDecision::Admit, ReceiptDecision::Duplicate, ReceiptDecision::Quarantine] {
                    let name = ArtifactName {
                        decision,
                        event_id,
                        class: "",
                        reason: "",
                        payload_hash: "",
                    };
                    let named = self.ledger.named(name.short()).await?;
                    let first = named.into_iter().find(|filed| {
                        is_receipt(filed) && filed.document.event_id.as_deref() == Some(event_id)
                    });
                    earliest = match (earliest, first) {
                        (Some(a), Some(b)) => Some(if b.n < a.n { b } else { a }),
                        (a, b) => a.or(b),
                    };
                }
                Ok(earliest)
            }
            LookupQuery::DedupeKey(dedupe_key) => {
                let key = names::key(&Self::door(), dedupe_key);
                let Some(receipt) = self.reader.find(key).await? else { return Ok(None) };
                let filed = self.ledger.filed_of(receipt.id.seq).await?;
                Ok(filed.into_iter().find(is_receipt))
            }
        }
    }
}
