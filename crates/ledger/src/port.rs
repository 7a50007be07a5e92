//! The ports of the ledger.
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

use admit_core::{Age, EntityId, Entry, Fault, Key, Millis, Receipt, RecordedEntry, Seq};
use bytes::Bytes;

use crate::effects::Effects;
use crate::gauges::Gauges;

pub use attachments::{Attachments, BusHolder, Store, StoreId};
pub use claims::{
    ClaimProgress, ClaimRequest, ClaimedEntry, Claims, DONE, FinishedEntry, InvalidLease,
    LEASE_LIFE_MAX, Lease, LeaseAction, LeaseChange, LeaseResult,
};
pub use inbox::{Inbox, InboxFilter, InboxPage, InboxRow, inbox_status};
pub use records::{
    AcceptError, AcceptedEvent, CountsFilter, EventLine, FieldLine, RecordCounts, RecordDetail,
    RecordFilter, RecordLine, RecordReader, Records, RelinkCounts, SourceCounts, StepLine,
};
pub use retention::{ClockConfirmation, KnownTime, Retention, SweepResult};
pub use streams::{Page, StreamEntry, StreamNotifier, Streams, read_or_wait};

/// Boxed future; one per batch, so the allocation does not matter.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Records admissions.
pub trait Admissions: Send + Sync {
    /// Records a batch. Each entry gets its own verdict, in order; one bad entry fails alone.
    ///
    /// The raw body, the key claim, the digest, the in-ledger side effects, the intended effect and
    /// the receipt of an entry are in one commit. Batches that wait at the same time may share a
    /// commit; a lone one does not wait for others.
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>>;
}

/// Reads admissions and documents. Never blocks the writer.
pub trait Reader: Send + Sync {
    /// Returns the number that names this ledger in receipt ids.
    fn tag(&self) -> u32;

    /// Returns the receipt at a seq, whether of an admission, a sighting, a conflict or a refusal.
    fn receipt(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>>;

    /// Returns the receipt of the admission that claimed `key`.
    fn find(&self, key: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>>;

    /// Returns the raw body at a seq.
    fn body(&self, seq: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>>;

    /// Lists receipts in ledger order.
    fn list(&self, filter: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>>;

    /// Lists receipts like [`list`](Self::list), examining at most a number of admissions for a
    /// selective filter; the page holds the cursor to continue from.
    fn page_of(
        &self,
        filter: ReceiptFilter,
        _examined_max: usize,
    ) -> BoxFuture<'_, Result<ReceiptPage, Fault>> {
        // A ledger with few admissions need not limit what it examines.
        let rows_max = filter.rows_max;
        let listed = self.list(filter);
        Box::pin(async move { Ok(ReceiptPage::of(listed.await?, rows_max, None)) })
    }

    /// Returns one projected document.
    fn document(&self, id: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>>;

    /// Lists projected documents of one kind whose entity starts with `prefix`, by entity, after `after`.
    fn documents(
        &self,
        projection: &'static str,
        prefix: String,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>>;

    /// Returns the state and size of the ledger.
    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>>;
}

/// The ports that every gate needs.
pub trait Ledger: Admissions + Reader + Effects {
    /// Whether the last write succeeded and no commit hangs; readiness depends on it.
    fn is_healthy(&self) -> bool;

    /// Why the ledger is not healthy, for operators.
    fn trouble(&self) -> Option<&'static str> {
        (!self.is_healthy()).then_some("the last write to the ledger failed")
    }

    /// Resolves with the reason when the process must stop: its view of the disk can no longer be trusted,
    /// and only recovery at the next start can find out what is there.
    fn must_stop(&self) -> BoxFuture<'_, Fault>;

    /// Duration of a gate's lease, for ledgers that several gates share: how long a gate may be silent
    /// before the others treat it as dead and recover its effects. `None` for single-process ledgers.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Returns the commit metrics, if it has any.
    fn gauges(&self) -> Option<&Gauges> {
        None
    }

    /// Returns further metrics in the Prometheus text format: whole lines, or nothing.
    fn exposition(&self) -> String {
        String::new()
    }
}

/// A ledger with every port.
pub trait WholeLedger:
    Ledger + Streams + StreamNotifier + Claims + Inbox + Retention + Records
{
}

impl<L: Ledger + Streams + StreamNotifier + Claims + Inbox + Retention + Records> WholeLedger
    for L
{
}

/// Which receipts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptFilter {
    /// Only of this door.
    pub door: Option<String>,
    /// Only of this principal.
    pub principal: Option<String>,
    /// Only with these verdicts (`fresh`, `revision`, `conflict`, `refused`); empty means all of them.
    pub verdicts: Vec<String>,
    /// Only after this seq.
    pub after: Seq,
    /// Maximum number of rows.
    pub rows_max: usize,
}

impl ReceiptFilter {
    /// Whether it may exclude admissions.
    pub fn is_selective(&self) -> bool {
        let all = ["fresh", "revision", "conflict", "refused"];
        let has_all = all.iter().all(|word| self.verdicts.iter().any(|verdict| verdict == word));
        self.door.is_some() || self.principal.is_some() || !(self.verdicts.is_empty() || has_all)
    }
}

/// A page of receipts, in ledger order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptPage {
    /// The receipts that match the filter.
    pub receipts: Vec<Receipt>,
    /// Cursor of the next page; `None` at the end of the ledger. Also set if `receipts` is short or
    /// empty because the limit of examined admissions was reached.
    pub next: Option<Seq>,
}

impl ReceiptPage {
    /// A page of these receipts; the ledger was examined up to `examined_to`, or to its end.
    pub fn of(receipts: Vec<Receipt>, rows_max: usize, examined_to: Option<Seq>) -> Self {
        let last = receipts.last().filter(|_| receipts.len() >= rows_max);
        let next = last.map(|receipt| receipt.id.seq).or(examined_to);
        Self { receipts, next }
    }
}

/// State of the ledger, for operators and `/healthz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Stored admissions: fresh ones, revisions, conflicts, refusals.
    pub admissions: u64,
    /// Stored sightings of duplicates.
    pub sightings: u64,
    /// Newest seq.
    pub last_seq: Seq,
    /// Arrival of the oldest stored admission.
    pub oldest_at: Option<Millis>,
    /// Bytes on disk, of the ledger and its WAL.
    pub bytes: u64,
    /// Free bytes inside the file, which are reused before it grows.
    pub free_bytes: u64,
    /// Claimed keys; `None` if they are not counted.
    pub keys: Option<u64>,
    /// Arrival of the oldest stored body.
    pub oldest_body_at: Option<Millis>,
    /// Retention age; `None` for ever.
    pub retain: Option<Age>,
    /// Keys of events up to this wall time of their producer may have been removed.
    pub forgotten_to: Option<Millis>,
    /// Newest time trusted by retention; `None` without retention.
    pub trusted_at: Option<Millis>,
    /// Stored refusals.
    pub refusals: u64,
    /// Storage cost of stored refusals, as counted by their quota.
    pub refusal_bytes: u64,
    /// Bodies removed by retention so far.
    pub removed_bodies: u64,
    /// Keys removed by retention so far.
    pub removed_keys: u64,
    /// Gates of the ledger, live ones first. Empty for single-process ledgers.
    pub gates: Vec<GateStatus>,
}

/// A gate of a shared ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateStatus {
    /// Gate id.
    pub id: String,
    /// Epoch: number of its current start.
    pub epoch: u64,
    /// Time of that start, by the clock of the ledger.
    pub since: Millis,
    /// Expiry of its lease, by the clock of the ledger.
    pub lease_until: Millis,
    /// Whether the lease is alive.
    pub is_alive: bool,
}
