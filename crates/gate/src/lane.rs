//! A peer that sends one event after another without waiting: what it has in work, and its answers.
//!
//! Whatever has been read goes to the ledger as one batch. While a batch is being committed the next
//! one gathers, so the more a peer sends ahead, the more of its events share a commit. At most two
//! batches are under way: one in the ledger and one that is vetted meanwhile.
//!
//! Invariants:
//! * Nothing is answered before the commit that holds it; every body taken gets exactly one answer.
//! * Whoever holds a lane reads on only while it [has room](Lane::has_room): not reading is how a
//!   peer is held back.
//! * What was handed to the ledger is finished, also when the lane is dropped.

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

use crate::finish::Finishing;
use crate::gate::Gate;
use crate::limits::Hint;
use crate::parts::DoorMount;
use crate::pipeline;
use crate::request_permit::{FULL, NotAdmitted, TOO_FAST};
use crate::room::Inside;

/// Most batches of one lane under way at once.
const BATCHES_MAX: usize = 2;

/// How often a lane that found the gate full looks whether there is room again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Who sends on a lane.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// In whose name.
    pub(crate) principal: Principal,
    /// Whose rate it counts for.
    pub(crate) place: usize,
}

/// The events of one peer between reading and answering.
pub(crate) struct Lane {
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
    sender: Sender,
    /// Vetted next, together.
    waiting: Vec<(Bytes, Inside)>,
    /// Read, but the whole gate was full; since when.
    outside: VecDeque<(Bytes, Instant)>,
    batches: FuturesUnordered<BoxFuture<'static, Vec<Reply>>>,
    in_flight: usize,
}

impl Lane {
    pub(crate) fn new(gate: Arc<Gate>, door: Arc<DoorMount>, sender: Sender) -> Self {
        Self {
            gate,
            door,
            sender,
            waiting: Vec::new(),
            outside: VecDeque::new(),
            batches: FuturesUnordered::new(),
            in_flight: 0,
        }
    }

    /// Whether another event may be read.
    pub(crate) fn has_room(&self) -> bool {
        let taken = self.in_flight + self.waiting.len() + self.outside.len();
        self.outside.is_empty() && taken < self.gate.limits.stream_in_flight_max
    }

    /// Whether everything that was taken has been answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.waiting.is_empty() && self.outside.is_empty()
    }

    /// Takes one event, or says at once why not.
    pub(crate) fn take(&mut self, body: Bytes) -> Option<Reply> {
        let gate = &self.gate;
        if body.len() > gate.limits.body_bytes_max {
            let message = "the event is larger than this door takes";
            return Some(self.refuse(&body, Code::BodyTooLarge, message));
        }
        if let Err(exceeded) = gate.rates.allow(self.sender.place, gate.clock.now()) {
            let hint = Hint {
                seed: pipeline::body_seed(&body),
                wait_seconds: exceeded.retry_after_seconds,
            };
            let NotAdmitted { code, message, .. } = TOO_FAST;
            return Some(gate.refuse_about(&self.door, &body, code, message, hint));
        }
        match gate.room.enter(self.sender.place, body.len()) {
            Some(inside) if self.outside.is_empty() => self.waiting.push((body, inside)),
            _ => self.outside.push_back((body, Instant::now())),
        }
        None
    }

    /// Says in the contract's words why something is not taken.
    pub(crate) fn refuse(&self, body: &[u8], code: Code, message: &str) -> Reply {
        // Whatever is too large is not read just to find out whose it is.
        let named = if body.len() > self.gate.limits.body_bytes_max { &[] } else { body };
        self.gate.refuse_about(&self.door, named, code, message, pipeline::body_seed(named))
    }

    /// Sends off what has gathered, unless enough is under way.
    pub(crate) fn send_off(&mut self) {
        if self.waiting.is_empty() || self.batches.len() >= BATCHES_MAX {
            return;
        }
        let batch = std::mem::take(&mut self.waiting);
        self.in_flight += batch.len();
        let (gate, door) = (Arc::clone(&self.gate), Arc::clone(&self.door));
        let sender = (self.sender.principal.clone(), self.sender.place);
        self.batches.push(answered(gate, door, sender, batch).boxed());
    }

    /// The next answers. Waits for ever when nothing is under way. Nothing is lost when it is
    /// dropped before it resolves.
    pub(crate) async fn answers(&mut self) -> Vec<Reply> {
        loop {
            self.send_off();
            if self.outside.is_empty() {
                return match self.batches.next().await {
                    Some(replies) => self.came_back(replies),
                    None => std::future::pending().await,
                };
            }
            tokio::select! {
                biased;
                Some(replies) = self.batches.next() => return self.came_back(replies),
                () = sleep(LOOK_AGAIN) => {
                    if let Some(refused) = self.let_in() {
                        return vec![refused];
                    }
                }
            }
        }
    }

    fn came_back(&mut self, replies: Vec<Reply>) -> Vec<Reply> {
        self.in_flight -= replies.len();
        self.send_off();
        replies
    }

    /// Lets in whoever fits, in order; the first who has waited too long is turned away.
    fn let_in(&mut self) -> Option<Reply> {
        while let Some((body, since)) = self.outside.pop_front() {
            match self.gate.room.enter(self.sender.place, body.len()) {
                Some(inside) => self.waiting.push((body, inside)),
                None if since.elapsed() < self.door.answer_max(&self.gate.limits) => {
                    self.outside.push_front((body, since));
                    return None;
                }
                None => {
                    return Some(self.refuse(&body, FULL.code, FULL.message));
                }
            }
        }
        None
    }
}

/// Answers a batch: each event its own reply, whatever happens on the way.
async fn answered(
    gate: Arc<Gate>,
    door: Arc<DoorMount>,
    (principal, place): (Principal, usize),
    batch: Vec<(Bytes, Inside)>,
) -> Vec<Reply> {
    let bodies: Vec<Bytes> = batch.iter().map(|(body, _)| body.clone()).collect();
    let work = {
        let (gate, door) = (Arc::clone(&gate), Arc::clone(&door));
        async move {
            let received_at = gate.clock.now();
            let (bodies, inside): (Vec<Bytes>, Vec<Inside>) = batch.into_iter().unzip();
            let submission = |body| Submission {
                principal: principal.clone(),
                received_at,
                body,
                headers: Vec::new(),
                nonce: [0; 16],
            };
            let submissions = bodies.into_iter().map(submission).collect();
            let replies = pipeline::admit(&gate, &door, place, submissions).await;
            drop(inside);
            replies
        }
    };
    let work = AssertUnwindSafe(Finishing::new(gate.tasks.clone(), work)).catch_unwind();
    let (code, message) = match timeout(door.answer_max(&gate.limits), work).await {
        Ok(Ok(replies)) if replies.len() == bodies.len() => return replies,
        Ok(Ok(_)) => (Code::InternalError, "some events got no reply; a retry finds out"),
        Ok(Err(_)) => {
            gate.metrics().panics.add_one();
            tracing::error!(door = %door.door, "a batch of events panicked");
            (Code::InternalError, "a defect of this gate; a retry finds out")
        }
        Err(_) => {
            gate.metrics().answers_late.add_one();
            (Code::OutcomeUnknown, "the ledger did not answer in time; a retry finds out")
        }
    };
    let refuse =
        |body: &Bytes| gate.refuse_about(&door, body, code, message, pipeline::body_seed(body));
    bodies.iter().map(refuse).collect()
}
