//! The way out of a stream: read on from a place in ledger order, and wait without asking the disk.

use admit_core::{Door, Fault, Key, Millis, Principal, Seq};
use bytes::Bytes;
use tokio::sync::watch;

use super::BoxFuture;

/// Reads streams. Only doors that [are streams](Door::is_stream) have an order to read; any other
/// door reads as empty.
pub trait Streams: Send + Sync {
    /// What was admitted at `door` (fresh or as a revision) after the place `after`, in ledger
    /// order: at most `rows_max` entries, and at most `bytes_max` of bodies and facts unless the
    /// first one alone is larger. It takes as long as the page is, whatever the ledger holds.
    fn read(
        &self,
        door: Door,
        after: Seq,
        rows_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<Page, Fault>>;
}

/// Tells that there is something new in a stream.
pub trait News: Send + Sync {
    /// A receiver that changes after each durable commit that put something into the stream at
    /// `door`, or gave something back to be claimed. It shows the newest such place, zero if there
    /// was none since somebody first asked; it closes when the ledger does. Subscribe, then read,
    /// then wait: nothing is missed.
    fn news(&self, door: &Door) -> watch::Receiver<Seq>;
}

/// Some entries of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// In ledger order.
    pub entries: Vec<StreamEntry>,
    /// Where to read on.
    pub next: Seq,
    /// `true` when a limit ended the page; there is more at once.
    pub more: bool,
}

/// One admission of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its place.
    pub seq: Seq,
    /// Its identity.
    pub key: Key,
    /// `fresh` or `revision`.
    pub verdict: &'static str,
    /// Who sent it.
    pub principal: Principal,
    /// When it was received.
    pub received_at: Millis,
    /// The contract's facts, as compact JSON.
    pub facts: Bytes,
    /// The raw body; `None` once retention has removed it.
    pub body: Option<Bytes>,
}

/// Reads the next page that is not empty, waiting for one if need be. Drop it to give up waiting.
/// The page is empty only when the ledger has closed.
pub async fn read_or_wait<L: Streams + News + ?Sized>(
    ledger: &L,
    door: &Door,
    after: Seq,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    let mut news = ledger.news(door);
    loop {
        let page = ledger.read(door.clone(), after, rows_max, bytes_max).await?;
        if !page.entries.is_empty() || news.changed().await.is_err() {
            return Ok(page);
        }
    }
}
