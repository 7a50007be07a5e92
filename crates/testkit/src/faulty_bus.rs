//! A bus that gets into trouble on demand, over any bus that works.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_bus::{
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Sought,
};
use tokio::sync::watch;

/// What happens to one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is written, and then the connection is cut: the answer is unknown.
    AcceptThenCut,
    /// It is refused, and proven not written.
    Refuse,
    /// It is turned away because there are too many, and proven not written.
    Throttle,
    /// It and what comes after it is held back, unwritten, until [`FaultyBus::release`].
    Stall,
    /// It is written at once, and the answer to its batch is held back until
    /// [`FaultyBus::release`].
    AnswerLate,
    /// The answer is unknown at once, and it is written when [`FaultyBus::land`] says so.
    LandLater,
}

/// Any bus, with trouble. Troubles are for the messages to come, in order; see
/// [`FaultyBus::next`], [`FaultyBus::on`] and [`FaultyBus::always`].
pub struct FaultyBus {
    inner: Arc<dyn Bus>,
    script: Mutex<Script>,
    /// How often things were let go.
    released: watch::Sender<u64>,
    /// How many batches are held back.
    held: watch::Sender<usize>,
}

#[derive(Default)]
struct Script {
    next: VecDeque<Option<Trouble>>,
    on: HashMap<String, Trouble>,
    always: Option<Trouble>,
    health: Option<BusHealth>,
    finds: Option<Found>,
    delivery_timeout: Option<Duration>,
    later: Vec<Message>,
    batches: Vec<usize>,
}

impl Script {
    fn trouble(&mut self, message: &Message) -> Option<Trouble> {
        match self.on.get(&message.dedupe_key) {
            Some(trouble) => Some(*trouble),
            None => self.next.pop_front().unwrap_or(self.always),
        }
    }
}

impl FaultyBus {
    /// A bus over `inner`, without trouble so far.
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

    /// What happens to the next messages, one each; `None` is no trouble.
    pub fn next(&self, troubles: impl IntoIterator<Item = Option<Trouble>>) {
        self.script().next.extend(troubles);
    }

    /// What happens to messages with this dedupe key.
    pub fn on(&self, dedupe_key: &str, trouble: Trouble) {
        self.script().on.insert(dedupe_key.to_owned(), trouble);
    }

    /// What happens to messages that nothing else was said about.
    pub fn always(&self, trouble: Option<Trouble>) {
        self.script().always = trouble;
    }

    /// Ends all trouble to come. What is held back stays so.
    pub fn calm(&self) {
        let mut script = self.script();
        (script.always, script.health, script.finds) = (None, None, None);
        script.next.clear();
        script.on.clear();
    }

    /// What probes say from now on; `None` lets the inner bus say it.
    pub fn set_health(&self, health: Option<BusHealth>) {
        self.script().health = health;
    }

    /// What every search comes to from now on; `None` lets the inner bus search.
    pub fn set_found(&self, found: Option<Found>) {
        self.script().finds = found;
    }

    /// How long an abandoned attempt may land; `None` lets the inner bus say it.
    pub fn set_delivery_timeout(&self, timeout: Option<Duration>) {
        self.script().delivery_timeout = timeout;
    }

    /// Lets go of everything that is held back now.
    pub fn release(&self) {
        self.released.send_modify(|times| *times += 1);
    }

    /// Waits until so many batches are held back.
    pub async fn until_held(&self, batches: usize) {
        let mut held = self.held.subscribe();
        held.wait_for(|held| *held >= batches).await.expect("it is ours");
    }

    /// Writes what was to land later, and says what became of it.
    pub async fn land(&self) -> Vec<Published> {
        let later = std::mem::take(&mut self.script().later);
        self.inner.publish(later).await
    }

    /// How many messages each call of `publish` brought so far.
    pub fn batches(&self) -> Vec<usize> {
        self.script().batches.clone()
    }

    async fn hold(&self) {
        let mut released = self.released.subscribe();
        let held = Held::new(&self.held);
        released.changed().await.expect("it is ours");
        drop(held);
    }
}

/// Counts a batch that is held back, also when whoever published it gives up.
struct Held<'a>(&'a watch::Sender<usize>);

impl<'a> Held<'a> {
    fn new(held: &'a watch::Sender<usize>) -> Self {
        held.send_modify(|held| *held += 1);
        Self(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|held| *held -= 1);
    }
}

/// Messages that go to the inner bus together.
#[derive(Default)]
struct Together {
    messages: Vec<Message>,
    /// The place of each in the answer, and whether its answer is cut.
    places: Vec<(usize, bool)>,
}

impl Together {
    async fn publish(&mut self, bus: &dyn Bus, answers: &mut [Published]) {
        let published = bus.publish(std::mem::take(&mut self.messages)).await;
        for ((place, is_cut), answer) in self.places.drain(..).zip(published) {
            answers[place] = if is_cut { unknown("the connection was cut") } else { answer };
        }
    }
}

fn unknown(reason: &str) -> Published {
    Published::Unknown { reason: reason.to_owned() }
}

fn not_written(reason: &str) -> Published {
    Published::NotWritten { reason: reason.to_owned() }
}

impl Bus for FaultyBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>> {
        Box::pin(async move {
            let troubles: Vec<Option<Trouble>> = {
                let mut script = self.script();
                script.batches.push(batch.len());
                batch.iter().map(|message| script.trouble(message)).collect()
            };
            let mut answers = vec![unknown("no answer"); batch.len()];
            let mut together = Together::default();
            let mut is_late = false;
            for (place, (message, trouble)) in batch.into_iter().zip(troubles).enumerate() {
                match trouble {
                    Some(Trouble::Refuse) => answers[place] = not_written("refused"),
                    Some(Trouble::Throttle) => answers[place] = not_written("throttled"),
                    Some(Trouble::LandLater) => {
                        answers[place] = unknown("the connection was lost");
                        self.script().later.push(message);
                    }
                    None | Some(Trouble::AcceptThenCut | Trouble::Stall | Trouble::AnswerLate) => {
                        if trouble == Some(Trouble::Stall) {
                            together.publish(&*self.inner, &mut answers).await;
                            self.hold().await;
                        }
                        is_late |= trouble == Some(Trouble::AnswerLate);
                        together.places.push((place, trouble == Some(Trouble::AcceptThenCut)));
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

    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>> {
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
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
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
