//! From a recorded delivery to its answer: performed, waited for, or said at once.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::{Entry, Fault, FaultKind, StoredDocument, DocumentKind, RecordedEntry, Seq, Verdict};
use admit_ledger::{RecordedDelivery, FollowUp};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::Ingest;
use super::files::unwritten;

/// A delivery with the documents about it, and what is said.
pub(crate) type Answered = Result<(RecordedEntry, Vec<StoredDocument>, Reply), Fault>;

/// Records a batch and answers each of its entries, in order.
pub(crate) async fn admit(ingest: &Arc<Ingest>, entries: Vec<Entry>) -> Vec<Answered> {
    if !ingest.settings.amber_pause.is_zero() && ingest.health.is_amber() {
        sleep(ingest.settings.amber_pause).await;
    }
    let kept = ingest.ledger.record_issuing(entries, ingest.issuing()).await;
    let said = kept.into_iter().map(async |kept| match kept {
        Ok(kept) => ingest.conclude(kept).await,
        Err(fault) => Err(fault),
    });
    futures_util::future::join_all(said).await
}

impl Ingest {
    /// The answer to one delivery. Every file that it names is there.
    async fn conclude(self: &Arc<Self>, kept: RecordedDelivery) -> Answered {
        let RecordedDelivery { recorded, filed, follow_up } = kept;
        if recorded.verdict == (Verdict::Refused { seq: None }) {
            return Err(Fault::new(
                FaultKind::Overloaded,
                "this producer's quarantine is full, nothing more of it is kept",
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
            FollowUp::Perform { seq, .. } => self.flights.landing(seq).await?,
            FollowUp::InFlight { seq } => self.after_the_first(&recorded, seq).await?,
        };
        self.watch_over(&filed);
        let reply = if is_closed {
            self.contract.reply_closed(&filed)
        } else if is_closing {
            self.contract.reply_closing(&filed)
        } else {
            self.contract.reply_with_documents(&recorded, &filed)
        };
        Ok((recorded, filed, reply))
    }

    /// A copy of what is in flight waits a while, holding nothing of the ledger, and is told by
    /// where the first stands then.
    async fn after_the_first(&self, recorded: &RecordedEntry, first: Seq) -> Result<Vec<StoredDocument>, Fault> {
        let mut watch = self.in_work.watch(first);
        let effect = self.reader.effect(first).await?;
        if effect.is_some_and(|effect| effect.state.is_in_work()) {
            // Whether it has ended or time is up, the commit below says which.
            let ended = watch.ended_anywhere(&*self.reader);
            drop(timeout(self.settings.in_flight_wait, ended).await);
        }
        drop(watch);
        let (copy, issue, now) = (recorded.clone(), self.issue.clone(), self.clock.now());
        let copied = self.ledger.settle_copy(copy, first, issue, now).await?;
        if copied.filed.is_empty() {
            return Err(Fault::new(
                FaultKind::OutcomeUnknown,
                "the first event of this name was released just now; send it again",
            ));
        }
        self.write_all(copied.filed, &Bytes::new()).await
    }

    /// Writes the files of documents, all of them or none is named to anybody.
    async fn write_all(&self, filed: Vec<StoredDocument>, raw: &Bytes) -> Result<Vec<StoredDocument>, Fault> {
        let listed: Vec<&StoredDocument> = filed.iter().collect();
        let written = self.write_files(&listed, Some(raw)).await;
        if filed.iter().any(|filed| written.failed(filed.n)) {
            return Err(unwritten());
        }
        Ok(filed)
    }

    /// Counts quarantines, and tells when they are too many.
    fn watch_over(self: &Arc<Self>, filed: &[StoredDocument]) {
        let is_quarantine = |filed: &&StoredDocument| filed.document.kind == DocumentKind::Quarantine;
        if filed.iter().any(|filed| is_quarantine(&filed)) {
            self.note_quarantine();
        }
    }
}
