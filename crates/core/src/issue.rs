//! Documents that a contract issues inside the record commit.
//!
//! Some contracts hand out documents: a receipt, a quarantine record, a governance line. The
//! contract renders them in a pure function while the commit is being written; the text is stored
//! in that commit and the file that people read is a copy. So no file can contradict the ledger,
//! and every file can be restored.

use std::borrow::Cow;
use std::fmt;

use crate::Code;
use crate::effect::{Attribution, EffectState, Evidence};
use crate::json::Object;
use crate::receipt::Seq;
use crate::time::Millis;

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DocumentKind {
    /// Outcome of a delivery.
    Receipt,
    /// Delivery that was not admitted.
    Quarantine,
    /// Governance line, and the marker that prevents a second copy of it.
    Governance,
}

impl DocumentKind {
    /// Name in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receipt => "receipt",
            Self::Quarantine => "quarantine",
            Self::Governance => "governance",
        }
    }

    /// Parses the name used in the ledger.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Receipt, Self::Quarantine, Self::Governance]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// Document to be stored and written as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Kind of the document.
    pub kind: DocumentKind,
    /// Run named by the event; `None` if the event names no run or may not be part of one.
    pub run: Option<String>,
    /// Document id, unique per kind and run.
    pub id: String,
    /// Content identity. A document with the same id and identity is stored once.
    pub identity: String,
    /// Decision, as the contract spells it.
    pub decision: Cow<'static, str>,
    /// Reason, as the contract spells it.
    pub reason: Option<Cow<'static, str>>,
    /// Event id of the contract.
    pub event_id: Option<String>,
    /// Event type of the contract.
    pub event_type: Option<String>,
    /// Path of the file below the artifacts root.
    pub path: String,
    /// JSON text without a trailing newline.
    pub text: String,
}

/// Release of a quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRelease {
    /// `dismissed`, `resubmitted` or `reconciled`.
    pub how: String,
    /// Principal and reason.
    pub by: Attribution,
    /// Time of the release.
    pub at: Millis,
}

/// Document with its position and state in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDocument {
    /// Document number, ascending in storage order.
    pub n: u64,
    /// Ledger position of the delivery.
    pub seq: Seq,
    /// Ledger position of the admission, if there is one.
    pub of: Option<Seq>,
    /// Time of issue.
    pub at: Millis,
    /// Document itself.
    pub document: Document,
    /// Number of the document that superseded it, once the event was admitted.
    pub superseded_by: Option<u64>,
    /// Release, if the quarantine was resolved by an operator.
    pub released: Option<DocumentRelease>,
}

/// First admission under the key of a duplicate or conflicting delivery.
#[derive(Clone, Copy, Debug)]
pub struct FirstAdmission<'a> {
    /// Ledger position.
    pub seq: Seq,
    /// Facts stored by the contract.
    pub facts: &'a Object<'a>,
    /// State of its effect.
    pub state: &'a EffectState,
    /// Path of its receipt, once issued.
    pub receipt: Option<&'a str>,
}

/// Reason for issuing documents.
#[derive(Clone, Copy, Debug)]
pub enum IssueReason<'a> {
    /// The submission was refused.
    Refused {
        /// Reason code.
        code: Code,
        /// Reason text.
        message: &'a str,
    },
    /// Known key, different content.
    Conflict {
        /// First admission under the key.
        first: FirstAdmission<'a>,
    },
    /// Known key, same content.
    Copy {
        /// First admission under the key.
        first: FirstAdmission<'a>,
    },
    /// The run is closed; the delivery is stored outside of it.
    RunClosed,
    /// The run is closing; the delivery is stored outside of it.
    RunClosing,
    /// The effect was settled, by its performer or by an operator.
    Settled {
        /// New state of the effect.
        state: &'a EffectState,
        /// Operator who reconciled it.
        by: Option<&'a Attribution>,
    },
}

/// Input for rendering documents.
#[derive(Clone, Copy)]
pub struct IssueContext<'a> {
    /// Reason for issuing.
    pub reason: IssueReason<'a>,
    /// Ledger position of the delivery, or of the admission whose effect was settled.
    pub seq: Seq,
    /// Time of the release.
    pub at: Millis,
    /// Facts of the delivery, or of the admission.
    pub facts: &'a Object<'a>,
    /// Document ids in use.
    pub ids: &'a dyn IdRegistry,
}

impl fmt::Debug for IssueContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssueContext")
            .field("reason", &self.reason)
            .field("seq", &self.seq)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Lookup of document ids in use.
pub trait IdRegistry {
    /// Returns whether a document with another identity already uses this id for the kind and run.
    fn is_used_by_other(
        &self,
        kind: DocumentKind,
        run: Option<&str>,
        id: &str,
        identity: &str,
    ) -> bool;
}

/// Contract that issues documents.
pub trait Issue: Send + Sync + fmt::Debug {
    /// Run of a delivery with these facts.
    fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str>;

    /// Bus topic and message count that `evidence` proves to be acknowledged, for a bus that
    /// numbers messages from 0.
    fn acknowledged(&self, _evidence: &Evidence) -> Option<(String, u64)> {
        None
    }

    /// Renders the documents for a delivery or settlement; empty if nothing is due yet. Pure,
    /// called inside the commit. Documents that already exist are not stored again.
    fn issue(&self, context: &IssueContext<'_>) -> Vec<Document>;

    /// Whether documents with this reason are transient: issued while the effect was in progress,
    /// superseded once the event is admitted.
    fn is_transient(&self, reason: &str) -> bool;

    /// Whether documents with this reason are released when the effect is settled, because they
    /// report nothing but its open state.
    fn is_released_by_settlement(&self, reason: &str) -> bool;
}

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Accepts events.
    Open,
    /// Closing: new events are refused, duplicates are recognised.
    Closing,
    /// Closed for good.
    Closed,
}

impl RunState {
    /// Name in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closing => "closing",
            Self::Closed => "closed",
        }
    }

    /// Parses the name used in the ledger.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Open, Self::Closing, Self::Closed].into_iter().find(|state| state.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for kind in [DocumentKind::Receipt, DocumentKind::Quarantine, DocumentKind::Governance] {
            assert_eq!(DocumentKind::parse(kind.as_str()), Some(kind));
        }
        for state in [RunState::Open, RunState::Closing, RunState::Closed] {
            assert_eq!(RunState::parse(state.as_str()), Some(state));
        }
        assert_eq!((DocumentKind::parse("x"), RunState::parse("x")), (None, None));
    }
}
