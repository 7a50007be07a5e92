//! Bus wrapper with injected faults.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_bus::{
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchQuery,
    SearchResult, StoredMessage,
};
use tokio::sync::watch;

/// Fault of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFault {
    /// Written, then the connection is cut: the outcome is unknown.
    AcceptThenCut,
    /// Rejected, proven not written.
    Refuse,
    /// Rejected for overload, proven not written.
    Throttle,
    /// Delayed with all later messages, unwritten, until [`FaultyBus::release`].
    Stall,
    /// Written at once; the reply to its batch is delayed until [`FaultyBus::release`].
    AnswerLate,
    /// The outcome is unknown at once; it is written by [`FaultyBus::land`].
    LandLater,
}

/// Bus with injected faults for the next messages, in order; see [`FaultyBus::next`],
/// [`FaultyBus::on`] and [`FaultyBus::always`].
pub struct FaultyBus {
    inner: Arc<dyn Bus>,
    script: Mutex<Script>,
    /// Number of releases.
    released: watch::Sender<u64>,
    /// Number of delayed batches.
    held: watch::Sender<usize>,
}

#[derive(Default)]
struct Script {
    next: VecDeque<Option<MessageFault>>,
    on: HashMap<String, MessageFault>,
    always: Option<MessageFault>,
    health: Option<BusHealth>,
    finds: Option<SearchResult>,
    delivery_timeout: Option<Duration>,
    later: Vec<Message>,
    batches: Vec<usize>,
}

impl Script {
    fn trouble(&mut self, message: &Message) -> Option<MessageFault> {
        match self.on.get(&message.dedupe_key) {
            Some(trouble) => Some(*trouble),
            None => self.next.pop_front().unwrap_or(self.always),
        }
    }
}

impl FaultyBus {
    /// Wraps `inner`, without faults.
    pub fn over(inner: Arc<dyn Bus>) -> Self {
        Self {
            inner,
            script: Mutex::default(),
            released: watch::Sender::new(0),
            held: watch::Sender::new(0),
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues faults for the next messages, one each; `None` is no fault.
    pub fn next(&self, troubles: impl IntoIterator<Item = Option<MessageFault>>) {
        self.script().next.extend(troubles);
    }

    /// Sets the fault of messages with this dedupe key.
    pub fn on(&self, dedupe_key: &str, trouble: MessageFault) {
        self.script().on.insert(dedupe_key.to_owned(), trouble);
    }

    /// Sets the default fault.
    pub fn always(&self, trouble: Option<MessageFault>) {
        self.script().always = trouble;
    }

    /// Clears all future faults. Delayed batches stay delayed.
    pub fn calm(&self) {
        let mut script = self.script();
        (script.always, script.health, script.finds) = (None, None, None);
        script.next.clear();
        script.on.clear();
    }

    /// Overrides the probe result; `None` probes the inner bus.
    pub fn set_health(&self, health: Option<BusHealth>) {
        self.script().health = health;
    }

    /// Overrides the search result; `None` searches the inner bus.
    pub fn set_found(&self, found: Option<SearchResult>) {
        self.script().finds = found;
    }

    /// Overrides how long an abandoned attempt may land; `None` uses the inner bus.
    pub fn set_delivery_timeout(&self, timeout: Option<Duration>) {
        self.script().delivery_timeout = timeout;
    }

    /// Releases all delayed batches.
    pub fn release(&self) {
        self.released.send_modify(|times| *times += 1);
    }

    /// Waits until this many batches are delayed.
    pub async fn until_held(&self, batches: usize) {
        let mut held = self.held.subscribe();
        held.wait_for(|held| *held >= batches).await.expect("it is ours");
    }

    /// Writes the messages that were to land later and returns the results.
    pub async fn land(&self) -> Vec<PublishOutcome> {
        let later = std::mem::take(&mut self.script().later);
        self.inner.publish(later).await
    }

    /// Number of messages per call of `publish` so far.
    pub fn batches(&self) -> Vec<usize> {
        self.script().batches.clone()
    }

    async fn hold(&self) {
        let mut released = self.released.subscribe();
        let held = DelayedBatch::new(&self.held);
        released.changed().await.expect("it is ours");
        drop(held);
    }
}

/// Counts a delayed batch, also if its publisher gives up.
struct DelayedBatch<'a>(&'a watch::Sender<usize>);

impl<'a> DelayedBatch<'a> {
    fn new(held: &'a watch::Sender<usize>) -> Self {
        held.send_modify(|held| *held += 1);
        Self(held)
    }
}

impl Drop for DelayedBatch<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|held| *held -= 1);
    }
}

/// Messages for one call of the inner bus.
#[derive(Default)]
struct InnerBatch {
    messages: Vec<Message>,
    /// Index of each in the result, and whether its reply is cut.
    places: Vec<(usize, bool)>,
}

impl InnerBatch {
    async fn publish(&mut self, bus: &dyn Bus, answers: &mut [PublishOutcome]) {
        let published = bus.publish(std::mem::take(&mut self.messages)).await;
        for ((place, is_cut), answer) in self.places.drain(..).zip(published) {
            answers[place] = if is_cut { unknown("the connection was cut") } else { answer };
        }
    }
}

fn unknown(reason: &str) -> PublishOutcome {
    PublishOutcome::Unknown { reason: reason.to_owned() }
}

fn not_written(reason: &str) -> PublishOutcome {
    PublishOutcome::NotWritten { reason: reason.to_owned() }
}

impl Bus for FaultyBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        Box::pin(async move {
            let troubles: Vec<Option<MessageFault>> = {
                let mut script = self.script();
                script.batches.push(batch.len());
                batch.iter().map(|message| script.trouble(message)).collect()
            };
            let mut answers = vec![unknown("no answer"); batch.len()];
            let mut together = InnerBatch::default();
            let mut is_late = false;
            for (place, (message, trouble)) in batch.into_iter().zip(troubles).enumerate() {
                match trouble {
                    Some(MessageFault::Refuse) => answers[place] = not_written("refused"),
                    Some(MessageFault::Throttle) => answers[place] = not_written("throttled"),
                    Some(MessageFault::LandLater) => {
                        answers[place] = unknown("the connection was lost");
                        self.script().later.push(message);
                    }
                    None
                    | Some(
                        MessageFault::AcceptThenCut
                        | MessageFault::Stall
                        | MessageFault::AnswerLate,
                    ) => {
                        if trouble == Some(MessageFault::Stall) {
                            together.publish(&*self.inner, &mut answers).await;
                            self.hold().await;
                        }
                        is_late |= trouble == Some(MessageFault::AnswerLate);
                        together.places.push((place, trouble == Some(MessageFault::AcceptThenCut)));
                        together.messages.push(message);
                    }
                }
            }
            together.publish(&*self.inner, &mut answers).await;
            if is_late {
                self.hold().await;
            }
            answers
        })
    }

    fn find(&self, sought: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        let scripted = self.script().finds.clone();
        match scripted {
            Some(found) => Box::pin(std::future::ready(vec![found; sought.len()])),
            None => self.inner.find(sought),
        }
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        self.inner.read(topic, partition, from, rows_max)
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let scripted = self.script().health.clone();
        match scripted {
            Some(health) => Box::pin(std::future::ready(health)),
            None => self.inner.health(topics),
        }
    }

    fn offset_kind(&self) -> OffsetKind {
        self.inner.offset_kind()
    }

    fn delivery_timeout(&self) -> Duration {
        let scripted = self.script().delivery_timeout;
        scripted.unwrap_or_else(|| self.inner.delivery_timeout())
    }

    fn must_stop(&self) -> BoxFuture<'_, String> {
        self.inner.must_stop()
    }
}
