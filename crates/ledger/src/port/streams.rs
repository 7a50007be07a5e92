//! Port of streams: reads entries in ledger order, and waits for new ones without polling the disk.

use admit_core::{Door, Fault, Key, Millis, Principal, Seq};
use bytes::Bytes;
use tokio::sync::watch;

use super::BoxFuture;

/// Reads streams. Only doors that [are streams](Door::is_stream) have one; other doors read as empty.
pub trait Streams: Send + Sync {
    /// Returns admissions at `door` (fresh or revision) after the seq `after`, in ledger order: at most
    /// `rows_max` entries and `bytes_max` of bodies and facts, unless the first entry alone is larger. The
    /// cost depends on the page only, not on the size of the ledger.
    fn read(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Page, Fault>>;
}

/// Notifies about new entries of a stream.
pub trait StreamNotifier: Send + Sync {
    /// Returns a receiver that changes after each durable commit that added an entry to the stream at
    /// `door`, or released one to be claimed again. It holds the newest such seq, zero if there was none
    /// since the first subscription, and closes with the ledger. Subscribe, then read, then wait: nothing
    /// is missed.
    fn subscribe(&self, door: &Door) -> watch::Receiver<Seq>;
}

/// Page of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In ledger order.
    pub entries: Vec<StreamEntry>,
    /// Cursor of the next page.
    pub next: Seq,
    /// `true` if a limit ended the page and there is more.
    pub more: bool,
}

/// Admission of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its seq.
    pub seq: Seq,
    /// Its key.
    pub key: Key,
    /// `fresh` or `revision`.
    pub verdict: &'static str,
    /// Principal that sent it.
    pub principal: Principal,
    /// When it was received.
    pub received_at: Millis,
    /// The contract's facts, as compact JSON.
    pub facts: Bytes,
    /// The raw body; `None` once retention has removed it.
    pub body: Option<Bytes>,
}

/// Reads the next page that is not empty, waiting if necessary. Drop the future to stop waiting. The page
/// is empty only if the ledger has closed.
pub async fn read_or_wait<L: Streams + StreamNotifier + ?Sized>(
    ledger: &L,
    door: &Door,
    after: Seq,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    let mut changes = ledger.subscribe(door);
    loop {
        let page = ledger.read(door.clone(), after, rows_max, bytes_max).await?;
        if !page.entries.is_empty() || changes.changed().await.is_err() {
            return Ok(page);
        }
    }
}
