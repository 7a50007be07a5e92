//! Port of scenario runs: the run of a key, its leader's lease, and its documents and state.
//!
//! The ledger is the source of truth about a run; every file about it is a copy. This port writes the tables
//! of scenario runs and no others.

use admit_core::{Fault, IllegalScenarioTransition, Millis, ScenarioState};

use crate::port::BoxFuture;
use crate::publications::BusEnd;

/// Stores scenario runs.
pub trait ScenarioRuns: ScenarioRunReader {
    /// Returns the run that a key stands for. The first request opens the run; later requests with the same
    /// intent find it.
    fn open_run(&self, opening: OpenRunRequest) -> BoxFuture<'_, Result<OpenRunResult, Fault>>;

    /// Takes a lease that is free or expired. In a single-process ledger, the start of the process ends the
    /// leases of earlier processes.
    fn take_lease(&self, lease: RunLease) -> BoxFuture<'_, Result<TakeLeaseResult, Fault>>;

    /// Releases a lease held with this token.
    fn release_lease(
        &self,
        name: String,
        token: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<(), Fault>>;

    /// Applies an update of the leader in one commit, all of it or nothing, and renews its lease in the
    /// same commit.
    fn update_run(
        &self,
        update: RunUpdate,
    ) -> BoxFuture<'_, Result<Result<(), RunUpdateError>, Fault>>;

    /// Records that the files of a run show this version of it.
    fn note_shown(&self, run_id: String, version: u64) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Reads scenario runs. Never blocks the writer.
pub trait ScenarioRunReader: Send + Sync {
    /// Returns a run with its documents, events and publications.
    fn scenario_run(&self, run_id: String) -> BoxFuture<'_, Result<Option<ScenarioRun>, Fault>>;

    /// Returns runs that need work: those not in a final state, and those whose files are out of date. By id,
    /// after `after`.
    fn unfinished_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>>;

    /// Runs in a final state, by id, after `after`.
    fn final_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>>;
}

/// Request to open a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRunRequest {
    /// Equivalence key; requests with the same key get the same run.
    pub run_equivalence_key: String,
    /// The run's id.
    pub run_id: String,
    /// Fingerprint of the intent.
    pub intent_fingerprint: String,
    /// The platform run it belongs to.
    pub platform_run_id: String,
    /// The request, as JSON.
    pub request: String,
    /// Time of the request.
    pub at: Millis,
}

/// Result of opening a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenRunResult {
    /// The run is new.
    New,
    /// The run is known, with the same intent.
    Known,
    /// The key stands for a run with another intent; nothing was changed.
    Collision {
        /// The intent of that run.
        intent_fingerprint: String,
    },
}

/// Request for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLease {
    /// What is leased: a run's id, or `reemit:<run>:<kind>`.
    pub name: String,
    /// Runner that requests it.
    pub owner: String,
    /// Token of the lease; never used twice.
    pub token: String,
    /// Current time.
    pub at: Millis,
    /// Lifetime without renewal, in milliseconds.
    pub ttl_ms: i64,
}

/// Result of requesting a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakeLeaseResult {
    /// The lease was taken.
    Taken,
    /// Another runner holds it.
    HeldBy {
        /// That runner.
        owner: String,
        /// Expiry, unless renewed.
        until: Millis,
    },
}

/// Update of a run by its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunUpdate {
    /// Run id.
    pub run_id: String,
    /// Lease of the run, or of one of its re-emits.
    pub lease: String,
    /// The token of that lease.
    pub token: String,
    /// Current time.
    pub at: Millis,
    /// New lifetime of the lease, in milliseconds.
    pub ttl_ms: i64,
    /// Written once; the same content again is accepted, other content of the same kind is drift.
    pub documents: Vec<ScenarioDocument>,
    /// Appended, unless present.
    pub events: Vec<RunEvent>,
    /// New state of the run.
    pub turn: Option<StateChange>,
    /// State of a publication.
    pub publication: Option<RunPublication>,
    /// End of the topic that this publication proves to be acknowledged.
    pub acknowledged: Option<BusEnd>,
}

/// State change of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateChange {
    /// New state.
    pub to: ScenarioState,
    /// Reason code, if the new state is a failure.
    pub reason: Option<String>,
}

/// Immutable document of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioDocument {
    /// Kind: `run_plan`, `run_facts_view`, `ready_signal`, …
    pub kind: String,
    /// Path of its file.
    pub path: String,
    /// Full document text, byte-identical to the file.
    pub text: String,
}

/// Event in the history of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    /// Event id, unique per run.
    pub event_id: String,
    /// The line in the file, JSON.
    pub line: String,
}

/// Message about a run on the control bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPublication {
    /// Message id.
    pub message_id: String,
    /// `READY`, `READY_REEMIT`, `TERMINAL_REEMIT`.
    pub kind: String,
    /// Number of the publishing attempt for this run, from 1.
    pub attempt: u32,
    /// State.
    pub state: PublicationState,
    /// Bus reference or error.
    pub evidence: Option<String>,
    /// Time of the last state change.
    pub at: Millis,
}

/// State of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationState {
    /// Being published; committed before the first byte is sent.
    InFlight,
    /// On the bus.
    Published,
    /// Certainly not on the bus.
    NotWritten,
    /// May or may not be on the bus.
    Unknown,
}

impl PublicationState {
    /// The name in the ledger and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Published => "published",
            Self::NotWritten => "not_written",
            Self::Unknown => "unknown",
        }
    }

    /// Parses the name.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::InFlight, Self::Published, Self::NotWritten, Self::Unknown]
            .into_iter()
            .find(|state| state.word() == word)
    }
}

/// Why an update was rejected. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunUpdateError {
    /// Another runner holds the lease.
    #[error("the lease of the run was taken over by another runner, nothing was changed")]
    LeaseLost,
    /// No such run.
    #[error("no such run")]
    NoRun,
    /// The stored document has other content.
    #[error("{kind} is already stored with different content, nothing was changed")]
    Drift {
        /// Kind of the document.
        kind: String,
    },
    /// Another runner has used this attempt number.
    #[error("another runner is publishing about this run, nothing was changed")]
    AttemptTaken,
    /// Illegal state transition.
    #[error(transparent)]
    Illegal(#[from] IllegalScenarioTransition),
}

/// A run with its documents, events and publications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioRun {
    /// Run id.
    pub run_id: String,
    /// Its equivalence key.
    pub run_equivalence_key: String,
    /// Fingerprint of its intent.
    pub intent_fingerprint: String,
    /// The platform run it belongs to.
    pub platform_run_id: String,
    /// The first request, JSON.
    pub request: String,
    /// State.
    pub state: ScenarioState,
    /// Reason code of the state.
    pub reason: Option<String>,
    /// Incremented by every change; files made from a smaller version are out of date.
    pub version: u64,
    /// Version shown by its files.
    pub shown: u64,
    /// Creation time.
    pub opened_at: Millis,
    /// Time of the last state change.
    pub turned_at: Millis,
    /// Its documents.
    pub documents: Vec<ScenarioDocument>,
    /// Its events, in order.
    pub events: Vec<RunEvent>,
    /// Its publications, in order of their attempts.
    pub publications: Vec<RunPublication>,
}

impl ScenarioRun {
    /// Returns the document of this kind.
    pub fn document(&self, kind: &str) -> Option<&ScenarioDocument> {
        self.documents.iter().find(|document| document.kind == kind)
    }
}
