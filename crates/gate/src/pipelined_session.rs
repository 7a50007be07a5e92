//! Pipelined session: events of a peer that sends without waiting for replies.
//!
//! All events read so far are handed to the ledger as one batch. While a batch is being committed, the
//! next one accumulates, so a faster peer gets larger commits. At most two batches are in flight: one in
//! the ledger, and one being vetted.
//!
//! Invariants:
//! * A reply follows the commit of its event; every accepted body gets exactly one reply.
//! * The owner of a session reads only while it [has room](PipelinedSession::has_room): backpressure on
//!   the peer.
//! * A write handed to the ledger is completed, also when the session is dropped.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use admit_contracts::Reply;
use admit_core::{Code, Principal, Submission};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, sleep, timeout};

use crate::admission_limiter::AdmissionPermit;
use crate::builder::DoorMount;
use crate::detach_on_drop::RunToCompletion;
use crate::gate::Gate;
use crate::limits::Hint;
use crate::pipeline;
use crate::request_permit::{NotAdmitted, OVERLOADED, RATE_EXCEEDED};

/// Maximum number of batches of one session in flight.
const BATCHES_MAX: usize = 2;

/// Retry interval of a session while the gate is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Sender of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionSender {
    /// Principal in whose name the events are sent.
    pub(crate) principal: Principal,
    /// Index of the principal whose rate limit applies.
    pub(crate) index: usize,
}

/// Events of one peer between reading and reply.
pub(crate) struct PipelinedSession {
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
    sender: SessionSender,
    /// Next batch.
    waiting: Vec<(Bytes, AdmissionPermit)>,
    /// Events read while the gate was full, with the time of arrival.
    not_admitted: VecDeque<(Bytes, Instant)>,
    batches: FuturesUnordered<BoxFuture<'static, Vec<Reply>>>,
    in_flight: usize,
}

impl PipelinedSession {
    pub(crate) fn new(gate: Arc<Gate>, door: Arc<DoorMount>, sender: SessionSender) -> Self {
        Self {
            gate,
            door,
            sender,
            waiting: Vec::new(),
            not_admitted: VecDeque::new(),
            batches: FuturesUnordered::new(),
            in_flight: 0,
        }
    }

    /// Whether another event may be read.
    pub(crate) fn has_room(&self) -> bool {
        let held = self.in_flight + self.waiting.len() + self.not_admitted.len();
        self.not_admitted.is_empty() && held < self.gate.limits.stream_in_flight_max
    }

    /// Whether all accepted events have their reply.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty() && self.not_admitted.is_empty()
    }

    /// Submits one event. Returns a reply at once if it is refused.
    pub(crate) fn submit(&mut self, body: Bytes) -> Option<Reply> {
        let gate = &self.gate;
        if body.len() > gate.limits.body_bytes_max {
            let message = "the event exceeds limits.body_bytes_max";
            return Some(self.refuse(&body, Code::BodyTooLarge, message));
        }
        if let Err(exceeded) = gate.rates.allow(self.sender.index, gate.clock.now()) {
            let hint = Hint {
                seed: pipeline::body_seed(&body),
                wait_seconds: exceeded.retry_after_seconds,
            };
            let NotAdmitted { code, message, .. } = RATE_EXCEEDED;
            return Some(gate.refuse_about(&self.door, &body, code, message, hint));
        }
        match gate.admission_limiter.try_acquire(self.sender.index, body.len()) {
            Some(permit) if self.not_admitted.is_empty() => self.waiting.push((body, permit)),
            _ => self.not_admitted.push_back((body, Instant::now())),
        }
        None
    }

    /// Renders a refusal in the format of the contract.
    pub(crate) fn refuse(&self, body: &[u8], code: Code, message: &str) -> Reply {
        // A body that is too large is not parsed just for its event id.
        let readable = if body.len() > self.gate.limits.body_bytes_max { &[] } else { body };
        self.gate.refuse_about(&self.door, readable, code, message, pipeline::body_seed(readable))
    }

    /// Starts a batch of the waiting events, unless enough batches are in flight.
    pub(crate) fn start_batch(&mut self) {
        if self.waiting.is_empty() || self.batches.len() >= BATCHES_MAX {
            return;
        }
        let batch = std::mem::take(&mut self.waiting);
        self.in_flight += batch.len();
        let (gate, door) = (Arc::clone(&self.gate), Arc::clone(&self.door));
        let sender = (self.sender.principal.clone(), self.sender.index);
        self.batches.push(process_batch(gate, door, sender, batch).boxed());
    }

    /// Waits for the next replies; forever if nothing is in flight. Cancel safe.
    pub(crate) async fn next_replies(&mut self) -> Vec<Reply> {
        loop {
            self.start_batch();
            if self.not_admitted.is_empty() {
                return match self.batches.next().await {
                    Some(replies) => self.complete_batch(replies),
                    None => std::future::pending().await,
                };
            }
            tokio::select! {
                biased;
                Some(replies) = self.batches.next() => return self.complete_batch(replies),
                () = sleep(RETRY_INTERVAL) => {
                    if let Some(refused) = self.admit_delayed() {
                        return vec![refused];
                    }
                }
            }
        }
    }

    fn complete_batch(&mut self, replies: Vec<Reply>) -> Vec<Reply> {
        self.in_flight -= replies.len();
        self.start_batch();
        replies
    }

    /// Admits delayed events that fit now, in order. Refuses the first one that has waited too long.
    fn admit_delayed(&mut self) -> Option<Reply> {
        while let Some((body, since)) = self.not_admitted.pop_front() {
            match self.gate.admission_limiter.try_acquire(self.sender.index, body.len()) {
                Some(permit) => self.waiting.push((body, permit)),
                None if since.elapsed() < self.door.answer_max(&self.gate.limits) => {
                    self.not_admitted.push_front((body, since));
                    return None;
                }
                None => {
                    return Some(self.refuse(&body, OVERLOADED.code, OVERLOADED.message));
                }
            }
        }
        None
    }
}

/// Processes a batch. Returns one reply for each event, also after a panic or timeout.
async fn process_batch(
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
    (principal, index): (Principal, usize),
    batch: Vec<(Bytes, AdmissionPermit)>,
) -> Vec<Reply> {
    let bodies: Vec<Bytes> = batch.iter().map(|(body, _)| body.clone()).collect();
    let work = {
        let (gate, door) = (Arc::clone(&gate), Arc::clone(&door));
        async move {
            let received_at = gate.clock.now();
            let (bodies, permits): (Vec<Bytes>, Vec<AdmissionPermit>) = batch.into_iter().unzip();
            let submission = |body| Submission {
                principal: principal.clone(),
                received_at,
                body,
                headers: Vec::new(),
                nonce: [0; 16],
            };
            let submissions = bodies.into_iter().map(submission).collect();
            let replies = pipeline::admit(&gate, &door, index, submissions).await;
            drop(permits);
            replies
        }
    };
    let work = AssertUnwindSafe(RunToCompletion::new(gate.tasks.clone(), work)).catch_unwind();
    let (code, message) = match timeout(door.answer_max(&gate.limits), work).await {
        Ok(Ok(replies)) if replies.len() == bodies.len() => return replies,
        Ok(Ok(_)) => (
            Code::InternalError,
            "internal error: some events have no reply; a retry returns their result",
        ),
        Ok(Err(_)) => {
            gate.metrics().panics.add_one();
            tracing::error!(door = %door.door, "a batch of events panicked");
            (Code::InternalError, "internal error of this gate; a retry returns the result")
        }
        Err(_) => {
            gate.metrics().answers_late.add_one();
            (Code::OutcomeUnknown, "the ledger did not reply in time; a retry returns the result")
        }
    };
    let refuse =
        |body: &Bytes| gate.refuse_about(&door, body, code, message, pipeline::body_seed(body));
    bodies.iter().map(refuse).collect()
}
