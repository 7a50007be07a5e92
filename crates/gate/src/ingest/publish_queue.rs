//! Publish queue: events to be published, enqueued by the ledger's writer in ledger order.
//!
//! The writer enqueues right after the commit of "in flight", before any reply. So the order on the bus
//! is the order of the ledger, and a disconnecting producer has no influence.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use admit_core::json::Object;
use admit_core::{Entry, Fault, FaultKind, Intent, Seq, StoredDocument, Verdict};
use admit_ledger::{FollowUp, Handover, RecordedDelivery};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Result of a publish: the documents of its outcome, after commit and file write.
pub(super) type PublishResult = Result<Vec<StoredDocument>, Fault>;

/// A publish to be made.
#[derive(Debug)]
pub(super) struct QueuedPublish {
    pub(super) seq: Seq,
    pub(super) attempt: u32,
    /// Time of the "in flight" commit.
    pub(super) since: Instant,
    /// Payload; `None` if a duplicate repeats a released publish: then the first event is read.
    pub(super) payload: Option<PublishPayload>,
    pub(super) result_sender: oneshot::Sender<PublishResult>,
}

/// Payload of a publish.
#[derive(Clone, Debug)]
pub(super) struct PublishPayload {
    pub(super) plan: Object<'static>,
    pub(super) body: Bytes,
    pub(super) facts: Object<'static>,
}

/// The queue. Its length is bounded by the admission limiter.
#[derive(Debug, Default)]
pub(crate) struct PublishQueue {
    inner: Mutex<PublishQueueState>,
    enqueued: Notify,
}

#[derive(Debug, Default)]
struct PublishQueueState {
    waiting: VecDeque<QueuedPublish>,
    /// Result receivers, each taken by the delivery that recorded the event.
    results: HashMap<Seq, oneshot::Receiver<PublishResult>>,
    /// Attempts whose publish call may still be in progress.
    active: HashSet<Seq>,
}

impl Handover for PublishQueue {
    fn recorded(&self, delivery: &RecordedDelivery) {
        let FollowUp::Perform { seq, attempt } = delivery.follow_up else { return };
        let Entry::Event(event) = &delivery.recorded.entry else { return };
        let payload = match (&delivery.recorded.verdict, &event.effect) {
            (Verdict::Fresh { .. }, Some(Intent { plan, .. })) => {
                let (plan, facts) = (plan.clone(), event.facts.clone());
                Some(PublishPayload { plan, body: event.body.clone(), facts })
            }
            _ => None,
        };
        let (result_sender, result) = oneshot::channel();
        let mut inner = self.lock();
        inner.active.insert(seq);
        inner.results.insert(seq, result);
        inner.waiting.push_back(QueuedPublish {
            seq,
            attempt,
            since: Instant::now(),
            payload,
            result_sender,
        });
        drop(inner);
        self.enqueued.notify_one();
    }
}

impl PublishQueue {
    fn lock(&self) -> MutexGuard<'_, PublishQueueState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for queued publishes. Returns at most `batch_max`, in ledger order.
    pub(super) async fn next(&self, batch_max: usize) -> Vec<QueuedPublish> {
        loop {
            let enqueued = self.enqueued.notified();
            let waiting = self.take(batch_max);
            if !waiting.is_empty() {
                return waiting;
            }
            enqueued.await;
        }
    }

    fn take(&self, batch_max: usize) -> Vec<QueuedPublish> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(batch_max.max(1));
        inner.waiting.drain(..count).collect()
    }

    /// Waits for the result of the publish of `seq`.
    pub(super) async fn wait_for(&self, seq: Seq) -> PublishResult {
        let result = self.lock().results.remove(&seq);
        let lost =
            || Fault::new(FaultKind::OutcomeUnknown, "the outcome of this publish is unknown");
        match result {
            Some(result) => result.await.unwrap_or_else(|_| Err(lost())),
            None => Err(lost()),
        }
    }

    /// Marks publish calls as ended: completed, or timed out.
    pub(super) fn mark_ended(&self, seqs: impl IntoIterator<Item = Seq>) {
        let mut inner = self.lock();
        for seq in seqs {
            inner.active.remove(&seq);
        }
    }

    /// Whether the publish call of `seq` may still be in progress.
    pub(super) fn is_active(&self, seq: Seq) -> bool {
        self.lock().active.contains(&seq)
    }
}
