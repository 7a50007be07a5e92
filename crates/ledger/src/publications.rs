//! Port of publications: revisions of records on their way to the bus.
//!
//! A record is published revision by revision. "In flight" is committed before the first byte is sent,
//! and no other gate can begin the same revision. The outcome is a step of the effect state machine
//! (`admit_core::effect`); the events published with the record change state in the same commit. A
//! revision that was not begun is simply still pending, so a restart has nothing to resume.

use admit_core::effect::{EffectLogEntry, EffectState, IllegalStep, Step};
use admit_core::{Digest, Fault, Millis};

use crate::port::BoxFuture;

/// Reads publications. Never blocks the writer.
pub trait PublicationReader: Send + Sync {
    /// Returns records with unpublished changes, longest waiting first, except those not yet enriched.
    fn unoffered(
        &self,
        door: String,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<UnpublishedRecord>, Fault>>;

    /// Returns publications numbered above `after`, in order.
    fn publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// Returns the publications of a record, newest first.
    fn publications_of(
        &self,
        door: String,
        record_id: String,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// Returns publications with an unknown outcome numbered above `after`, in order.
    fn ambiguous_publications(
        &self,
        door: String,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;

    /// Returns the publication whose message has this dedupe key.
    fn publication(
        &self,
        door: String,
        dedupe_key: String,
    ) -> BoxFuture<'_, Result<Option<Publication>, Fault>>;

    /// Returns the history of a publication, oldest first.
    fn publication_history(&self, n: u64) -> BoxFuture<'_, Result<Vec<EffectLogEntry>, Fault>>;

    /// Counts publications and pending records.
    fn publication_counts(&self, door: String) -> BoxFuture<'_, Result<PublicationCounts, Fault>>;
}

/// A ledger whose records can be published.
pub trait Publications: PublicationReader {
    /// Begins publications in one commit. Returns `None` for one that cannot begin, because the record
    /// has changed or another gate has begun it.
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Option<Publication>>, Fault>>;

    /// Applies steps of publications in one commit, together with the steps of the events they contain.
    /// A publication that an operator found absent may be offered again, as the next attempt.
    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Publication, IllegalStep>>, Fault>>;

    /// Recovers publications of earlier processes: those in flight become ambiguous.
    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>>;
}

/// Record with an unpublished revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpublishedRecord {
    /// Record id.
    pub record_id: String,
    /// Current revision.
    pub revision: u64,
    /// Time of that revision.
    pub changed_at: Millis,
    /// Time since which it has unpublished changes.
    pub since: Millis,
}

/// Revision about to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Door of the record.
    pub door: String,
    /// Record id.
    pub record_id: String,
    /// Revision in the message.
    pub revision: u64,
    /// Bus topic.
    pub topic: String,
    /// Partition key, which keeps its messages in order.
    pub partition_key: String,
    /// Key to find the message on the bus; the same for every attempt at this revision.
    pub dedupe_key: String,
    /// The digest of the message.
    pub digest: Digest,
}

/// Acknowledged end of a topic on a bus that counts its messages from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusEnd {
    /// Bus topic.
    pub topic: String,
    /// Number of messages in it.
    pub messages: u64,
}

/// A step of one publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationStep {
    /// Publication number.
    pub n: u64,
    /// The step.
    pub step: Step,
    /// Reason code if it is not known to have been published.
    pub reason: Option<&'static str>,
    /// End of the topic that the step proves to be acknowledged. Stored only if the step is legal.
    pub acknowledged: Option<BusEnd>,
}

/// A published or in-flight revision of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Publication number.
    pub n: u64,
    /// Record id.
    pub record_id: String,
    /// Revision.
    pub revision: u64,
    /// Bus topic.
    pub topic: String,
    /// Partition key, which keeps its messages in order.
    pub partition_key: String,
    /// Key to find the message on the bus.
    pub dedupe_key: String,
    /// The digest of the message.
    pub digest: Digest,
    /// State of the publication.
    pub state: EffectState,
    /// Reason code if it is not known to have been published.
    pub reason: Option<String>,
    /// Start of the current attempt.
    pub begun_at: Millis,
    /// Time of the last state change.
    pub changed_at: Millis,
}

/// Publication counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// Publications by state.
    pub states: Vec<(String, u64)>,
    /// Records with an unpublished revision.
    pub waiting: u64,
    /// Time since which the first of them waits.
    pub waiting_since: Option<Millis>,
}

impl PublicationCounts {
    /// Number of publications in `state`.
    pub fn of(&self, state: &str) -> u64 {
        self.states.iter().find(|(word, _)| word == state).map_or(0, |(_, count)| *count)
    }
}
