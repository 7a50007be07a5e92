//! Ingestion-gate detail of a receipt: effect state, decision, bus reference and documents.

use admit_contracts::ingestion_gate::lookup::{self, DocumentName};
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_contracts::ingestion_gate::{self, ReceiptDecision};
use admit_core::effect::EffectState;
use admit_core::json::{self, Object, Value};
use admit_core::{DocumentKind, Fault, Receipt, StoredDocument};
use admit_ledger::{DocumentReader, EffectReader};

/// Detail of one receipt of the ingestion gate.
#[derive(Clone, Debug)]
pub struct IngestDetail {
    /// State of the effect of the admission, for an admission and its copies.
    state: Option<EffectState>,
    /// Documents about the delivery, in order of issue.
    documents: Vec<StoredDocument>,
}

impl IngestDetail {
    /// The detail of `receipt`; `None` at other doors.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn read(
        effects: &dyn EffectReader,
        issued: &dyn DocumentReader,
        receipt: &Receipt,
    ) -> Result<Option<Self>, Fault> {
        if receipt.door.as_str() != ingestion_gate::DOOR {
            return Ok(None);
        }
        let state = match (receipt.verdict, receipt.first) {
            ("fresh", _) => effects.effect(receipt.id.seq).await?,
            ("duplicate", Some(first)) => effects.effect(first.seq).await?,
            _ => None,
        };
        let state = state.map(|effect| effect.state);
        let mut documents = documents_of(issued, receipt).await?;
        documents.retain(|filed| filed.document.kind != DocumentKind::Governance);
        Ok(Some(Self { state, documents }))
    }

    /// The document that states the decision: the newest receipt, or the quarantine record of a delivery
    /// that no run holds.
    pub fn document(&self) -> Option<&StoredDocument> {
        self.newest(DocumentKind::Receipt).or_else(|| self.newest(DocumentKind::Quarantine))
    }

    /// The newest quarantine record.
    pub fn quarantine(&self) -> Option<&StoredDocument> {
        self.newest(DocumentKind::Quarantine)
    }

    fn newest(&self, kind: DocumentKind) -> Option<&StoredDocument> {
        self.documents.iter().rfind(|filed| filed.document.kind == kind)
    }

    /// Adds the detail to the JSON of a receipt.
    pub fn add_to(&self, object: &mut Object<'_>) {
        let eb_ref =
            self.state.as_ref().and_then(EffectState::evidence).and_then(CommitEvidence::read);
        let document = self.document();
        let decision = document.map(|filed| filed.document.decision.to_string());
        object.push("state", self.state.as_ref().map(ingestion_gate::state));
        object.push("decision", decision);
        object.push("eb_ref", eb_ref.map(|committed| committed.eb_ref.to_object()));
        object.push("document", document.map(summary));
        object.push("quarantine", self.quarantine().map(summary));
    }
}

/// Explains why a receipt has no document.
pub fn missing(receipt: &Receipt) -> String {
    let door = receipt.door.as_str();
    match door {
        ingestion_gate::DOOR => "no document has been issued for this delivery yet".to_owned(),
        _ => format!("door {door} issues no documents; only the receipt is stored"),
    }
}

/// JSON of a document without its text.
fn summary(filed: &StoredDocument) -> Object<'static> {
    let state = match (&filed.released, filed.superseded_by) {
        (Some(released), _) => Some(released.how.clone()),
        (None, Some(_)) => Some("superseded".to_owned()),
        (None, None) => {
            (filed.document.kind == DocumentKind::Quarantine).then(|| "open".to_owned())
        }
    };
    let reason = filed.document.reason.as_ref().map(ToString::to_string);
    Object::from_iter([
        ("kind", Value::from(filed.document.kind.as_str())),
        ("id", filed.document.id.clone().into()),
        ("platform_run_id", filed.document.run.clone().into()),
        ("reason", reason.into()),
        ("ref", filed.document.path.clone().into()),
        ("stands", state.into()),
    ])
}

/// Reads all documents about the delivery of `receipt`.
async fn documents_of(
    issued: &dyn DocumentReader,
    receipt: &Receipt,
) -> Result<Vec<StoredDocument>, Fault> {
    let seq = receipt.id.seq;
    match (receipt.verdict, receipt.first) {
        ("fresh" | "revision", _) => {
            // Documents about its duplicates and conflicts reference it too.
            let mut filed = issued.filed_of(seq).await?;
            filed.retain(|filed| filed.seq == seq);
            Ok(filed)
        }
        ("duplicate", Some(first)) => {
            let of_first = issued.filed_of(first.seq).await?;
            let is_own = |filed: &StoredDocument| {
                // Duplicates of an event share one receipt.
                filed.seq == seq || *filed.document.decision == *ReceiptDecision::Duplicate.as_str()
            };
            let own: Vec<StoredDocument> = of_first.into_iter().filter(is_own).collect();
            if own.is_empty() { quarantine_documents(issued, receipt).await } else { Ok(own) }
        }
        _ => quarantine_documents(issued, receipt).await,
    }
}

/// Reads the documents about a refused or conflicting delivery. One document may cover several such
/// deliveries.
async fn quarantine_documents(
    issued: &dyn DocumentReader,
    receipt: &Receipt,
) -> Result<Vec<StoredDocument>, Fault> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let Ok(Value::Object(facts)) = json::parse(&receipt.facts, &limits) else {
        return Ok(Vec::new());
    };
    let name =
        lookup::quarantine_document_name(&facts, receipt.reason.as_ref().map(|(code, _)| *code));
    let mut found = Vec::new();
    let DocumentName { ids, .. } = &name;
    for id in ids {
        let documents = issued.named(id.clone()).await?;
        found.extend(documents.into_iter().filter(|filed| name.is_of(filed)));
    }
    found.sort_unstable_by_key(|filed| filed.n);
    Ok(found)
}
