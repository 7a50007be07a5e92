//! The port of documents: what a contract hands out is decided and kept in the commits themselves.
//!
//! A door whose contract [issues](admit_core::Issue) records through [`Issuance::record_issuing`]
//! instead of [`record`](crate::Admissions::record): the same verdicts, and in the same commit the
//! documents, the counters of the run, and the check that the run takes events at all. Its effects
//! are settled in batches by [`Issuance::settle`], which keeps the documents of the outcome.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use admit_core::effect::{By, Effect, Illegal, Standing, Step};
use admit_core::json::Object;
use admit_core::{Entry, Fault, Filed, Issue, IssuedKind, Millis, Recorded, RunState, Seq};

use crate::port::BoxFuture;

/// Takes what is to be performed, right after its commit and in ledger order.
pub trait Handover: Send + Sync {
    /// Called by the writer once the commit is durable, before anybody is answered. Must not block.
    fn recorded(&self, kept: &Kept);
}

/// Who issues, and who performs.
#[derive(Clone)]
pub struct Issuing {
    /// Makes the documents.
    pub issue: Arc<dyn Issue>,
    /// Gets what is to be performed.
    pub handover: Arc<dyn Handover>,
}

impl fmt::Debug for Issuing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issuing").field("issue", &self.issue).finish_non_exhaustive()
    }
}

/// What became of a delivery.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The delivery and its verdict.
    pub recorded: Recorded,
    /// The documents about it: those of this commit, or those that were there before.
    pub filed: Vec<Filed>,
    /// What comes next.
    pub outlook: Outlook,
}

/// What comes after the record commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing: everything is said.
    Said,
    /// This process performs: the effect is in flight in its name since this commit.
    Performs {
        /// The admission whose effect it is.
        seq: Seq,
        /// Which attempt.
        attempt: u32,
    },
    /// It is a copy of what somebody is performing.
    InFlight {
        /// The admission.
        seq: Seq,
    },
    /// Its run is closed and takes nothing new; it was kept outside.
    RunClosed,
    /// Its run is being closed; it was kept outside, and may come in if the run opens again.
    RunClosing,
}

/// One effect to be moved on.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The admission.
    pub seq: Seq,
    /// The step.
    pub step: Step,
    /// The facts of the admission, where the caller has them; else they are read.
    pub facts: Option<Object<'static>>,
}

/// An effect that was moved on, with the documents about it.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Where it stands.
    pub effect: Effect,
    /// What was issued.
    pub filed: Vec<Filed>,
}

/// A copy that has waited for the first.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Where the first stands.
    pub standing: Standing,
    /// What was issued about the copy; nothing when the first has been released meanwhile.
    pub filed: Vec<Filed>,
}

/// What is to be noted about the files of documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileNote {
    /// Every file of what this process has issued, up to this number, is on stable storage.
    SyncedTo(u64),
    /// The files of everything between two numbers are on stable storage, whoever issued it: what
    /// processes that are gone left there is made good.
    Restored {
        /// After this number.
        after: u64,
        /// Up to this one.
        to: u64,
    },
    /// These could not be written.
    Unwritten(Vec<u64>),
    /// These are there after all.
    Written(Vec<u64>),
}

/// Which documents to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FiledFilter {
    /// Only of this kind.
    pub kind: Option<IssuedKind>,
    /// Only of this run; an empty name means those that are in none.
    pub run: Option<String>,
    /// Only with this decision.
    pub decision: Option<String>,
    /// Only those that are neither void nor released.
    pub is_open: bool,
    /// Only after this number.
    pub after: u64,
    /// At most so many.
    pub rows_max: usize,
}

/// A run with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// Whether it takes events.
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
    /// Whatever came, copies included.
    pub deliveries: i64,
    /// Effects in flight.
    pub in_flight: i64,
    /// Effects nobody knows the outcome of.
    pub ambiguous: i64,
    /// Receipts ADMIT.
    pub admit: i64,
    /// Receipts DUPLICATE: one per event, however many copies came.
    pub duplicate: i64,
    /// Receipts QUARANTINE.
    pub quarantine: i64,
    /// Quarantines that the admission of their event made void.
    pub superseded: i64,
    /// Quarantines that somebody has released.
    pub released: i64,
}

/// Answers questions about documents and runs. Never blocks a writer.
pub trait IssuedReader: Send + Sync {
    /// Documents in the order they were kept.
    fn filed(&self, filter: FiledFilter) -> BoxFuture<'_, Result<Vec<Filed>, Fault>>;

    /// Every document with this id, of every run, in the order they were kept.
    fn named(&self, id: String) -> BoxFuture<'_, Result<Vec<Filed>, Fault>>;

    /// Every document about one admission.
    fn filed_of(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<Filed>, Fault>>;

    /// Documents whose files could not be written, after a number.
    fn unwritten(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<Filed>, Fault>>;

    /// The number up to which every file is on stable storage, and the newest number.
    fn synced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>>;

    /// The number after which processes that are gone may have left files unwritten, and the newest
    /// number.
    fn left_unsynced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        self.synced()
    }

    /// How many messages of each bus topic are acknowledged, as far as settled effects prove it on a
    /// bus that counts its messages from 0.
    fn bus_ends(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, Fault>> {
        Box::pin(async { Ok(BTreeMap::new()) })
    }

    /// One run.
    fn run(&self, id: String) -> BoxFuture<'_, Result<Option<Run>, Fault>>;

    /// Runs by name.
    fn runs(&self, after: String, rows_max: usize) -> BoxFuture<'_, Result<Vec<Run>, Fault>>;
}

/// Records and settles with documents.
pub trait Issuance: IssuedReader {
    /// Records a batch of a door that issues. What holds for
    /// [`record`](crate::Admissions::record) holds here.
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: Issuing,
    ) -> BoxFuture<'_, Vec<Result<Kept, Fault>>>;

    /// Moves many effects on in one commit; each has its own answer, in order.
    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Settled, Illegal>>, Fault>>;

    /// Says what there is to say about a copy that has waited: by where the first stands now.
    fn settle_copy(
        &self,
        copy: Recorded,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Copied, Fault>>;

    /// Before the doors open: what earlier processes had in flight at `door` becomes ambiguous in
    /// every place at once: the effect, its documents, the counters of its run.
    fn recover_issuing(
        &self,
        door: admit_core::Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Effect>, Fault>>;

    /// A named person lets a quarantine go, receipt and record together. `false` when there is none
    /// with this id that is open in this run.
    fn release(
        &self,
        run: String,
        id: String,
        how: &'static str,
        by: By,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;

    /// The numbers of what this process has issued, after a number. It is the one that writes their
    /// files.
    fn issued_here(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<u64>, Fault>>;

    /// Notes what is known about files.
    fn note_files(&self, note: FileNote) -> BoxFuture<'_, Result<(), Fault>>;

    /// Changes whether a run takes events. `false` when it is not in the state `from`.
    fn turn_run(
        &self,
        id: String,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>>;
}
