//! Release of quarantines by an operator: dismissed with a reason, or resubmitted.

use std::sync::Arc;

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_core::effect::Attribution;
use admit_core::{DocumentKind, Fault, ReceiptId, StoredDocument, Submission};

use super::{Ingest, delivery_reply};
use crate::receipt_detail::IngestDetail;

/// Way of releasing a quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseMode {
    /// The event is not admitted.
    Dismissed,
    /// The stored event is submitted again, and must be admitted.
    Resubmitted,
}

impl ReleaseMode {
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

/// Reason why a quarantine was not released.
#[derive(Debug)]
pub(crate) enum ReleaseError {
    /// Unknown quarantine.
    NotFound,
    /// The quarantine cannot be released in this way.
    Refused(String),
    /// The gate failed.
    Fault(Fault),
}

impl From<Fault> for ReleaseError {
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
    /// Finds the quarantine with this id (in `run`, if several runs have it), or that of the delivery with
    /// this receipt id.
    pub(crate) async fn find_quarantine(
        &self,
        id: &str,
        run: Option<&str>,
    ) -> Result<StoredDocument, ReleaseError> {
        if let Ok(id) = id.parse::<ReceiptId>() {
            return self.quarantine_of(id).await;
        }
        let documents = self.ledger.named(id.to_owned()).await?;
        let mut quarantines = documents.into_iter().filter(|filed| {
            filed.document.kind == DocumentKind::Quarantine
                && run.is_none_or(|run| filed.document.run.as_deref().unwrap_or_default() == run)
        });
        let first = quarantines.next().ok_or(ReleaseError::NotFound)?;
        if quarantines.next().is_some() {
            return Err(ReleaseError::Refused(
                "several runs have this id; specify the run".to_owned(),
            ));
        }
        Ok(first)
    }

    /// Finds the newest quarantine of the delivery with this receipt id.
    async fn quarantine_of(&self, id: ReceiptId) -> Result<StoredDocument, ReleaseError> {
        let receipt = match id.ledger == self.reader.tag() {
            true => self.reader.receipt(id.seq).await?.ok_or(ReleaseError::NotFound)?,
            false => return Err(ReleaseError::NotFound),
        };
        let detail = IngestDetail::read(&*self.reader, &*self.ledger, &receipt).await?;
        match detail {
            Some(detail) => detail.quarantine().cloned().ok_or_else(|| {
                ReleaseError::Refused(format!(
                    "{id} is not in quarantine, its verdict is {}",
                    receipt.verdict
                ))
            }),
            None => Err(ReleaseError::Refused(not_releasable(id))),
        }
    }

    /// Releases a quarantine. Returns it, with the documents of the resubmission.
    pub(crate) async fn release(
        self: &Arc<Self>,
        id: &str,
        run: Option<&str>,
        mode: ReleaseMode,
        by: Attribution,
    ) -> Result<(StoredDocument, Vec<StoredDocument>), ReleaseError> {
        let filed = self.find_quarantine(id, run).await?;
        if filed.superseded_by.is_some() || filed.released.is_some() {
            return Err(ReleaseError::Refused("the quarantine is not open any more".to_owned()));
        }
        let reason = filed.document.reason.as_deref().unwrap_or_default();
        if self.issue.is_released_by_settlement(reason) {
            let message = format!("{reason} is resolved with admit reconcile");
            return Err(ReleaseError::Refused(message));
        }
        let resubmitted = match mode {
            ReleaseMode::Dismissed => Vec::new(),
            ReleaseMode::Resubmitted => self.resubmit(&filed).await?,
        };
        let run = filed.document.run.clone().unwrap_or_default();
        let id = filed.document.id.clone();
        let now = self.clock.now();
        if !self.ledger.release(run, id, mode.as_str(), by, now).await? {
            return Err(ReleaseError::Refused(
                "the quarantine was released concurrently".to_owned(),
            ));
        }
        Ok((filed, resubmitted))
    }

    /// Submits the stored event again, in the name of its principal.
    async fn resubmit(
        self: &Arc<Self>,
        filed: &StoredDocument,
    ) -> Result<Vec<StoredDocument>, ReleaseError> {
        let receipt = self.reader.receipt(filed.seq).await?.ok_or(ReleaseError::NotFound)?;
        let gone = || {
            ReleaseError::Refused("the body is no longer stored; send the event again".to_owned())
        };
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
        let delivery = delivery_reply::admit(self, vec![entry]).await.pop();
        let (_, documents, _) = delivery.ok_or(ReleaseError::NotFound)??;
        let is_admitted = |filed: &StoredDocument| {
            let decision = &*filed.document.decision;
            decision == ReceiptDecision::Admit.as_str()
                || decision == ReceiptDecision::Duplicate.as_str()
        };
        if documents.iter().any(is_admitted) {
            return Ok(documents);
        }
        let reasons: Vec<_> =
            documents.iter().filter_map(|filed| filed.document.reason.clone()).collect();
        let reason = reasons.first().map_or("not admitted", |reason| reason);
        Err(ReleaseError::Refused(format!("the resubmission was not admitted: {reason}")))
    }
}
