//! The ports of the ledger, in our words.
//!
//! Invariant: when a future returned by [`Admissions::record`] resolves with a verdict, the commit
//! that holds it is durable. A fault never claims more than is known.

mod attachments;
mod claims;
mod inbox;
mod records;
mod retention;
mod streams;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use admit_core::{Age, EntityId, Entry, Fault, Key, Millis, Receipt, Recorded, Seq};
use bytes::Bytes;

use crate::effects::Effects;
use crate::gauges::Gauges;

pub use attachments::{Attachments, BusHolder, Store, StoreId};
pub use claims::{
    Change, Claimed, Claims, DONE, Finished, LEASE_LIFE_MAX, Lease, LeaseAnswer, LeaseChange,
    NotALease, Standing, Wanted,
};
pub use inbox::{Inbox, InboxFilter, InboxPage, InboxRow, inbox_status};
pub use records::{
    Accepted, CountsAsked, EventLine, FieldLine, NotAccepted, RecordCounts, RecordDetail,
    RecordFilter, RecordLine, RecordReader, Records, Relinked, SourceCounts, StepLine,
};
pub use retention::{ClockConfirmation, KnownTime, Retention, Swept};
pub use streams::{News, Page, StreamEntry, Streams, read_or_wait};

/// One boxed future per batch: it costs nothing that matters and keeps the seams plain.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Remembers what was admitted.
pub trait Admissions: Send + Sync {
    /// Records a batch. Each entry gets its own verdict, in order; one bad entry fails alone.
    ///
    /// The raw body, the key claim, the digest, the in-ledger side effects, the intended effect and
    /// the receipt of an entry are in one commit. Batches that wait at the same time may share a
    /// commit; a lone one does not wait for company.
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<Recorded, Fault>>>;
}

/// Answers questions about what is recorded. Never blocks a writer.
pub trait Reader: Send + Sync {
    /// The number that names this ledger in receipt ids.
    fn tag(&self) -> u32;

    /// The receipt at a place, be it of an admission, a sighting, a conflict or a refusal.
    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>>;

    /// The receipt of the admission that claimed `key`.
    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>>;

    /// The raw body kept at a place.
    fn body(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>>;

    /// Receipts in ledger order.
    fn list(&self, filter: Filter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>>;

    /// The same, where a filter that lets little through examines at most so many
    /// admissions; the page says where to go on.
    fn page_of(
        &self,
        filter: Filter,
        _examined_max: usize,
    ) -> BoxFuture<'_, Result<ReceiptPage, Fault>> {
        // A ledger that keeps few admissions need not count what it examines.
        let rows_max = filter.rows_max;
        let listed = self.list(filter);
        Box::pin(async move { Ok(ReceiptPage::of(listed.await?, rows_max, None)) })
    }

    /// One projected document.
    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>>;

    /// Projected documents of one kind whose entity starts with `prefix`, by entity, after `after`.
    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>>;

    /// How the ledger is doing.
    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>>;
}

/// A whole ledger.
pub trait Ledger: Admissions + Reader + Effects {
    /// Whether the last attempt to write succeeded, and none takes too long; readiness hangs on it.
    fn is_healthy(&self) -> bool;

    /// Why the ledger is not healthy, for people.
    fn trouble(&self) -> Option<&'static str> {
        (!self.is_healthy()).then_some("the last write to the ledger failed")
    }

    /// Resolves with the reason when the process must stop: what it believes about the disk can no
    /// longer be trusted, and only a start through recovery can tell what is there.
    fn must_stop(&self) -> BoxFuture<'_, Fault>;

    /// Where several gates write to one ledger: how long one of them may be silent before the others
    /// take it for dead and look after what it left. `None` where nobody else writes.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// What it counts about its commits, where it does.
    fn gauges(&self) -> Option<&Gauges> {
        None
    }

    /// What it counts besides, in the words of Prometheus; whole lines, or nothing.
    fn exposition(&self) -> String {
        String::new()
    }
}

/// A ledger with every port. Whoever needs less asks for less.
pub trait WholeLedger: Ledger + Streams + News + Claims + Inbox + Retention + Records {}

impl<L: Ledger + Streams + News + Claims + Inbox + Retention + Records> WholeLedger for L {}

/// Which receipts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this door.
    pub door: Option<String>,
    /// Only this principal.
    pub principal: Option<String>,
    /// Only these verdicts (`fresh`, `revision`, `conflict`, `refused`); empty means all of them.
    pub verdicts: Vec<String>,
    /// Only places after this one.
    pub after: Seq,
    /// At most so many.
    pub rows_max: usize,
}

impl Filter {
    /// Whether it may leave out admissions.
    pub fn is_selective(&self) -> bool {
        let all = ["fresh", "revision", "conflict", "refused"];
        let has_all = all.iter().all(|word| self.verdicts.iter().any(|verdict| verdict == word));
        self.door.is_some() || self.principal.is_some() || !(self.verdicts.is_empty() || has_all)
    }
}

/// Some receipts, in ledger order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptPage {
    /// Those that the filter lets through.
    pub receipts: Vec<Receipt>,
    /// The place after which there may be more; `None` at the end of the ledger. Set also where
    /// `receipts` is short or empty, because as much was examined as one page may.
    pub next: Option<Seq>,
}

impl ReceiptPage {
    /// The page of these receipts, for which the ledger was examined to `examined_to`, or to its end.
    pub fn of(receipts: Vec<Receipt>, rows_max: usize, examined_to: Option<Seq>) -> Self {
        let last = receipts.last().filter(|_| receipts.len() >= rows_max);
        let next = last.map(|receipt| receipt.id.seq).or(examined_to);
        Self { receipts, next }
    }
}

/// How the ledger is doing, for people and for `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Admissions kept: fresh ones, revisions, conflicts, refusals.
    pub admissions: u64,
    /// Sightings of duplicates.
    pub sightings: u64,
    /// The newest place.
    pub last_seq: Seq,
    /// When the oldest kept admission was received.
    pub oldest_at: Option<Millis>,
    /// Bytes on disk, of the ledger and its log.
    pub bytes: u64,
    /// Bytes of that which are free inside the file, and are used before it grows again.
    pub free_bytes: u64,
    /// Keys that are known; `None` where they are not counted.
    pub keys: Option<u64>,
    /// When the oldest kept body was received.
    pub oldest_body_at: Option<Millis>,
    /// How long things are kept; `None` is for ever.
    pub retain: Option<Age>,
    /// Keys of events up to this wall time of their producer may be forgotten.
    pub forgotten_to: Option<Millis>,
    /// The newest time that retention trusts; `None` without retention.
    pub trusted_at: Option<Millis>,
    /// Refused submissions that are kept, and what they cost by the measure of their quota.
    pub refusals: u64,
    /// See above, in bytes.
    pub refusal_bytes: u64,
    /// Bodies that retention has removed so far.
    pub removed_bodies: u64,
    /// Keys that retention has removed so far.
    pub removed_keys: u64,
    /// The gates of a ledger that many share, those that live first; of one that belongs to a single
    /// process nobody has to be told.
    pub gates: Vec<GateStatus>,
}

/// A gate, as the ledger it shares with others knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// What it is called.
    pub id: String,
    /// The number of its present start.
    pub epoch: u64,
    /// When that was, by the clock of the ledger.
    pub since: Millis,
    /// Until when nobody may take it for dead, by the clock of the ledger.
    pub lease_until: Millis,
    /// Whether that is still to come.
    pub is_alive: bool,
}
