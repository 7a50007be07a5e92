//! Write-behind of document files, for stores that are slower than a producer should wait.
//!
//! ```text
//! commit ─▶ queue ─▶ reply    waits for a slot in the queue; a full queue slows producers down
//!             └─▶ store       retried until written; the ledger notes files that could not be written
//! ```
//!
//! The ledger can regenerate every file, so nothing is lost with the queue: a start restores all files
//! after the last sync. Closing a run waits for its files.

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
use super::document_files::FailedWrites;

/// Number of documents per write.
const BATCH_MAX: usize = 256;
/// Backoff after a failure.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Maximum number of attempts for documents that fail while others can be written. After that, they are
/// left to the periodic retry of unwritten files.
const ATTEMPTS_MAX: u32 = 5;

/// Settings of write-behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBehind {
    /// Maximum number of queued documents.
    pub documents_max: usize,
    /// Maximum wait of a reply for a slot in the queue. Then its receipt counts as not written.
    pub room_wait: Duration,
}

/// A document to be written.
#[derive(Debug)]
struct QueuedDocument {
    filed: StoredDocument,
    raw: Option<Bytes>,
}

/// Queue of documents to be written.
#[derive(Debug)]
pub(super) struct WriteBehindQueue {
    sender: mpsc::Sender<QueuedDocument>,
    receiver: Mutex<Option<mpsc::Receiver<QueuedDocument>>>,
    room_wait: Duration,
    len: AtomicU64,
    writer: TaskTracker,
    stop: CancellationToken,
}

impl WriteBehindQueue {
    pub(super) fn new(settings: &WriteBehind) -> Self {
        let (sender, receiver) = mpsc::channel(settings.documents_max.max(1));
        Self {
            sender,
            receiver: Mutex::new(Some(receiver)),
            room_wait: settings.room_wait,
            len: AtomicU64::new(0),
            writer: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Number of documents that are not written yet.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }
}

impl Ingest {
    /// Queues documents. Those that get no slot in time are noted as unwritten.
    pub(super) async fn queue_files(
        &self,
        behind: &WriteBehindQueue,
        filed: &[&StoredDocument],
        raw: Option<&Bytes>,
    ) -> FailedWrites {
        let until = Instant::now() + behind.room_wait;
        let mut failed = BTreeSet::new();
        for filed in filed {
            let raw = raw.filter(|_| self.raw_path(filed).is_some()).cloned();
            let queued = QueuedDocument { filed: (*filed).clone(), raw };
            behind.len.fetch_add(1, Relaxed);
            let sent = timeout_at(until, behind.sender.send(queued)).await;
            if !matches!(sent, Ok(Ok(()))) {
                behind.len.fetch_sub(1, Relaxed);
                failed.insert(filed.n);
            }
        }
        if !failed.is_empty() {
            tracing::warn!(
                count = failed.len(),
                "write-behind queue is full, documents are noted as unwritten"
            );
            self.note_unwritten(&failed).await;
        }
        FailedWrites::new(failed)
    }

    /// Starts the writer of the queue.
    pub(super) fn start_write_behind(self: &Arc<Self>) {
        let Some(behind) = &self.write_behind else { return };
        let receiver = behind.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        let ingest = Arc::clone(self);
        behind.writer.spawn(async move {
            if let Some(behind) = &ingest.write_behind {
                ingest.run_write_behind(behind, receiver).await;
            }
        });
    }

    /// Writes the queued documents, then stops the writer.
    pub(super) async fn end_write_behind(&self) {
        let Some(behind) = &self.write_behind else { return };
        behind.stop.cancel();
        behind.writer.close();
        behind.writer.wait().await;
        if behind.len() > 0 {
            let count = behind.len();
            tracing::warn!(
                count,
                "documents are not written to the artifacts yet; the next start writes them"
            );
        }
    }

    async fn run_write_behind(
        &self,
        behind: &WriteBehindQueue,
        mut receiver: mpsc::Receiver<QueuedDocument>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut is_stopping = false;
        loop {
            tokio::select! {
                received = receiver.recv_many(&mut batch, BATCH_MAX) => if received == 0 { return },
                () = behind.stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    receiver.close();
                    continue;
                }
            }
            let batch_len = batch.len() as u64;
            let left = self.write_until_done(behind, std::mem::take(&mut batch)).await;
            behind.len.fetch_sub(batch_len - left, Relaxed);
            // At shutdown, the rest would fail too.
            if left > 0 {
                return;
            }
        }
    }

    /// Writes documents until all are written. Returns the number of unwritten ones if the gate stops first.
    async fn write_until_done(
        &self,
        behind: &WriteBehindQueue,
        mut documents: Vec<QueuedDocument>,
    ) -> u64 {
        let (mut backoff, mut attempts, mut noted) = (BACKOFF_MIN, 0, BTreeSet::new());
        let all = documents.len();
        loop {
            let files: Vec<(&StoredDocument, Option<&Bytes>)> =
                documents.iter().map(|one| (&one.filed, one.raw.as_ref())).collect();
            let failed = self.put_files(&files).await;
            documents.retain(|one| failed.contains(&one.filed.n));
            if documents.is_empty() {
                break;
            }
            let new: BTreeSet<u64> = failed.difference(&noted).copied().collect();
            self.note_unwritten(&new).await;
            noted.extend(new);
            attempts += 1;
            // If nothing can be written, the store is down: keep retrying.
            if attempts >= ATTEMPTS_MAX && (documents.len() < all || self.can_write().await) {
                break;
            }
            if behind.stop.is_cancelled() {
                return documents.len() as u64;
            }
            tokio::select! {
                () = sleep(backoff) => {}
                () = behind.stop.cancelled() => {}
            }
            backoff = BACKOFF_MAX.min(backoff * 2);
        }
        let left: BTreeSet<u64> = documents.iter().map(|one| one.filed.n).collect();
        let written: Vec<u64> = noted.difference(&left).copied().collect();
        if !written.is_empty() {
            tracing::info!(count = written.len(), "wrote documents that had failed before");
            self.note_files(FileNote::Written(written)).await;
        }
        0
    }
}
