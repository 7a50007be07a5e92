//! What the publisher does all day: looks for what is due, begins it, hands it over, settles it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admit_bus::{BusHealth, Message, PublishOutcome, Reference};
use admit_contracts::rounds::DOOR;
use admit_core::effect::{IllegalStep, Outcome, EffectState, Step};
use admit_core::json::{self, Object, Value};
use admit_core::entity::{PUBLISH_NOT_WRITTEN, PUBLISH_UNKNOWN};
use admit_core::{Digest, Evidence, Fault, FaultKind, Key, Millis};
use admit_ledger::publications::{Offer, Publication, PublicationStep, UnpublishedRecord};
use bytes::Bytes;
use tokio::time::sleep;

use super::Publisher;
use crate::bus_call::BusCall;
use crate::rounds;

/// So many waiting records are looked at, and so many published in one call.
const LOOKED_AT_MAX: usize = 256;
const BATCH_MAX: usize = 32;

/// A record that goes on changing is published after so many times the pause it should have made.
const SETTLE_TIMES_MAX: i64 = 10;

/// Without a sign it is looked all the same: another gate may have been told of a record.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// The pause while the bus is down, or the ledger cannot be used.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);

/// Pauses between tries to write to a ledger that cannot be written to just now.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Why an attempt whose beginning was not confirmed is not made.
const NOT_BEGUN: &str = "the ledger did not confirm that the attempt began, nothing was sent";

/// Why an attempt that began long ago is not made.
const HELD_UP: &str = "the gate was held up for longer than its lease, nothing was sent";

/// What to do next.
enum Next {
    /// There may be more that is due.
    Look,
    /// Nothing is due before that.
    Pause(Duration),
    /// Nothing waits.
    Rest,
}

/// A record about to be published.
struct Departure {
    offer: Offer,
    payload: Bytes,
}

impl Publisher {
    pub(super) async fn keep_publishing(self: Arc<Self>) {
        let mut was_down = false;
        while !self.stop.is_cancelled() {
            let next = self.look(&mut was_down).await.unwrap_or_else(|fault| {
                tracing::warn!(%fault, "records wait to be published, trying again");
                Next::Pause(TROUBLE_PAUSE)
            });
            match next {
                Next::Look => {}
                Next::Pause(pause) => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = sleep(pause) => {}
                },
                Next::Rest => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = self.woken.notified() => {}
                    () = sleep(IDLE_MAX) => {}
                },
            }
        }
    }

    /// One look at what waits; whatever is due is published.
    async fn look(self: &Arc<Self>, was_down: &mut bool) -> Result<Next, Fault> {
        let waiting = self.ledger.unoffered(DOOR.to_owned(), LOOKED_AT_MAX).await?;
        let now = self.clock.now();
        let Some(first) = waiting.iter().map(|one| self.due_at(one)).min() else {
            return Ok(Next::Rest);
        };
        if first > now {
            let pause = u64::try_from(first.0.saturating_sub(now.0)).unwrap_or(1).max(1);
            return Ok(Next::Pause(Duration::from_millis(pause).min(IDLE_MAX)));
        }
        let health = self.bus.health(&[self.settings.topic.to_string()]).await;
        if let BusHealth::Down { reason } = health {
            if !std::mem::replace(was_down, true) {
                tracing::warn!(reason, "the bus is down, records wait to be published");
            }
            return Ok(Next::Pause(TROUBLE_PAUSE));
        }
        if std::mem::replace(was_down, false) {
            tracing::info!("the bus is there again");
        }
        let due = waiting.iter().filter(|one| self.due_at(one) <= now).take(BATCH_MAX);
        let mut departures = Vec::with_capacity(BATCH_MAX);
        for one in due {
            departures.extend(self.load(one).await?);
        }
        match self.depart(departures).await? {
            0 => Ok(Next::Pause(TROUBLE_PAUSE)),
            _ => Ok(Next::Look),
        }
    }

    /// When a record is to be published: when it has come to rest, or has not for too long.
    fn due_at(&self, one: &UnpublishedRecord) -> Millis {
        let settle = i64::try_from(self.settings.settle.as_millis()).unwrap_or(i64::MAX);
        let rested = one.changed_at.0.saturating_add(settle);
        let waited = one.since.0.saturating_add(settle.saturating_mul(SETTLE_TIMES_MAX));
        Millis(rested.min(waited))
    }

    /// The message of a record, unless it has changed since it was looked at.
    async fn load(&self, one: &UnpublishedRecord) -> Result<Option<Departure>, Fault> {
        let found = self.ledger.record_of(DOOR.to_owned(), one.record_id.clone()).await?;
        let Some(detail) = found.filter(|found| found.line.revision == one.revision) else {
            return Ok(None);
        };
        let mut payload = Vec::new();
        json::write_object(&rounds::message(&detail, self.ledger.tag()), &mut payload);
        let offer = Offer {
            door: DOOR.to_owned(),
            record_id: one.record_id.clone(),
            revision: one.revision,
            topic: self.settings.topic.to_string(),
            partition_key: one.record_id.clone(),
            dedupe_key: dedupe_key(&one.record_id, one.revision),
            digest: Digest::of(&payload),
        };
        Ok(Some(Departure { offer, payload: payload.into() }))
    }

    /// Begins, hands over and settles. Returns how many there were.
    async fn depart(self: &Arc<Self>, departures: Vec<Departure>) -> Result<usize, Fault> {
        if departures.is_empty() {
            return Ok(0);
        }
        let offers: Vec<Offer> = departures.iter().map(|one| one.offer.clone()).collect();
        let (at, since) = (self.clock.now(), Instant::now());
        let begun = match self.ledger.offer(offers, at).await {
            Ok(begun) => begun,
            Err(fault) => {
                if fault.kind == FaultKind::OutcomeUnknown {
                    self.disown(&departures).await;
                }
                return Err(fault);
            }
        };
        let mut flights = Vec::with_capacity(begun.len());
        let mut messages = Vec::with_capacity(begun.len());
        for (publication, Departure { offer, payload }) in begun.into_iter().zip(departures) {
            let Some(publication) = publication else { continue };
            let (partition_key, dedupe_key) = (offer.partition_key, offer.dedupe_key);
            let topic = Arc::clone(&self.settings.topic);
            messages.push(Message { topic, partition_key, dedupe_key, payload, at });
            flights.push(publication);
        }
        if flights.is_empty() {
            return Ok(0);
        }
        self.alive().extend(flights.iter().map(|flight| flight.n));
        // Others may have taken this gate for dead, and a person may have found it absent.
        let is_late = self.ledger.lease().is_some_and(|lease| since.elapsed() > lease);
        let published = match is_late {
            true => self.withhold(&flights),
            false => self.hand_over(&flights, messages).await,
        };
        let steps = flights.iter().zip(&published).map(|(flight, published)| {
            match published {
                PublishOutcome::Committed(_) => self.published.add_one(),
                PublishOutcome::NotWritten { reason } | PublishOutcome::Unknown { reason } => {
                    self.ambiguous.add_one();
                    let Publication { record_id, revision, .. } = flight;
                    tracing::warn!(record_id, revision, reason, "a publication is ambiguous");
                }
            }
            let (outcome, evidence, reason) = self.known(published);
            let attempt = flight.state.attempt();
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            PublicationStep { n: flight.n, step, reason }
        });
        self.settle(steps.collect()).await;
        Ok(flights.len())
    }

    /// Nothing of these reaches the bus.
    fn withhold(&self, flights: &[Publication]) -> Vec<PublishOutcome> {
        let mut alive = self.alive();
        for flight in flights {
            alive.remove(&flight.n);
        }
        let not_written = || PublishOutcome::NotWritten { reason: HELD_UP.to_owned() };
        flights.iter().map(|_| not_written()).collect()
    }

    async fn hand_over(
        self: &Arc<Self>,
        flights: &[Publication],
        messages: Vec<Message>,
    ) -> Vec<PublishOutcome> {
        let publisher = Arc::clone(self);
        let mine: Vec<(u64, u32)> =
            flights.iter().map(|flight| (flight.n, flight.state.attempt())).collect();
        let call = BusCall {
            bus: &self.bus,
            tasks: &self.calls,
            stop: &self.cut,
            patience: self.settings.publish_wait,
        };
        let ended = async move |late: Option<Vec<PublishOutcome>>| {
            let late = late.unwrap_or_default();
            if !late.is_empty() {
                tracing::warn!(
                    count = late.len(),
                    "the bus answered late, that is kept as evidence"
                );
            }
            let steps = mine.iter().zip(&late).map(|((n, attempt), published)| {
                let (_, evidence, reason) = publisher.known(published);
                let step = Step::Evidence { attempt: *attempt, evidence };
                PublicationStep { n: *n, step, reason }
            });
            let steps: Vec<_> = steps.collect();
            if !steps.is_empty() {
                publisher.persist(steps).await;
            }
            // Only now: whoever calls it absent must see what came late.
            let mut alive = publisher.alive();
            for (n, _) in &mine {
                alive.remove(n);
            }
        };
        call.hand_over(messages, ended).await
    }

    /// What an answer of the bus means.
    fn known(&self, published: &PublishOutcome) -> (Outcome, Evidence, Option<&'static str>) {
        match published {
            PublishOutcome::Committed(reference) => {
                let mut there = place(reference);
                there.push("known_at", self.clock.now().to_rfc3339_millis());
                (Outcome::Done, Evidence::of(&there), None)
            }
            PublishOutcome::NotWritten { reason } => {
                (Outcome::Ambiguous, unknown(reason, true), Some(PUBLISH_NOT_WRITTEN))
            }
            PublishOutcome::Unknown { reason } => {
                (Outcome::Ambiguous, unknown(reason, false), Some(PUBLISH_UNKNOWN))
            }
        }
    }

    /// A beginning that may be in the ledger is not acted upon: it is ambiguous there, and proven
    /// not to have been sent. One that another gate has begun is that one's business.
    async fn disown(&self, departures: &[Departure]) {
        // The ledger answers the next step only once it has found out what became of this one.
        self.persist(Vec::new()).await;
        let mut left: Vec<&str> =
            departures.iter().map(|one| one.offer.dedupe_key.as_str()).collect();
        let mut pause = PAUSE_MIN;
        while let Some(key) = left.last() {
            let found = match self.ledger.publication(DOOR.to_owned(), (*key).to_owned()).await {
                Ok(found) => found,
                Err(_) if self.stop.is_cancelled() => return,
                Err(fault) => {
                    tracing::warn!(%fault, "what may have begun is not known yet, trying again");
                    sleep(pause).await;
                    pause = PAUSE_MAX.min(pause * 2);
                    continue;
                }
            };
            left.pop();
            let Some(Publication { n, state, .. }) = found else { continue };
            if !matches!(state, EffectState::InFlight(_)) {
                continue;
            }
            let attempt = state.attempt();
            let (outcome, evidence) = (Outcome::Ambiguous, unknown(NOT_BEGUN, true));
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            let reason = Some(PUBLISH_NOT_WRITTEN);
            self.persist(vec![PublicationStep { n, step, reason }]).await;
        }
    }

    /// Settles, and keeps beside what others have found what is not ours to settle any more: they
    /// took this gate for dead meanwhile.
    async fn settle(&self, batch: Vec<PublicationStep>) {
        let mut beside = Vec::new();
        for (PublicationStep { n, step, reason }, illegal) in self.persist(batch).await {
            let Step::Settle { attempt, evidence, .. } = step else { continue };
            tracing::error!(n, %illegal, "a publication is not where it was left, that is kept beside");
            beside.push(PublicationStep { n, step: Step::Evidence { attempt, evidence }, reason });
        }
        if !beside.is_empty() {
            self.persist(beside).await;
        }
    }

    /// Writes down what is known, again and again until the ledger takes it; those it does not take
    /// are returned with the reason. When the gate ends before, the next start makes them ambiguous.
    async fn persist(&self, batch: Vec<PublicationStep>) -> Vec<(PublicationStep, IllegalStep)> {
        let (mut pause, mut may_be_in) = (PAUSE_MIN, false);
        loop {
            let fault = match self.ledger.step_publications(batch.clone(), self.clock.now()).await {
                Ok(taken) => {
                    let taken = batch.into_iter().zip(taken);
                    let illegal = taken.filter_map(|(step, taken)| Some((step, taken.err()?)));
                    // A commit that was not confirmed may have gone through after all. Where others
                    // may have taken this gate for dead, too much evidence is better than none.
                    let is_in = |illegal| may_be_in && illegal == IllegalStep::NotInFlight;
                    let is_alone = self.ledger.lease().is_none();
                    return illegal.filter(|(_, why)| !(is_alone && is_in(*why))).collect();
                }
                Err(fault) => fault,
            };
            may_be_in |= fault.kind == FaultKind::OutcomeUnknown;
            let count = batch.len();
            tracing::error!(%fault, count, "the ledger cannot settle publications, trying again");
            if self.stop.is_cancelled() {
                return Vec::new();
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }
}

/// What the message about a revision can be found by, on any bus and for ever.
fn dedupe_key(record_id: &str, revision: u64) -> String {
    let revision = revision.to_string();
    Key::derive("rounds/published", &[record_id.as_bytes(), revision.as_bytes()]).to_string()
}

/// A place on the bus, as evidence has it.
pub(super) fn place(reference: &Reference) -> Object<'static> {
    Object::from_iter([
        ("topic", Value::from(reference.topic.clone())),
        ("partition", reference.partition.into()),
        ("offset", reference.offset.clone().into()),
        ("offset_kind", reference.offset_kind.word().into()),
        ("published_at", reference.published_at.map(Millis::to_rfc3339_millis).into()),
    ])
}

/// The evidence that nobody knows; or, where so much is proven, that it is not written.
pub(super) fn unknown(reason: &str, is_not_written: bool) -> Evidence {
    Evidence::of(&Object::from_iter([
        ("reason", Value::from(reason)),
        ("not_written", is_not_written.into()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_has_one_key_for_ever() {
        let key = dedupe_key("rnd-0a1b2c3d4e5f6071", 3);
        assert_eq!(key.len(), 64);
        assert_eq!(key, dedupe_key("rnd-0a1b2c3d4e5f6071", 3));
        assert_ne!(key, dedupe_key("rnd-0a1b2c3d4e5f6071", 4));
        assert_ne!(key, dedupe_key("rnd-0a1b2c3d4e5f6072", 3));
    }
}
