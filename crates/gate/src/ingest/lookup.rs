//! Lookup of the receipt document of an event.

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_contracts::ingestion_gate::lookup::LookupQuery;
use admit_contracts::ingestion_gate::names::{self, ArtifactName};
use admit_core::{DocumentKind, Fault, StoredDocument};
use admit_ledger::DocumentReader;

use super::Ingest;

impl Ingest {
    /// Reader of the issued documents.
    pub(crate) fn documents(&self) -> &dyn DocumentReader {
        &*self.ledger
    }

    /// Finds the receipt document for a query.
    pub(crate) async fn look_up(
        &self,
        query: &LookupQuery,
    ) -> Result<Option<StoredDocument>, Fault> {
        let is_receipt = |filed: &StoredDocument| filed.document.kind == DocumentKind::Receipt;
        match query {
            LookupQuery::ReceiptId(id) => {
                let documents = self.ledger.named(id.clone()).await?;
                Ok(documents.into_iter().rfind(is_receipt))
            }
            // The first receipt of each decision has the short id, so the earliest receipt has it too.
            LookupQuery::EventId(event_id) => {
                let mut earliest: Option<StoredDocument> = None;
                for decision in [
                    ReceiptDecision::Admit,
                    ReceiptDecision::Duplicate,
                    ReceiptDecision::Quarantine,
                ] {
                    let name = ArtifactName {
                        decision,
                        event_id,
                        class: "",
                        reason: "",
                        payload_hash: "",
                    };
                    let documents = self.ledger.named(name.short()).await?;
                    let first = documents.into_iter().find(|filed| {
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
