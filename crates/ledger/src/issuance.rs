//! Port of issued documents: a contract's documents are decided and stored in the commits themselves.
//!
//! A door whose contract [issues](admit_core::Issue) documents records through
//! [`Issuance::record_issuing`] instead of [`record`](crate::Admissions::record). The verdicts are the
//! same; the commit also holds the documents, the counters of the run and the check that the run accepts
//! events. Effects are settled in batches by [`Issuance::settle`], which stores the documents of the outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use admit_core::effect::{Attribution, Effect, EffectState, IllegalStep, Step};
use admit_core::json::Object;
use admit_core::{
    DocumentKind, Entry, Fault, Issue, Millis, RecordedEntry, RunState, Seq, StoredDocument,
};

use crate::port::BoxFuture;

/// Receives effects to be performed, right after their commit and in ledger order.
pub trait Handover: Send + Sync {
    /// Called by the writer once the commit is durable, before any reply is sent. Must not block.
    fn recorded(&self, kept: &RecordedDelivery);
}

/// The contract's document factory and the receiver of its effects.
#[derive(Clone)]
pub struct IssueHandlers {
    /// Makes the documents.
    pub issue: Arc<dyn Issue>,
    /// Receives the effects to perform.
    pub handover: Arc<dyn Handover>,
}

impl fmt::Debug for IssueHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuing").field("issue", &self.issue).finish_non_exhaustive()
    }
}

/// Result of recording a delivery at a door that issues documents.
#[derive(Clone, Debug)]
pub struct RecordedDelivery {
    /// The delivery and its verdict.
    pub recorded: RecordedEntry,
    /// Its documents, from this commit or an earlier one.
    pub filed: Vec<StoredDocument>,
    /// What the caller has to do next.
    pub follow_up: FollowUp,
}

/// What follows the record commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FollowUp {
    /// Nothing; the delivery is complete.
    Done,
    /// This process performs the effect, which is in flight under its epoch as of this commit.
    Perform {
        /// The admission whose effect it is.
        seq: Seq,
        /// Attempt number.
        attempt: u32,
    },
    /// Copy of an event whose effect is in flight.
    InFlight {
        /// The admission.
        seq: Seq,
    },
    /// The run is closed; the delivery was stored as refused.
    RunClosed,
    /// The run is closing; the delivery was stored as refused and may be accepted if the run reopens.
    RunClosing,
}

/// One effect to advance.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The admission.
    pub seq: Seq,
    /// The step.
    pub step: Step,
    /// Facts of the admission; read from the ledger if `None`.
    pub facts: Option<Object<'static>>,
}

/// An advanced effect with its documents.
#[derive(Clone, Debug)]
pub struct SettledEffect {
    /// The effect after the step.
    pub effect: Effect,
    /// Documents issued for it.
    pub filed: Vec<StoredDocument>,
}

/// Result of a copy that waited for the effect of the first event.
#[derive(Clone, Debug)]
pub struct SettledCopy {
    /// State of the first event's effect.
    pub state: EffectState,
    /// Documents issued for the copy; empty if the first was released meanwhile.
    pub filed: Vec<StoredDocument>,
}

/// Progress of writing document files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileNote {
    /// Every file issued by this process up to this number is on stable storage.
    SyncedTo(u64),
    /// The files between two numbers are on stable storage, whichever process issued them: files left
    /// unwritten by dead processes have been restored.
    Restored {
        /// After this number.
        after: u64,
        /// Up to and including this one.
        to: u64,
    },
    /// Writing these failed.
    Unwritten(Vec<u64>),
    /// These have been written after all.
    Written(Vec<u64>),
}

/// Which documents to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentFilter {
    /// Only of this kind.
    pub kind: Option<DocumentKind>,
    /// Only of this run; the empty name selects documents without a run.
    pub run: Option<String>,
    /// Only with this decision.
    pub decision: Option<String>,
    /// Only those neither void nor released.
    pub is_open: bool,
    /// Only after this number.
    pub after: u64,
    /// Maximum number of rows.
    pub rows_max: usize,
}

/// A run with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// Whether it accepts events.
    pub state: RunState,
    /// When it was first named.
    pub opened_at: Millis,
    /// When it last changed.
    pub changed_at: Millis,
    /// Its counters.
    pub counts: RunCounts,
}

/// The counters of a run. They move in the commits that they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// All deliveries, copies included.
    pub deliveries: i64,
    /// Effects in flight.
    pub in_flight: i64,
    /// Effects with an unknown outcome.
    pub ambiguous: i64,
    /// Receipts ADMIT.
    pub admit: i64,
    /// Receipts DUPLICATE: one per event, regardless of the number of copies.
    pub duplicate: i64,
    /// Receipts QUARANTINE.
    pub quarantine: i64,
    /// Quarantines that became void because their event was admitted.
    pub superseded: i64,
    /// Quarantines released by an operator.
    pub released: i64,
}

/// Reads documents and runs. Never blocks the writer.
pub trait DocumentReader: Send + Sync {
    /// Lists documents in insertion order.
    fn filed(&self, filter: DocumentFilter) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>>;

    /// Returns every document with this id, of any run, in insertion order.
    fn named(&self, id: String) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>>;

    /// Returns every document of one admission.
    fn filed_of(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>>;

    /// Returns documents whose files could not be written, after a number.
    fn unwritten(
        &self,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>>;

    /// Returns the number up to which every file is on stable storage, and the newest number.
    fn synced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>>;

    /// Returns the number after which dead processes may have left files unwritten, and the newest
    /// number.
    fn left_unsynced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        self.synced()
    }

    /// Number of acknowledged messages per bus topic, as proven by settled effects on a bus that counts
    /// its messages from 0.
    fn bus_ends(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, Fault>> {
        Box::pin(async { Ok(BTreeMap::new()) })
    }

    /// Returns one run.
    fn run(&self, id: String) -> BoxFuture<'_, Result<Option<Run>, Fault>>;

    /// Lists runs by name.
    fn runs(&self, after: String, rows_max: usize) -> BoxFuture<'_, Result<Vec<Run>, Fault>>;
}

/// Records and settles with documents.
pub trait Issuance: DocumentReader {
    /// Records a batch of a door that issues documents. The guarantees of
    /// [`record`](crate::Admissions::record) apply.
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<Result<RecordedDelivery, Fault>>>;

    /// Advances many effects in one commit; returns one result each, in order.
    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<SettledEffect, IllegalStep>>, Fault>>;

    /// Issues the documents of a copy that waited, from the current state of the first event's effect.
    fn settle_copy(
        &self,
        copy: RecordedEntry,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<SettledCopy, Fault>>;

    /// Before the doors open: what earlier processes had in flight at `door` becomes ambiguous, in one
    /// commit with its documents and the counters of its run.
    fn recover_issuing(
        &self,
        door: admit_core::Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Effect>, Fault>>;

    /// Releases a quarantine, receipt and record together, on behalf of a named operator. Returns `false`
    /// if the run has no open quarantine with this id.
    fn release(
        &self,
        run: String,
        id: String,
        how: &'static str,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Returns the numbers of documents issued by this process after a number. This process writes
    /// their files.
    fn issued_here(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<u64>, Fault>>;

    /// Records progress on files.
    fn note_files(&self, note: FileNote) -> BoxFuture<'_, Result<(), Fault>>;

    /// Changes whether a run accepts events. Returns `false` if it is not in the state `from`.
    fn turn_run(
        &self,
        id: String,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;
}
