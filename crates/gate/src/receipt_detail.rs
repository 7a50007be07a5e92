//! What the ingestion gate knows of a receipt beyond its verdict: state, decision, place on the bus, documents.

use admit_contracts::ingestion_gate::lookup::{self, DocumentName};
use admit_contracts::ingestion_gate::receipt::Committed;
use admit_contracts::ingestion_gate::{self, Decision};
use admit_core::effect::Standing;
use admit_core::json::{self, Object, Value};
use admit_core::{Fault, Filed, IssuedKind, Receipt};
use admit_ledger::{EffectReader, IssuedReader};

/// Detail of one receipt of the ingestion gate.
#[derive(Clone, Debug)]
pub struct IngestDetail {
    /// State of the effect of the admission, for an admission and its copies.
    standing: Option<Standing>,
    /// Documents about the delivery, in the order they were kept.
    documents: Vec<Filed>,
}

impl IngestDetail {
    /// The detail of `receipt`; `None` at other doors.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn read(
        effects: &dyn EffectReader,
        issued: &dyn IssuedReader,
        receipt: &Receipt,
    ) -> Result<Option<Self>, Fault> {
        if receipt.door.as_str() != ingestion_gate::DOOR {
            return Ok(None);
        }
        let standing = match (receipt.verdict, receipt.first) {
            ("fresh", _) => effects.effect(receipt.id.seq).await?,
            ("duplicate", Some(first)) => effects.effect(first.seq).await?,
            _ => None,
        };
        let standing = standing.map(|effect| effect.standing);
        let mut documents = documents_of(issued, receipt).await?;
        documents.retain(|filed| filed.issued.kind != IssuedKind::Governance);
        Ok(Some(Self { standing, documents }))
    }

    /// The document that states the decision: the newest receipt, or the quarantine record of a delivery
    /// that no run holds.
    pub fn document(&self) -> Option<&Filed> {
        self.newest(IssuedKind::Receipt).or_else(|| self.newest(IssuedKind::Quarantine))
    }

    /// The newest quarantine record.
    pub fn quarantine(&self) -> Option<&Filed> {
        self.newest(IssuedKind::Quarantine)
    }

    fn newest(&self, kind: IssuedKind) -> Option<&Filed> {
        self.documents.iter().rfind(|filed| filed.issued.kind == kind)
    }

    /// Adds the detail to a receipt as routes and commands show it.
    pub fn add_to(&self, object: &mut Object<'_>) {
        let eb_ref = self.standing.as_ref().and_then(Standing::evidence).and_then(Committed::read);
        let document = self.document();
        let decision = document.map(|filed| filed.issued.decision.to_string());
        object.push("state", self.standing.as_ref().map(ingestion_gate::state));
        object.push("decision", decision);
        object.push("eb_ref", eb_ref.map(|committed| committed.eb_ref.to_object()));
        object.push("document", document.map(shown));
        object.push("quarantine", self.quarantine().map(shown));
    }
}

/// Why there is no document for a receipt.
pub fn missing(receipt: &Receipt) -> String {
    let door = receipt.door.as_str();
    match door {
        ingestion_gate::DOOR => "no document is issued about this delivery yet".to_owned(),
        _ => format!("door {door} issues no documents; the receipt itself is all that is kept"),
    }
}

/// A document without its text.
fn shown(filed: &Filed) -> Object<'static> {
    let stands = match (&filed.released, filed.superseded_by) {
        (Some(released), _) => Some(released.how.clone()),
        (None, Some(_)) => Some("superseded".to_owned()),
        (None, None) => (filed.issued.kind == IssuedKind::Quarantine).then(|| "open".to_owned()),
    };
    let reason = filed.issued.reason.as_ref().map(ToString::to_string);
    Object::from_iter([
        ("kind", Value::from(filed.issued.kind.as_str())),
        ("id", filed.issued.id.clone().into()),
        ("platform_run_id", filed.issued.run.clone().into()),
        ("reason", reason.into()),
        ("ref", filed.issued.path.clone().into()),
        ("stands", stands.into()),
    ])
}

/// Every document about the delivery that left `receipt`.
async fn documents_of(issued: &dyn IssuedReader, receipt: &Receipt) -> Result<Vec<Filed>, Fault> {
    let seq = receipt.id.seq;
    match (receipt.verdict, receipt.first) {
        ("fresh" | "revision", _) => {
            // Documents about its copies and about other content under its key name it too.
            let mut filed = issued.filed_of(seq).await?;
            filed.retain(|filed| filed.seq == seq);
            Ok(filed)
        }
        ("duplicate", Some(first)) => {
            let of_first = issued.filed_of(first.seq).await?;
            let is_own = |filed: &Filed| {
                // Copies of one event share one receipt.
                filed.seq == seq || *filed.issued.decision == *Decision::Duplicate.as_str()
            };
            let own: Vec<Filed> = of_first.into_iter().filter(is_own).collect();
            if own.is_empty() { quarantined(issued, receipt).await } else { Ok(own) }
        }
        _ => quarantined(issued, receipt).await,
    }
}

/// The documents about a delivery that was refused or conflicts. The same document may stand for several
/// such deliveries.
async fn quarantined(issued: &dyn IssuedReader, receipt: &Receipt) -> Result<Vec<Filed>, Fault> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let Ok(Value::Object(facts)) = json::parse(&receipt.facts, &limits) else {
        return Ok(Vec::new());
    };
    let name = lookup::quarantined(&facts, receipt.reason.as_ref().map(|(code, _)| *code));
    let mut found = Vec::new();
    let DocumentName { ids, .. } = &name;
    for id in ids {
        let named = issued.named(id.clone()).await?;
        found.extend(named.into_iter().filter(|filed| name.is_of(filed)));
    }
    found.sort_unstable_by_key(|filed| filed.n);
    Ok(found)
}
