//! Port of run closures: the receipts of a run, and closing the run.
//!
//! Closing takes two commits. The first sets the run to `closing`, which stops it from accepting new
//! events. The second sets it to `closed` and stores the closure in the same commit, or reopens the run.
//! Attempts are numbered and only the latest one can end the closing, so an attempt that was interrupted
//! by a crash or superseded by another one fails instead of closing the run on stale data.

use admit_core::effect::Attribution;
use admit_core::{DocumentKind, Fault, Millis};

use crate::issuance::DocumentReader;
use crate::port::BoxFuture;

/// State of a quarantine receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineState {
    /// It is in effect.
    Open,
    /// Void, because its event was admitted later.
    Superseded,
    /// Released by an operator, with the resolution.
    Released(String),
}

/// A receipt of a run, as far as a run report needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLine {
    /// Document number.
    pub n: u64,
    /// Receipt id.
    pub id: String,
    /// Decision, as the contract names it.
    pub decision: String,
    /// Reason code, if any.
    pub reason: Option<String>,
    /// Event type, which is the name of the output.
    pub event_type: Option<String>,
    /// Producer named in the event.
    pub producer: Option<String>,
    /// The scenario run of the event.
    pub scenario_run: Option<String>,
    /// Path of its file.
    pub path: String,
    /// Whether it contains a reference to the event on the bus.
    pub has_reference: bool,
    /// Whether writing its file failed.
    pub is_unwritten: bool,
    /// State, for quarantine receipts.
    pub state: QuarantineState,
    /// Policy that made the decision, if the receipt names one.
    pub policy: Option<DecidingPolicy>,
}

/// Policy revision named in receipts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecidingPolicy {
    /// Revision.
    pub revision: String,
    /// Digest of its content.
    pub digest: String,
}

/// Document of a run with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDocument {
    /// Document number.
    pub n: u64,
    /// Decision, as the contract names it.
    pub decision: String,
    /// Path of its file.
    pub path: String,
    /// JSON without a trailing newline.
    pub text: String,
}

/// Publishes of a run whose outcome was unknown at some time, by reconciliation result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmbiguityCounts {
    /// Found on the bus.
    pub found: u64,
    /// Not found on the bus.
    pub absent: u64,
    /// Of the absent ones, those that no later copy has published.
    pub never_arrived: u64,
}

/// Number of unsettled effects of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsettledCounts {
    /// Intended or in flight.
    pub in_work: u64,
    /// Outcome unknown.
    pub ambiguous: u64,
}

/// Closure of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// The run.
    pub run: String,
    /// Closing time.
    pub at: Millis,
    /// Path of its file below the artifact root.
    pub path: String,
    /// JSON without a trailing newline.
    pub text: String,
    /// Whether its file is known to exist.
    pub is_filed: bool,
}

/// Result of starting to close a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosingStart {
    /// No such run.
    Unknown,
    /// The run accepts no new events as of this commit.
    Closing {
        /// Number of the attempt, needed to end it.
        attempt: u64,
    },
    /// The run was closed before.
    Closed(Closure),
}

/// How an attempt at closing ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClosingEnd {
    /// The run accepts events again.
    Reopened,
    /// The run is closed for good, with this document at this path.
    Closed {
        /// See [`Closure::path`].
        path: String,
        /// See [`Closure::text`].
        text: String,
    },
}

/// Selects the effects of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunScope<'a> {
    /// The door.
    pub door: &'a str,
    /// SQL JSON path of the run name in the facts of an event.
    pub path: &'static str,
    /// The run.
    pub run: &'a str,
}

/// Reads the data of run reports, in pages. Never blocks the writer.
pub trait RunReportReader: DocumentReader {
    /// Returns the receipts of a run after a document number, in insertion order.
    fn run_lines(
        &self,
        run: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunLine>, Fault>>;

    /// Returns the sorted ids of a run's documents of one kind, strictly between two strings.
    fn run_ids(
        &self,
        run: String,
        kind: DocumentKind,
        after: String,
        below: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>>;

    /// Returns the receipts or quarantine records of a run after a document number, in insertion order.
    /// Other kinds are not listed.
    fn run_documents(
        &self,
        run: String,
        kind: DocumentKind,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunDocument>, Fault>>;

    /// Counts how the ambiguous publishes of a run were resolved, from their histories.
    fn ambiguities(&self, run: String) -> BoxFuture<'_, Result<AmbiguityCounts, Fault>>;

    /// Number of events refused while the run was closing, whether or not that closing succeeded.
    fn refused_while_closing(&self, run: String) -> BoxFuture<'_, Result<u64, Fault>>;

    /// Counts the unsettled effects of a run, from the effects themselves.
    fn unsettled(&self, of: RunScope<'_>) -> BoxFuture<'_, Result<UnsettledCounts, Fault>>;

    /// Returns the closure of a run.
    fn closure(&self, run: String) -> BoxFuture<'_, Result<Option<Closure>, Fault>>;

    /// Returns closures whose files are not known to exist.
    fn unfiled_closures(&self, rows_max: usize) -> BoxFuture<'_, Result<Vec<Closure>, Fault>>;
}

/// Closes runs.
pub trait Closures: RunReportReader {
    /// Stops the run from accepting new events and supersedes earlier attempts.
    fn begin_closing(
        &self,
        run: String,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<ClosingStart, Fault>>;

    /// Ends an attempt. Returns `false` and changes nothing if it was superseded.
    fn end_closing(
        &self,
        run: String,
        attempt: u64,
        ending: ClosingEnd,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Before the doors open: reopens runs that an earlier process was closing. Returns their names.
    fn reopen_lost(&self, at: Millis) -> BoxFuture<'_, Result<Vec<String>, Fault>>;

    /// Records that the files of these documents are missing, so that the gate restores them.
    fn note_missing(&self, numbers: Vec<u64>) -> BoxFuture<'_, Result<(), Fault>>;

    /// Records that the file of a closure is on stable storage.
    fn note_closure_filed(&self, run: String) -> BoxFuture<'_, Result<(), Fault>>;
}
