//! What is on its way to the bus: handed over by the ledger's writer, in ledger order.
//!
//! The writer hands over right after the commit that says "in flight", before anybody is answered;
//! so the order on the bus is the order in the ledger, and a producer that hangs up changes nothing.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use admit_core::json::Object;
use admit_core::{Entry, Fault, FaultKind, StoredDocument, Intent, Seq, Verdict};
use admit_ledger::{Handover, RecordedDelivery, FollowUp};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// What became of a flight: the documents of its outcome, once they are committed and filed.
pub(super) type Landed = Result<Vec<StoredDocument>, Fault>;

/// One publish that is to be made.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) seq: Seq,
    pub(super) attempt: u32,
    /// When the commit that says "in flight" was done.
    pub(super) since: Instant,
    /// What to publish; `None` when a copy does what was released: then the first event is read.
    pub(super) cargo: Option<Cargo>,
    pub(super) landed: oneshot::Sender<Landed>,
}

/// An event as it is published.
#[derive(Clone, Debug)]
pub(super) struct Cargo {
    pub(super) plan: Object<'static>,
    pub(super) body: Bytes,
    pub(super) facts: Object<'static>,
}

/// The queue. It holds no more than the gate lets in.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    inner: Mutex<Inner>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: VecDeque<Flight>,
    /// Whoever recorded fetches the other end here.
    landings: HashMap<Seq, oneshot::Receiver<Landed>>,
    /// Attempts that the bus may still be working on.
    alive: HashSet<Seq>,
}

impl Handover for Flights {
    fn recorded(&self, kept: &RecordedDelivery) {
        let FollowUp::Perform { seq, attempt } = kept.follow_up else { return };
        let Entry::Event(event) = &kept.recorded.entry else { return };
        let cargo = match (&kept.recorded.verdict, &event.effect) {
            (Verdict::Fresh { .. }, Some(Intent { plan, .. })) => {
                let (plan, facts) = (plan.clone(), event.facts.clone());
                Some(Cargo { plan, body: event.body.clone(), facts })
            }
            _ => None,
        };
        let (landed, landing) = oneshot::channel();
        let mut inner = self.lock();
        inner.alive.insert(seq);
        inner.landings.insert(seq, landing);
        inner.waiting.push_back(Flight { seq, attempt, since: Instant::now(), cargo, landed });
        drop(inner);
        self.arrived.notify_one();
    }
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever waits, at most `flights_max`, in ledger order.
    pub(super) async fn next(&self, flights_max: usize) -> Vec<Flight> {
        loop {
            let arrived = self.arrived.notified();
            let waiting = self.take(flights_max);
            if !waiting.is_empty() {
                return waiting;
            }
            arrived.await;
        }
    }

    fn take(&self, flights_max: usize) -> Vec<Flight> {
        let mut inner = self.lock();
        let count = inner.waiting.len().min(flights_max.max(1));
        inner.waiting.drain(..count).collect()
    }

    /// Waits for the outcome of what this delivery has recorded.
    pub(super) async fn landing(&self, seq: Seq) -> Landed {
        let landing = self.lock().landings.remove(&seq);
        let lost = || Fault::new(FaultKind::OutcomeUnknown, "the outcome of this publish is lost");
        match landing {
            Some(landing) => landing.await.unwrap_or_else(|_| Err(lost())),
            None => Err(lost()),
        }
    }

    /// The bus has answered, or has been given up: the attempt of this process is over.
    pub(super) fn ended(&self, seqs: impl IntoIterator<Item = Seq>) {
        let mut inner = self.lock();
        for seq in seqs {
            inner.alive.remove(&seq);
        }
    }

    /// Whether the bus may still be working on it.
    pub(super) fn is_alive(&self, seq: Seq) -> bool {
        self.lock().alive.contains(&seq)
    }
}
