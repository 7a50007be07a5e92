//! The port of publications: revisions of records on their way to the bus.
//!
//! A record is offered by its revision: "in flight" is committed before the first byte leaves, and
//! nobody else can begin the same revision. What is known of the outcome is a step of the effect
//! machine (`admit_core::effect`), and in the same commit the events that went out with the record
//! take theirs. What was not begun is simply still to be offered, so a restart has nothing to resume.

use admit_core::effect::{Illegal, Passage, Standing, Step};
use admit_core::{Digest, Fault, Millis};

use crate::port::BoxFuture;

/// Answers questions about publications. Never blocks a writer.
pub trait PublicationReader: Send + Sync {
    /// Records that say what no revision handed to the bus says, the longest waiting first. Those
    /// that nobody has enriched yet are not among them.
    fn unoffered(
        &self,
        door: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Unoffered>, Fault>>;

    /// Publications after the place `after`, in order.
    fn publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// The publications of a record, the newest first.
    fn publications_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// Publications after the place `after` whose outcome nobody knows, in order.
    fn ambiguous_publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// The publication whose message has this dedupe key.
    fn publication(
        &self,
        door: String,
        dedupe_key: String,
    ) -> BoxFuture<'_, Result<Option<Publication>, Fault>>;

    /// Everything that happened to a publication, in order.
    fn publication_history(&self, n: u64) -> BoxFuture<'_, Result<Vec<Passage>, Fault>>;

    /// How many there are of everything.
    fn publication_counts(&self, door: String) -> BoxFuture<'_, Result<PublicationCounts, Fault>>;
}

/// A ledger whose records can be published.
pub trait Publications: PublicationReader {
    /// Begins publications, in one commit. One that cannot begin is `None`: the record says
    /// something else by now, or somebody else has begun it.
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Option<Publication>>, Fault>>;

    /// Takes steps of publications, in one commit; the events that went out with them take theirs.
    /// What a person found not to have gone out may be offered again, as the next attempt.
    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Publication, Illegal>>, Fault>>;

    /// Looks after what earlier processes left: what they had in flight is ambiguous from now on.
    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;
}

/// A record that is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unoffered {
    /// Which.
    pub record_id: String,
    /// Its present revision.
    pub revision: u64,
    /// Since when it is so.
    pub changed_at: Millis,
    /// Since when it has been saying something that was not handed to the bus.
    pub since: Millis,
}

/// A revision that is about to be handed to the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The door whose record it is.
    pub door: String,
    /// Which.
    pub record_id: String,
    /// The revision that the message tells.
    pub revision: u64,
    /// Where it goes.
    pub topic: String,
    /// What keeps its messages in order.
    pub partition_key: String,
    /// What it can be found on the bus by; the same for every attempt at this revision.
    pub dedupe_key: String,
    /// The digest of the message.
    pub digest: Digest,
}

/// A step of one publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationStep {
    /// Which.
    pub n: u64,
    /// What became known of it.
    pub step: Step,
    /// Why it is not known to have gone out, as a stable word, where it is not.
    pub reason: Option<&'static str>,
}

/// A revision of a record that was handed to the bus, or is about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Its place among them.
    pub n: u64,
    /// The record.
    pub record_id: String,
    /// The revision.
    pub revision: u64,
    /// Where it goes.
    pub topic: String,
    /// What keeps its messages in order.
    pub partition_key: String,
    /// What it can be found by.
    pub dedupe_key: String,
    /// The digest of the message.
    pub digest: Digest,
    /// How far it has come.
    pub standing: Standing,
    /// Why it is not known to have gone out, where it is not.
    pub reason: Option<String>,
    /// When the present attempt began.
    pub begun_at: Millis,
    /// Since when it stands so.
    pub changed_at: Millis,
}

/// How many there are of everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// Publications by state.
    pub states: Vec<(String, u64)>,
    /// Records that are still to be offered.
    pub waiting: u64,
    /// Since when the first of them waits.
    pub waiting_since: Option<Millis>,
}

impl PublicationCounts {
    /// How many stand so.
    pub fn of(&self, state: &str) -> u64 {
        self.states.iter().find(|(word, _)| word == state).map_or(0, |(_, count)| *count)
    }
}
