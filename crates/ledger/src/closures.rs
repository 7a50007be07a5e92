//! The port of accounts: what a run's receipts add up to, and closing the run by it.
//!
//! Closing takes two commits. The first turns the run to `closing`, and from then on nothing new
//! comes in; the second turns it to `closed` and keeps the closure in the same breath, or opens it
//! again. Every beginning is numbered, and only the last one can end it: whoever was overtaken, by a
//! crash or by somebody else, finds that out instead of closing by what it knew before.

use admit_core::effect::By;
use admit_core::{Fault, IssuedKind, Millis};

use crate::issuance::IssuedReader;
use crate::port::BoxFuture;

/// How a quarantine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineStanding {
    /// It counts.
    Open,
    /// The admission of its event made it void.
    Superseded,
    /// Somebody let it go, in this way.
    Released(String),
}

/// A receipt, as far as an account needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLine {
    /// Its number.
    pub n: u64,
    /// Its id.
    pub id: String,
    /// The decision, in the contract's words.
    pub decision: String,
    /// Why, where there is a why.
    pub reason: Option<String>,
    /// The type of the event: the output it is of.
    pub event_type: Option<String>,
    /// Who produced the event, as it says itself.
    pub producer: Option<String>,
    /// The scenario run of the event.
    pub scenario_run: Option<String>,
    /// Where its file is said to be.
    pub path: String,
    /// Whether it says where on the bus the event is.
    pub has_reference: bool,
    /// Whether its file could not be written.
    pub is_unwritten: bool,
    /// How it stands, where it is one of a quarantine.
    pub standing: QuarantineStanding,
    /// The policy that decided, where the receipt names one.
    pub policy: Option<DecidingPolicy>,
}

/// A policy, as receipts name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DecidingPolicy {
    /// Its revision.
    pub revision: String,
    /// The digest of its content.
    pub digest: String,
}

/// A document of a run with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDocument {
    /// Its number.
    pub n: u64,
    /// The decision, in the contract's words.
    pub decision: String,
    /// Where its file is said to be.
    pub path: String,
    /// The document, JSON without a line end.
    pub text: String,
}

/// Publishes of a run whose outcome was unknown at some time, by what a person found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ambiguities {
    /// They were on the bus.
    pub found: u64,
    /// They were not on the bus.
    pub absent: u64,
    /// Of those, the ones that no later copy has published.
    pub never_arrived: u64,
}

/// Effects of a run that are not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsettled {
    /// Somebody is performing them, or will.
    pub in_work: u64,
    /// Nobody knows how they ended.
    pub ambiguous: u64,
}

/// That a run was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closure {
    /// The run.
    pub run: String,
    /// When.
    pub at: Millis,
    /// Where its file goes, below the root of the artifacts.
    pub path: String,
    /// The document, JSON without a line end.
    pub text: String,
    /// Whether its file is known to be there.
    pub is_filed: bool,
}

/// What came of beginning to close a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nobody has named such a run.
    Unknown,
    /// It takes nothing new since this commit; this is the number to end it with.
    Closing {
        /// Which attempt.
        attempt: u64,
    },
    /// It was closed before.
    Closed(Closure),
}

/// How an attempt at closing ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The run takes events again.
    Reopened,
    /// It is closed, for ever, with this document at this path.
    Closed {
        /// See [`Closure::path`].
        path: String,
        /// See [`Closure::text`].
        text: String,
    },
}

/// Where in a ledger a run's own effects are told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfRun<'a> {
    /// The door.
    pub door: &'a str,
    /// Where in the facts of an event its run stands, as a path of SQL's JSON.
    pub path: &'static str,
    /// The run.
    pub run: &'a str,
}

/// Answers what an account is made of, in pages. Never blocks a writer.
pub trait RunAccounts: IssuedReader {
    /// The receipts of a run in the order they were kept, after a number.
    fn run_lines(
        &self,
        run: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunLine>, Fault>>;

    /// The ids of a run's documents of one kind between two texts, both left out, in their order.
    fn run_ids(
        &self,
        run: String,
        kind: IssuedKind,
        after: String,
        below: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>>;

    /// The receipts or the quarantine records of a run in the order they were kept, after a number.
    /// Documents of other kinds are not listed.
    fn run_documents(
        &self,
        run: String,
        kind: IssuedKind,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<RunDocument>, Fault>>;

    /// How the ambiguous publishes of a run were resolved, counted from their histories.
    fn ambiguities(&self, run: String) -> BoxFuture<'_, Result<Ambiguities, Fault>>;

    /// Events that a run has refused while it was being closed, whatever became of the closing.
    fn refused_while_closing(&self, run: String) -> BoxFuture<'_, Result<u64, Fault>>;

    /// What is not settled of a run, counted from the effects themselves.
    fn unsettled(&self, of: OfRun<'_>) -> BoxFuture<'_, Result<Unsettled, Fault>>;

    /// The closure of a run.
    fn closure(&self, run: String) -> BoxFuture<'_, Result<Option<Closure>, Fault>>;

    /// Closures whose files are not known to be there.
    fn unfiled_closures(&self, rows_max: usize) -> BoxFuture<'_, Result<Vec<Closure>, Fault>>;
}

/// Closes runs.
pub trait Closures: RunAccounts {
    /// From this commit on the run takes nothing new. An attempt that was begun before is overtaken.
    fn begin_closing(&self, run: String, by: By, at: Millis)
    -> BoxFuture<'_, Result<Begun, Fault>>;

    /// Ends an attempt. `false` when it was overtaken: nothing has changed then.
    fn end_closing(
        &self,
        run: String,
        attempt: u64,
        ending: Ending,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Before the doors open: runs that an earlier process was closing take events again. Their names.
    fn reopen_lost(&self, at: Millis) -> BoxFuture<'_, Result<Vec<String>, Fault>>;

    /// Notes that the files of these documents, by number, are not there: the gate writes them again.
    fn note_missing(&self, numbers: Vec<u64>) -> BoxFuture<'_, Result<(), Fault>>;

    /// Notes that the file of a closure is there, on stable storage.
    fn note_closure_filed(&self, run: String) -> BoxFuture<'_, Result<(), Fault>>;
}
