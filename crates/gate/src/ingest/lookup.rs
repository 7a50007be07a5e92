//! Questions of whoever wants to know what became of an event.

use admit_contracts::ingestion_gate::Decision;
use admit_contracts::ingestion_gate::lookup::Question;
use admit_contracts::ingestion_gate::names::{self, ArtifactName};
use admit_core::{Fault, Filed, IssuedKind};
use admit_ledger::IssuedReader;

use super::Ingest;

impl Ingest {
    /// The documents it has issued.
    pub(crate) fn documents(&self) -> &dyn IssuedReader {
        &*self.ledger
    }

    /// The receipt that answers a question.
    pub(crate) async fn look_up(&self, question: &Question) -> Result<Option<Filed>, Fault> {
        let is_receipt = |filed: &Filed| filed.issued.kind == IssuedKind::Receipt;
        match question {
            Question::ReceiptId(id) => {
                let named = self.ledger.named(id.clone()).await?;
                Ok(named.into_iter().rfind(is_receipt))
            }
            // Every first receipt of a decision has the short id, and so has the earliest of all.
            Question::EventId(event_id) => {
                let mut earliest: Option<Filed> = None;
                for decision in [Decision::Admit, Decision::Duplicate, Decision::Quarantine] {
                    let name = ArtifactName {
                        decision,
                        event_id,
                        class: "",
                        reason: "",
                        payload_hash: "",
                    };
                    let named = self.ledger.named(name.short()).await?;
                    let first = named.into_iter().find(|filed| {
                        is_receipt(filed) && filed.issued.event_id.as_deref() == Some(event_id)
                    });
                    earliest = match (earliest, first) {
                        (Some(a), Some(b)) => Some(if b.n < a.n { b } else { a }),
                        (a, b) => a.or(b),
                    };
                }
                Ok(earliest)
            }
            Question::DedupeKey(dedupe_key) => {
                let key = names::key(&Self::door(), dedupe_key);
                let Some(receipt) = self.reader.find(key).await? else { return Ok(None) };
                let filed = self.ledger.filed_of(receipt.id.seq).await?;
                Ok(filed.into_iter().find(is_receipt))
            }
        }
    }
}
