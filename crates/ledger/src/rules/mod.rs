//! Rules for effects, documents and runs inside a transaction, shared by all ledgers.
//!
//! A ledger provides an [`EffectStore`], the rows that the rules read and write. A store shows what its
//! own transaction has written before.

mod closing;
mod documents;
mod recording;
mod runs;
pub(crate) mod scenario;
mod settling;
mod steps;

use std::collections::BTreeMap;

use admit_core::effect::{Attribution, Effect, EffectState, Evidence, StoredReply};
use admit_core::{
    Document, DocumentKind, IdRegistry, Issue, Millis, RunState, Seq, StoredDocument,
};
use bytes::Bytes;

pub(crate) use closing::{begin_closing, end_closing, reopen_lost};
pub(crate) use documents::release_documents;
pub(crate) use recording::{
    IssueResult, RecordingBatch, record, record_event, refused_while_closing,
};
pub(crate) use runs::RunDeltas;
pub(crate) use settling::{recover_door, settle, settle_copy};
pub(crate) use steps::{advance, begin_effect, recover};

/// Prefix of the stored acknowledged end of each bus topic.
pub(crate) const BUS_END: &str = "bus_end:";

/// Name of the stored acknowledged end of a bus topic.
pub(crate) fn bus_end_name(topic: &str) -> String {
    format!("{BUS_END}{topic}")
}

/// Stored values that a transaction raises or increments.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Minimum for each.
    raised: BTreeMap<String, u64>,
    /// Increment of each.
    added: BTreeMap<String, u64>,
}

impl Counters {
    fn raise(&mut self, name: String, to: u64) {
        let value = self.raised.entry(name).or_default();
        *value = to.max(*value);
    }

    fn add(&mut self, name: &str, more: u64) {
        *self.added.entry(name.to_owned()).or_default() += more;
    }

    pub(crate) fn raised(&self) -> impl Iterator<Item = (&str, u64)> {
        self.raised.iter().map(|(name, value)| (name.as_str(), *value))
    }

    pub(crate) fn added(&self) -> impl Iterator<Item = (&str, u64)> {
        self.added.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

/// Storage of effects, documents and runs inside a transaction.
pub(crate) trait EffectStore: IdRegistry {
    /// Database error; the transaction is lost.
    type Error;

    /// The epoch of the gate that writes.
    fn epoch(&self) -> u64;

    /// Whether `epoch` is one of this process.
    fn is_own(&self, epoch: u64) -> bool {
        epoch == self.epoch()
    }

    /// Returns the effect of an admission.
    fn effect(&mut self, seq: Seq) -> Result<Option<Effect>, Self::Error>;

    /// Inserts an effect.
    fn put_effect(&mut self, effect: Effect, at: Millis) -> Result<(), Self::Error>;

    /// Updates the state of an effect. `reply` is stored unless there is a reply already.
    fn set_effect_state(
        &mut self,
        seq: Seq,
        state: &EffectState,
        reply: Option<&StoredReply>,
        at: Millis,
    ) -> Result<(), Self::Error>;

    /// Appends a line to the history of an effect.
    fn add_history_line(&mut self, seq: Seq, line: &HistoryLine<'_>) -> Result<(), Self::Error>;

    /// Returns the facts of an admission, as stored.
    fn facts(&mut self, seq: Seq) -> Result<Option<Bytes>, Self::Error>;

    /// Returns the document with this id.
    fn document(
        &mut self,
        kind: DocumentKind,
        run: &str,
        id: &str,
    ) -> Result<Option<StoredDocument>, Self::Error>;

    /// Inserts a document and numbers it.
    fn put_document(
        &mut self,
        document: Document,
        about: DocumentSubject,
    ) -> Result<StoredDocument, Self::Error>;

    /// Returns the quarantines of an admission that are neither void nor released.
    fn open_of(&mut self, seq: Seq) -> Result<Vec<OpenQuarantine>, Self::Error>;

    /// Returns the path of the receipt of an admission: the one about the admission itself, without a
    /// reason.
    fn receipt_of(&mut self, seq: Seq) -> Result<Option<String>, Self::Error>;

    /// Reverts a release.
    fn reopen(&mut self, n: u64) -> Result<(), Self::Error>;

    /// Voids a document, because the document `by` admitted the event.
    fn supersede(&mut self, n: u64, by: u64) -> Result<(), Self::Error>;

    /// Releases a document. Returns `false` if it was released before.
    fn release(
        &mut self,
        n: u64,
        how: &str,
        by: &Attribution,
        at: Millis,
    ) -> Result<bool, Self::Error>;

    /// Returns the state of a run; `None` if it is unknown.
    fn run_state(&mut self, run: &str) -> Result<Option<RunState>, Self::Error>;

    /// Changes to the counters of runs.
    fn runs(&mut self) -> &mut RunDeltas;

    /// Stored values that the transaction advances.
    fn counters(&mut self) -> &mut Counters;
}

/// One line of an effect's history, not yet numbered.
pub(crate) struct HistoryLine<'a> {
    pub(crate) at: Millis,
    pub(crate) attempt: u32,
    pub(crate) what: &'static str,
    pub(crate) by: Option<&'a Attribution>,
    pub(crate) evidence: Option<&'a Evidence>,
}

/// An effect after a step, and its state before.
pub(crate) struct AdvancedEffect {
    pub(crate) before: &'static str,
    pub(crate) effect: Effect,
}

/// What a document is about.
#[derive(Clone, Copy)]
pub(crate) struct DocumentSubject {
    pub(crate) seq: Seq,
    pub(crate) of: Option<Seq>,
    pub(crate) at: Millis,
    /// Reopen an existing document that was released.
    pub(crate) reopens: bool,
}

/// An open quarantine, as needed to close it.
pub(crate) struct OpenQuarantine {
    pub(crate) n: u64,
    pub(crate) run: String,
    pub(crate) kind: DocumentKind,
    pub(crate) reason: Option<String>,
}

impl OpenQuarantine {
    /// Whether its only reason is that the effect of the event is not settled.
    fn is_released_by_settlement(&self, issue: &dyn Issue) -> bool {
        self.reason.as_deref().is_some_and(|reason| issue.is_released_by_settlement(reason))
    }
}

/// Evidence as stored.
pub(crate) fn evidence_text(evidence: &Evidence) -> String {
    String::from_utf8_lossy(evidence.as_bytes()).into_owned()
}
