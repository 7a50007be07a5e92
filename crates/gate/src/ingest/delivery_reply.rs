//! Reply to a recorded delivery: at once, after its publish, or after the first delivery's publish.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::{
    DocumentKind, Entry, Fault, FaultKind, RecordedEntry, Seq, StoredDocument, Verdict,
};
use admit_ledger::{FollowUp, RecordedDelivery};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::Ingest;
use super::document_files::unwritten_receipt;

/// A delivery with its documents and its reply.
pub(crate) type DeliveryResult = Result<(RecordedEntry, Vec<StoredDocument>, Reply), Fault>;

/// Records a batch. Returns the result of each entry, in order.
pub(crate) async fn admit(ingest: &Arc<Ingest>, entries: Vec<Entry>) -> Vec<DeliveryResult> {
    if !ingest.settings.amber_pause.is_zero() && ingest.health.is_amber() {
        sleep(ingest.settings.amber_pause).await;
    }
    let deliveries = ingest.ledger.record_issuing(entries, ingest.issue_handlers()).await;
    let results = deliveries.into_iter().map(async |delivery| match delivery {
        Ok(delivery) => ingest.complete(delivery).await,
        Err(fault) => Err(fault),
    });
    futures_util::future::join_all(results).await
}

impl Ingest {
    /// Completes one delivery. All files referenced by its reply are written or queued.
    async fn complete(self: &Arc<Self>, delivery: RecordedDelivery) -> DeliveryResult {
        let RecordedDelivery { recorded, filed, follow_up } = delivery;
        if recorded.verdict == (Verdict::Refused { seq: None }) {
            return Err(Fault::new(
                FaultKind::Overloaded,
                "the quarantine quota of this producer is used up, the event was not stored",
            ));
        }
        let (is_closed, is_closing) =
            (follow_up == FollowUp::RunClosed, follow_up == FollowUp::RunClosing);
        let filed = match follow_up {
            FollowUp::Done | FollowUp::RunClosed | FollowUp::RunClosing => {
                let raw = match &recorded.entry {
                    Entry::Event(event) => &event.body,
                    Entry::Refused(refused) => &refused.body,
                };
                self.write_all(filed, raw).await?
            }
            FollowUp::Perform { seq, .. } => self.publish_queue.wait_for(seq).await?,
            FollowUp::InFlight { seq } => self.reply_to_duplicate(&recorded, seq).await?,
        };
        self.count_quarantines(&filed);
        let reply = if is_closed {
            self.contract.reply_closed(&filed)
        } else if is_closing {
            self.contract.reply_closing(&filed)
        } else {
            self.contract.reply_with_documents(&recorded, &filed)
        };
        Ok((recorded, filed, reply))
    }

    /// Waits for the outcome of the first delivery up to a timeout, holding no ledger resources, and settles
    /// a duplicate by the state at that time.
    async fn reply_to_duplicate(
        &self,
        recorded: &RecordedEntry,
        first: Seq,
    ) -> Result<Vec<StoredDocument>, Fault> {
        let mut waiter = self.in_flight_effects.subscribe(first);
        let effect = self.reader.effect(first).await?;
        if effect.is_some_and(|effect| effect.state.is_in_work()) {
            // The commit below reads the state, after the end or after the timeout.
            let ended = waiter.wait_on_any_gate(&*self.reader);
            drop(timeout(self.settings.in_flight_wait, ended).await);
        }
        drop(waiter);
        let (copy, issue, now) = (recorded.clone(), self.issue.clone(), self.clock.now());
        let settled = self.ledger.settle_copy(copy, first, issue, now).await?;
        if settled.filed.is_empty() {
            return Err(Fault::new(
                FaultKind::OutcomeUnknown,
                "the first event under this key was released concurrently; retry",
            ));
        }
        self.write_all(settled.filed, &Bytes::new()).await
    }

    /// Writes the files of documents. Fails unless all of them are written.
    async fn write_all(
        &self,
        filed: Vec<StoredDocument>,
        raw: &Bytes,
    ) -> Result<Vec<StoredDocument>, Fault> {
        let listed: Vec<&StoredDocument> = filed.iter().collect();
        let failed_writes = self.write_files(&listed, Some(raw)).await;
        if filed.iter().any(|filed| failed_writes.contains(filed.n)) {
            return Err(unwritten_receipt());
        }
        Ok(filed)
    }

    /// Counts quarantines, to detect spikes.
    fn count_quarantines(self: &Arc<Self>, filed: &[StoredDocument]) {
        let is_quarantine =
            |filed: &&StoredDocument| filed.document.kind == DocumentKind::Quarantine;
        if filed.iter().any(|filed| is_quarantine(&filed)) {
            self.note_quarantine();
        }
    }
}
