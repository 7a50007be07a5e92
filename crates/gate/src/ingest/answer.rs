//! From a recorded delivery to its answer: performed, waited for, or said at once.

use std::sync::Arc;

use admit_contracts::Reply;
use admit_core::{Entry, Fault, FaultKind, Filed, IssuedKind, Recorded, Seq, Verdict};
use admit_ledger::{Kept, Outlook};
use bytes::Bytes;
use tokio::time::{sleep, timeout};

use super::Ingest;
use super::files::unwritten;

/// A delivery with the documents about it, and what is said.
pub(crate) type Answered = Result<(Recorded, Vec<Filed>, Reply), Fault>;

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
    async fn conclude(self: &Arc<Self>, kept: Kept) -> Answered {
        let Kept { recorded, filed, outlook } = kept;
        if recorded.verdict == (Verdict::Refused { seq: None }) {
            return Err(Fault::new(
                FaultKind::Overloaded,
                "this producer's quarantine is full, nothing more of it is kept",
            ));
        }
        let (is_closed, is_closing) =
            (outlook == Outlook::RunClosed, outlook == Outlook::RunClosing);
        let filed = match outlook {
            Outlook::Said | Outlook::RunClosed | Outlook::RunClosing => {
                let raw = match &recorded.entry {
                    Entry::Event(event) => &event.body,
                    Entry::Refused(refused) => &refused.body,
                };
                self.write_all(filed, raw).await?
            }
            Outlook::Performs { seq, .. } => self.flights.landing(seq).await?,
            Outlook::InFlight { seq } => self.after_the_first(&recorded, seq).await?,
        };
        self.watch_over(&filed);
        let reply = if is_closed {
            self.contract.reply_closed(&filed)
        } else if is_closing {
            self.contract.reply_closing(&filed)
        } else {
            self.contract.reply_filed(&recorded, &filed)
        };
        Ok((recorded, filed, reply))
    }

    /// A copy of what is in flight waits a while, holding nothing of the ledger, and is told by
    /// where the first stands then.
    async fn after_the_first(&self, recorded: &Recorded, first: Seq) -> Result<Vec<Filed>, Fault> {
        let mut watch = self.in_work.watch(first);
        let effect = self.reader.effect(first).await?;
        if effect.is_some_and(|effect| effect.standing.is_in_work()) {
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
    async fn write_all(&self, filed: Vec<Filed>, raw: &Bytes) -> Result<Vec<Filed>, Fault> {
        let listed: Vec<&Filed> = filed.iter().collect();
        let written = self.write_files(&listed, Some(raw)).await;
        if filed.iter().any(|filed| written.failed(filed.n)) {
            return Err(unwritten());
        }
        Ok(filed)
    }

    /// Counts quarantines, and tells when they are too many.
    fn watch_over(self: &Arc<Self>, filed: &[Filed]) {
        let is_quarantine = |filed: &&Filed| filed.issued.kind == IssuedKind::Quarantine;
        if filed.iter().any(|filed| is_quarantine(&filed)) {
            self.note_quarantine();
        }
    }
}
