//! Files that are written behind the reply: for stores that take longer than a producer should wait.
//!
//! ```text
//! commit ─▶ reply            a place in the queue is waited for; a full one holds producers back
//!       └─▶ queue ─▶ store   tried until it is there; the ledger knows what could not be written
//! ```
//!
//! The ledger can make every file again, so nothing is lost with the queue: a start restores whatever
//! comes after the last sync. Closing a run waits for its files.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_core::StoredDocument;
use admit_ledger::FileNote;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Ingest;
use super::files::Written;

/// Documents that are written at a time.
const PAGE: usize = 256;
/// The pause after a failure, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// So often documents are tried that fail while others can be written. Then they are left to those
/// who mend.
const TRIES_MAX: u32 = 5;

/// How far files may be behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBehind {
    /// Most documents that wait for the store.
    pub documents_max: usize,
    /// How long a reply waits for a place among them. Then its receipt counts as not written.
    pub room_wait: Duration,
}

/// A document that waits for the store.
#[derive(Debug)]
struct Late {
    filed: StoredDocument,
    raw: Option<Bytes>,
}

/// What waits for the store.
#[derive(Debug)]
pub(super) struct Behind {
    sender: mpsc::Sender<Late>,
    receiver: Mutex<Option<mpsc::Receiver<Late>>>,
    room_wait: Duration,
    waiting: AtomicU64,
    writer: TaskTracker,
    ending: CancellationToken,
}

impl Behind {
    pub(super) fn new(settings: &WriteBehind) -> Self {
        let (sender, receiver) = mpsc::channel(settings.documents_max.max(1));
        Self {
            sender,
            receiver: Mutex::new(Some(receiver)),
            room_wait: settings.room_wait,
            waiting: AtomicU64::new(0),
            writer: TaskTracker::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Documents that are not in the store yet.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

impl Ingest {
    /// Lets documents wait for the store. Those that find no place in time are noted as not written.
    pub(super) async fn queue_files(
        &self,
        behind: &Behind,
        filed: &[&StoredDocument],
        raw: Option<&Bytes>,
    ) -> Written {
        let until = Instant::now() + behind.room_wait;
        let mut failed = BTreeSet::new();
        for filed in filed {
            let raw = raw.filter(|_| self.raw_path(filed).is_some()).cloned();
            let late = Late { filed: (*filed).clone(), raw };
            behind.waiting.fetch_add(1, Relaxed);
            let queued = timeout_at(until, behind.sender.send(late)).await;
            if !matches!(queued, Ok(Ok(()))) {
                behind.waiting.fetch_sub(1, Relaxed);
                failed.insert(filed.n);
            }
        }
        if !failed.is_empty() {
            tracing::warn!(
                count = failed.len(),
                "the artifacts are too far behind for more documents"
            );
            self.note_unwritten(&failed).await;
        }
        Written::failing(failed)
    }

    /// Begins to write what waits.
    pub(super) fn start_writing(self: &Arc<Self>) {
        let Some(behind) = &self.behind else { return };
        let receiver = behind.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        let ingest = Arc::clone(self);
        behind.writer.spawn(async move {
            if let Some(behind) = &ingest.behind {
                ingest.keep_writing(behind, receiver).await;
            }
        });
    }

    /// Writes what waits, and then no more.
    pub(super) async fn end_writing(&self) {
        let Some(behind) = &self.behind else { return };
        behind.ending.cancel();
        behind.writer.close();
        behind.writer.wait().await;
        if behind.waiting() > 0 {
            let count = behind.waiting();
            tracing::warn!(
                count,
                "documents are not in the artifacts yet; the next start puts them there"
            );
        }
    }

    async fn keep_writing(&self, behind: &Behind, mut receiver: mpsc::Receiver<Late>) {
        let mut batch = Vec::with_capacity(PAGE);
        let mut is_ending = false;
        loop {
            tokio::select! {
                received = receiver.recv_many(&mut batch, PAGE) => if received == 0 { return },
                () = behind.ending.cancelled(), if !is_ending => {
                    is_ending = true;
                    receiver.close();
                    continue;
                }
            }
            let taken = batch.len() as u64;
            let left = self.write_behind(behind, std::mem::take(&mut batch)).await;
            behind.waiting.fetch_sub(taken - left, Relaxed);
            // When nothing can be written at the end, the rest would only take longer.
            if left > 0 {
                return;
            }
        }
    }

    /// Writes documents until they are there. Says how many are not, because the gate ends.
    async fn write_behind(&self, behind: &Behind, mut late: Vec<Late>) -> u64 {
        let (mut pause, mut tries, mut noted) = (PAUSE_MIN, 0, BTreeSet::new());
        let all = late.len();
        loop {
            let documents: Vec<(&StoredDocument, Option<&Bytes>)> =
                late.iter().map(|late| (&late.filed, late.raw.as_ref())).collect();
            let failed = self.put_files(&documents).await;
            late.retain(|late| failed.contains(&late.filed.n));
            if late.is_empty() {
                break;
            }
            let new: BTreeSet<u64> = failed.difference(&noted).copied().collect();
            self.note_unwritten(&new).await;
            noted.extend(new);
            tries += 1;
            // As long as nothing at all can be written the store is down, and is waited for.
            if tries >= TRIES_MAX && (late.len() < all || self.can_write().await) {
                break;
            }
            if behind.ending.is_cancelled() {
                return late.len() as u64;
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = behind.ending.cancelled() => {}
            }
            pause = PAUSE_MAX.min(pause * 2);
        }
        let left: BTreeSet<u64> = late.iter().map(|late| late.filed.n).collect();
        let mended: Vec<u64> = noted.difference(&left).copied().collect();
        if !mended.is_empty() {
            tracing::info!(count = mended.len(), "documents were written after all");
            self.note_files(FileNote::Written(mended)).await;
        }
        0
    }
}
