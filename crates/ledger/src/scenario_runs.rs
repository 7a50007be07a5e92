//! The port of scenario runs: which run a key stands for, who leads it, and what its leader keeps.
//!
//! The ledger is the truth about a run; every file about it is a copy. Whoever holds this port can
//! write the tables of scenario runs and no others.

use admit_core::{Fault, IllegalTurn, Millis, ScenarioState};

use crate::port::BoxFuture;

/// Remembers scenario runs.
pub trait ScenarioRuns: ScenarioRunReader {
    /// Says which run a key stands for. The first time, the run is opened with what is said here;
    /// later it is found as it is, if it is of the same intent.
    fn open_run(&self, opening: Opening) -> BoxFuture<'_, Result<Opened, Fault>>;

    /// Takes a lease, if nobody has it or the one who had it has let it expire. Where one process at a
    /// time has the ledger, its start ends the leases of those before it.
    fn take_lease(&self, lease: RunLease) -> BoxFuture<'_, Result<Taking, Fault>>;

    /// Gives a lease back. Only its own token can.
    fn give_back(
        &self,
        name: String,
        token: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<(), Fault>>;

    /// Keeps what the leader says of a run, all of it in one commit or none, and renews its lease in
    /// the same commit.
    fn keep(&self, keeping: Keeping) -> BoxFuture<'_, Result<Result<(), NotKept>, Fault>>;

    /// Notes that the files of a run show this version of it.
    fn note_shown(&self, run_id: String, version: u64) -> BoxFuture<'_, Result<(), Fault>>;
}

/// Answers questions about scenario runs. Never blocks a writer.
pub trait ScenarioRunReader: Send + Sync {
    /// A run with everything about it.
    fn scenario_run(&self, run_id: String) -> BoxFuture<'_, Result<Option<ScenarioRun>, Fault>>;

    /// Runs that somebody has to look after: those that are not final, and those whose files do not
    /// show how they stand. By id, after `after`.
    fn unfinished_runs(
        &self,
        after: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, Fault>>;
}

/// What a run is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// What makes two requests ask for the same run.
    pub run_equivalence_key: String,
    /// The run's id.
    pub run_id: String,
    /// What was asked for.
    pub intent_fingerprint: String,
    /// The platform run it belongs to, for good.
    pub platform_run_id: String,
    /// The request, as JSON.
    pub request: String,
    /// When.
    pub at: Millis,
}

/// Which run a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is new.
    New,
    /// It is known, with the same intent.
    Known,
    /// The key stands for another intent; nothing was changed.
    Collision {
        /// The intent it stands for.
        intent_fingerprint: String,
    },
}

/// A lease somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLease {
    /// What is leased: a run's id, or `reemit:<run>:<kind>`.
    pub name: String,
    /// Who wants it.
    pub owner: String,
    /// What proves that it is theirs; never used twice.
    pub token: String,
    /// Now.
    pub at: Millis,
    /// How long it lasts without being renewed, in milliseconds.
    pub ttl_ms: i64,
}

/// What became of a wish for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taking {
    /// It is theirs.
    Taken,
    /// Somebody else has it.
    HeldBy {
        /// Who.
        owner: String,
        /// Until when, unless it is renewed.
        until: Millis,
    },
}

/// What the leader of a run wants kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Which run.
    pub run_id: String,
    /// The lease it is done under; the run's own, or one of its re-emits.
    pub lease: String,
    /// The token of that lease.
    pub token: String,
    /// Now.
    pub at: Millis,
    /// How long the lease lasts from now on, in milliseconds.
    pub ttl_ms: i64,
    /// Written once; the same again is fine, anything else under the same kind is drift.
    pub documents: Vec<RunDocument>,
    /// Appended once.
    pub events: Vec<RunEvent>,
    /// How the run stands from now on.
    pub turn: Option<Turn>,
    /// What is known of a publication.
    pub publication: Option<Publication>,
}

/// Where a run goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// There.
    pub to: ScenarioState,
    /// Why, in the contract's words, where it is not for the better.
    pub reason: Option<String>,
}

/// A document about a run that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDocument {
    /// What it is: `run_plan`, `run_facts_view`, `ready_signal`, …
    pub kind: String,
    /// Where its file is.
    pub path: String,
    /// All of it, as its file has it.
    pub text: String,
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvent {
    /// What makes it this event.
    pub event_id: String,
    /// The line about it, JSON.
    pub line: String,
}

/// A message about a run on the control bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Which message.
    pub message_id: String,
    /// `READY`, `READY_REEMIT`, `TERMINAL_REEMIT`.
    pub kind: String,
    /// Which attempt at publishing anything about this run, from 1.
    pub attempt: u32,
    /// How far it has come.
    pub state: PublicationState,
    /// The reference, or what went wrong.
    pub evidence: Option<String>,
    /// Since when.
    pub at: Millis,
}

/// How far a publication has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicationState {
    /// Somebody is publishing it; written before the first byte leaves.
    InFlight,
    /// It is on the bus.
    Published,
    /// It is not, and never will be.
    NotWritten,
    /// It may be or not.
    Unknown,
}

impl PublicationState {
    /// The word in the ledger and on the wire.
    pub const fn word(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Published => "published",
            Self::NotWritten => "not_written",
            Self::Unknown => "unknown",
        }
    }

    /// The state that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::InFlight, Self::Published, Self::NotWritten, Self::Unknown]
            .into_iter()
            .find(|state| state.word() == word)
    }
}

/// Why nothing was kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The lease is somebody else's now.
    #[error("the lease of the run was taken over by another runner, nothing was changed")]
    LeaseLost,
    /// There is no such run.
    #[error("there is no such run")]
    NoRun,
    /// A document is there already, and says something else.
    #[error("{kind} is kept already and says something else, nothing was changed")]
    Drift {
        /// Which.
        kind: String,
    },
    /// The number of the attempt is taken: somebody else publishes about this run.
    #[error("somebody else publishes about this run, nothing was changed")]
    AttemptTaken,
    /// The run does not go there.
    #[error(transparent)]
    Illegal(#[from] IllegalTurn),
}

/// A run with everything about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioRun {
    /// Its id.
    pub run_id: String,
    /// What it was asked for under.
    pub run_equivalence_key: String,
    /// What was asked for.
    pub intent_fingerprint: String,
    /// The platform run it belongs to.
    pub platform_run_id: String,
    /// The first request, JSON.
    pub request: String,
    /// How it stands.
    pub state: ScenarioState,
    /// Why, where it says so.
    pub reason: Option<String>,
    /// Counts its changes; a copy that was made at a smaller number is out of date.
    pub version: u64,
    /// The version that its files show.
    pub shown: u64,
    /// When it was opened.
    pub opened_at: Millis,
    /// Since when it stands so.
    pub turned_at: Millis,
    /// What never changes.
    pub documents: Vec<RunDocument>,
    /// What happened, in order.
    pub events: Vec<RunEvent>,
    /// What was published, in order of the attempts.
    pub publications: Vec<Publication>,
}

impl ScenarioRun {
    /// The document of this kind.
    pub fn document(&self, kind: &str) -> Option<&RunDocument> {
        self.documents.iter().find(|document| document.kind == kind)
    }
}
