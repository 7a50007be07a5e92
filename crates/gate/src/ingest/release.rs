//! Quarantines are let go by a named person: dismissed with a reason, or sent through the door again.

use std::sync::Arc;

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_core::effect::Attribution;
use admit_core::{Fault, StoredDocument, DocumentKind, ReceiptId, Submission};

use super::{Ingest, answer};
use crate::receipt_detail::IngestDetail;

/// How a quarantine is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It will not be admitted, and that is well.
    Dismissed,
    /// What was kept of it goes through the door again, and must pass.
    Resubmitted,
}

impl How {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "dismissed" => Some(Self::Dismissed),
            "resubmitted" => Some(Self::Resubmitted),
            _ => None,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Dismissed => "dismissed",
            Self::Resubmitted => "resubmitted",
        }
    }
}

/// Why nothing was let go.
#[derive(Debug)]
pub(crate) enum Held {
    /// There is no such quarantine.
    NotFound,
    /// It cannot be let go so.
    Refused(String),
    /// Our side failed.
    Fault(Fault),
}

impl From<Fault> for Held {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Why a receipt of another door cannot be released, and what to do about it.
pub(crate) fn not_releasable(id: ReceiptId) -> String {
    format!(
        "{id} did not come in at ingestion-gate, the only door with a release; have the producer send the \
         event again, corrected; what was sent is kept: admit receipts get {id} --body"
    )
}

impl Ingest {
    /// The quarantine with this id, in this run where several have it; or that of the delivery which left
    /// this receipt.
    pub(crate) async fn quarantined(&self, id: &str, run: Option<&str>) -> Result<StoredDocument, Held> {
        if let Ok(id) = id.parse::<ReceiptId>() {
            return self.quarantine_of(id).await;
        }
        let named = self.ledger.named(id.to_owned()).await?;
        let mut found = named.into_iter().filter(|filed| {
            filed.document.kind == DocumentKind::Quarantine
                && run.is_none_or(|run| filed.document.run.as_deref().unwrap_or_default() == run)
        });
        let first = found.next().ok_or(Held::NotFound)?;
        if found.next().is_some() {
            return Err(Held::Refused("several runs have this id; say which run".to_owned()));
        }
        Ok(first)
    }

    /// The newest quarantine of the delivery that left this receipt.
    async fn quarantine_of(&self, id: ReceiptId) -> Result<StoredDocument, Held> {
        let receipt = match id.ledger == self.reader.tag() {
            true => self.reader.receipt(id.seq).await?.ok_or(Held::NotFound)?,
            false => return Err(Held::NotFound),
        };
        let detail = IngestDetail::read(&*self.reader, &*self.ledger, &receipt).await?;
        match detail {
            Some(detail) => detail.quarantine().cloned().ok_or_else(|| {
                Held::Refused(format!(
                    "{id} is not in quarantine, its verdict is {}",
                    receipt.verdict
                ))
            }),
            None => Err(Held::Refused(not_releasable(id))),
        }
    }

    /// Lets a quarantine go. The answer is what the door said, where it was asked again.
    pub(crate) async fn release(
        self: &Arc<Self>,
        id: &str,
        run: Option<&str>,
        how: How,
        by: Attribution,
    ) -> Result<(StoredDocument, Vec<StoredDocument>), Held> {
        let filed = self.quarantined(id, run).await?;
        if filed.superseded_by.is_some() || filed.released.is_some() {
            return Err(Held::Refused("it is not open any more".to_owned()));
        }
        let reason = filed.document.reason.as_deref().unwrap_or_default();
        if self.issue.is_released_by_settlement(reason) {
            let message = format!("{reason} is resolved with admit reconcile");
            return Err(Held::Refused(message));
        }
        let said = match how {
            How::Dismissed => Vec::new(),
            How::Resubmitted => self.resubmit(&filed).await?,
        };
        let run = filed.document.run.clone().unwrap_or_default();
        let id = filed.document.id.clone();
        let now = self.clock.now();
        if !self.ledger.release(run, id, how.as_str(), by, now).await? {
            return Err(Held::Refused("somebody else has let it go in this moment".to_owned()));
        }
        Ok((filed, said))
    }

    /// Sends what was kept through the door again, in the name of whoever sent it.
    async fn resubmit(self: &Arc<Self>, filed: &StoredDocument) -> Result<Vec<StoredDocument>, Held> {
        let receipt = self.reader.receipt(filed.seq).await?.ok_or(Held::NotFound)?;
        let gone = || Held::Refused("its body is no longer kept; send the event again".to_owned());
        let mut body = self.reader.body(filed.seq).await?;
        if body.is_none()
            && let Some(first) = receipt.first
        {
            body = self.reader.body(first.seq).await?;
        }
        let submission = Submission {
            principal: receipt.principal,
            received_at: self.clock.now(),
            body: body.ok_or_else(gone)?,
            headers: Vec::new(),
            nonce: [0; 16],
        };
        let entry = self.contract.vet(&Self::door(), submission);
        let said = answer::admit(self, vec![entry]).await.pop();
        let (_, said, _) = said.ok_or(Held::NotFound)??;
        let is_in = |filed: &StoredDocument| {
            let decision = &*filed.document.decision;
            decision == ReceiptDecision::Admit.as_str() || decision == ReceiptDecision::Duplicate.as_str()
        };
        if said.iter().any(is_in) {
            return Ok(said);
        }
        let reasons: Vec<_> = said.iter().filter_map(|filed| filed.document.reason.clone()).collect();
        let reason = reasons.first().map_or("it was not admitted", |reason| reason);
        Err(Held::Refused(format!("it did not pass again: {reason}")))
    }
}
