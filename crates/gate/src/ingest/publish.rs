//! The publisher: whatever waits is one call to the bus, and its outcomes are one commit.
//!
//! Calls are made one after the other, so the order of the ledger is the order on the bus; while
//! one is settled the next is under way.

use std::sync::Arc;
use std::time::Duration;

use admit_bus::{Message, PublishOutcome};
use admit_contracts::ingestion_gate::publication::{self, PublishPlan};
use admit_core::effect::{Outcome, Step};
use admit_core::json::{self, Object, Value};
use admit_core::{Evidence, Fault, FaultKind, Seq};
use admit_ledger::{SettledEffect, Settlement};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::Ingest;
use super::flights::{Cargo, Flight, Landed};
use crate::bus_call::BusCall;

/// Pauses between tries to write to a ledger that cannot be written to just now.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is said to a producer whose event is published and not settled.
const NOT_SETTLED: &str = "the event was handed to the bus, but the ledger cannot take the outcome just now; send it again";

impl Ingest {
    pub(super) fn keep_publishing(self: Arc<Self>) -> super::Work {
        Box::pin(async move {
            loop {
                let flights = self.flights.next(self.settings.publish_batch_max).await;
                self.publish(flights).await;
            }
        })
    }

    /// Publishes a batch and has its outcomes settled.
    async fn publish(self: &Arc<Self>, flights: Vec<Flight>) {
        let mut loaded = Vec::with_capacity(flights.len());
        let mut messages = Vec::with_capacity(flights.len());
        let mut unloaded = Vec::new();
        for mut flight in flights {
            match self.load(&mut flight).await {
                Ok((message, facts)) => {
                    messages.push(message);
                    loaded.push((flight, facts));
                }
                Err(reason) => {
                    // It never reaches the bus, so nothing of it can land.
                    self.flights.ended([flight.seq]);
                    unloaded.push(((flight, None), PublishOutcome::NotWritten { reason }));
                }
            }
        }
        let published = self.hand_over(&loaded, messages).await;
        let mut outcomes: Vec<_> = loaded
            .into_iter()
            .zip(published)
            .map(|((flight, facts), published)| ((flight, Some(facts)), published))
            .collect();
        outcomes.append(&mut unloaded);
        for (_, published) in &outcomes {
            match published {
                PublishOutcome::Committed(_) => self.published.add_one(),
                PublishOutcome::NotWritten { .. } | PublishOutcome::Unknown { .. } => {
                    self.ambiguous.add_one();
                }
            }
        }
        self.health.published(outcomes.iter().map(|(_, published)| published));
        let ingest = Arc::clone(self);
        self.tasks.spawn(async move { ingest.settle(outcomes).await });
    }

    /// The message of a flight, and the facts of its event.
    async fn load(&self, flight: &mut Flight) -> Result<(Message, Object<'static>), String> {
        // Others may have taken this gate for dead, and a person may have found the publish absent.
        if self.reader.lease().is_some_and(|lease| flight.since.elapsed() > lease) {
            return Err("the gate was held up for longer than its lease".to_owned());
        }
        let Cargo { plan, body, facts } = match flight.cargo.take() {
            Some(cargo) => cargo,
            None => self.first_event(flight.seq).await.map_err(|fault| fault.to_string())?,
        };
        let Some(PublishPlan { topic, partition_key, dedupe_key }) = publication::plan(&plan) else {
            return Err("the plan of this publish cannot be read".to_owned());
        };
        let at = self.clock.now();
        Ok((Message { topic, partition_key, dedupe_key, payload: body, at }, facts))
    }

    /// The event that was admitted first, as it is kept: a copy that does what was released
    /// publishes that one, so that ledger, bus and receipt say the same.
    async fn first_event(&self, seq: Seq) -> Result<Cargo, Fault> {
        let gone = || Fault::new(FaultKind::Internal, "the first event is no longer kept");
        let effect = self.reader.effect(seq).await?.ok_or_else(gone)?;
        let body = self.reader.body(seq).await?.ok_or_else(gone)?;
        let receipt = self.reader.receipt(seq).await?.ok_or_else(gone)?;
        let (plan, facts) = (object(&effect.plan), object(&receipt.facts));
        Ok(Cargo { plan, body, facts })
    }

    /// Makes one call to the bus, bounded in time. An answer that comes later is kept as evidence.
    async fn hand_over(
        self: &Arc<Self>,
        flights: &[(Flight, Object<'static>)],
        messages: Vec<Message>,
    ) -> Vec<PublishOutcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        let seqs: Vec<(Seq, u32)> =
            flights.iter().map(|(flight, _)| (flight.seq, flight.attempt)).collect();
        let (ingest, mine) = (Arc::clone(self), seqs);
        let call = BusCall {
            bus: &self.bus,
            tasks: &self.tasks,
            stop: &self.stop,
            patience: self.settings.publish_wait,
        };
        let ended = async move |late: Option<Vec<PublishOutcome>>| {
            if let Some(late) = late {
                ingest.keep_late(&mine, &late).await;
            }
            // Only now: whoever calls it absent must see what came late.
            ingest.flights.ended(mine.iter().map(|(seq, _)| *seq));
        };
        call.hand_over(messages, ended).await
    }

    /// Keeps what became known after its attempt was settled.
    async fn keep_late(&self, flights: &[(Seq, u32)], late: &[PublishOutcome]) {
        let late = flights.iter().zip(late).map(|((seq, attempt), published)| {
            let (_, evidence) = self.evidence(published);
            let step = Step::Evidence { attempt: *attempt, evidence };
            Settlement { seq: *seq, step, facts: None }
        });
        self.keep_evidence(late.collect()).await;
    }

    /// Keeps evidence that changes nothing any more, however long the ledger cannot take it.
    async fn keep_evidence(&self, batch: Vec<Settlement>) {
        if batch.is_empty() {
            return;
        }
        let (count, mut pause) = (batch.len(), PAUSE_MIN);
        loop {
            let (issue, now) = (self.issue.clone(), self.clock.now());
            let Err(fault) = self.ledger.settle(batch.clone(), issue, now).await else {
                tracing::warn!(
                    count,
                    "answers of the bus came too late, they are kept as evidence"
                );
                return;
            };
            tracing::warn!(count, %fault, "late evidence could not be kept, trying again");
            if self.stop.is_cancelled() {
                return;
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// What an answer of the bus means.
    fn evidence(&self, published: &PublishOutcome) -> (Outcome, Evidence) {
        match published {
            PublishOutcome::Committed(reference) => {
                (Outcome::Done, publication::committed(&eb_ref(reference), self.clock.now()))
            }
            PublishOutcome::NotWritten { reason } => {
                (Outcome::Ambiguous, publication::unknown(reason, true))
            }
            PublishOutcome::Unknown { reason } => {
                (Outcome::Ambiguous, publication::unknown(reason, false))
            }
        }
    }

    /// Commits the outcomes of a batch, however long the ledger cannot, writes the files and tells
    /// whoever waits.
    async fn settle(
        self: &Arc<Self>,
        outcomes: Vec<((Flight, Option<Object<'static>>), PublishOutcome)>,
    ) {
        let mut landings = Vec::with_capacity(outcomes.len());
        let mut batch = Vec::with_capacity(outcomes.len());
        for ((flight, facts), published) in outcomes {
            let (outcome, evidence) = self.evidence(&published);
            if let PublishOutcome::NotWritten { reason } | PublishOutcome::Unknown { reason } = &published {
                tracing::warn!(seq = flight.seq.0, reason, "a publish is ambiguous");
            }
            let Flight { seq, attempt, landed, .. } = flight;
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            batch.push(Settlement { seq, step, facts });
            landings.push((seq, Some(landed)));
        }
        let persisted = self.persist(batch, &mut landings).await;
        for (seq, _) in &landings {
            self.in_work.ended(*seq);
        }
        let Some((settled, late)) = persisted else { return };
        let filed: Vec<_> = settled.iter().flatten().flat_map(|settled| &settled.filed).collect();
        let written = self.write_files(&filed, None).await;
        for ((_, landed), settled) in landings.into_iter().zip(settled) {
            let Some(landed) = landed else { continue };
            let said = match settled {
                Some(settled) if settled.filed.iter().all(|filed| !written.failed(filed.n)) => {
                    Ok(settled.filed)
                }
                Some(_) => Err(super::files::unwritten()),
                None => Err(self.taken_up()),
            };
            // Whoever asked may have gone away; the outcome stands all the same.
            landed.send(said).unwrap_or_default();
        }
        self.keep_evidence(late).await;
    }

    /// Settles, again and again until the ledger takes it. Whoever waits is told after the first
    /// failure; the evidence stays here. `None` when the gate ends before. Where others took this
    /// gate for dead meanwhile, what is known is to be kept beside their finding.
    async fn persist(
        &self,
        batch: Vec<Settlement>,
        landings: &mut [(Seq, Option<oneshot::Sender<Landed>>)],
    ) -> Option<(Vec<Option<SettledEffect>>, Vec<Settlement>)> {
        let mut pause = PAUSE_MIN;
        let mut may_be_in = false;
        loop {
            let (issue, now) = (self.issue.clone(), self.clock.now());
            let fault = match self.ledger.settle(batch.clone(), issue, now).await {
                Ok(answers) => {
                    let mut settled = Vec::with_capacity(answers.len());
                    let mut late = Vec::new();
                    for (answer, settlement) in answers.into_iter().zip(&batch) {
                        let Err(illegal) = answer else {
                            settled.push(answer.ok());
                            continue;
                        };
                        // A commit that was not confirmed may have gone through after all.
                        let before =
                            if may_be_in { self.settled_before(settlement).await } else { None };
                        if before.is_none() {
                            let seq = settlement.seq.0;
                            tracing::error!(seq, %illegal, "a publish is not where it was left");
                            late.extend(as_evidence(settlement));
                        }
                        settled.push(before);
                    }
                    return Some((settled, late));
                }
                Err(fault) => fault,
            };
            may_be_in |= fault.kind == FaultKind::OutcomeUnknown;
            tracing::error!(%fault, count = batch.len(), "published, but not settled; trying again");
            for (_, landed) in landings.iter_mut() {
                if let Some(landed) = landed.take() {
                    let kind = FaultKind::OutcomeUnknown;
                    let told = Fault { kind, message: NOT_SETTLED, ..fault.clone() };
                    landed.send(Err(told)).unwrap_or_default();
                }
            }
            if self.stop.is_cancelled() && !self.reader.is_healthy() {
                return None;
            }
            sleep(pause).await;
            pause = PAUSE_MAX.min(pause * 2);
        }
    }

    /// What is said when an outcome is no longer ours to settle.
    fn taken_up(&self) -> Fault {
        if self.reader.lease().is_none() {
            let message = "the effect of this event is not where it was left";
            return Fault::new(FaultKind::Internal, message);
        }
        let message = "another gate has looked after the publish of this event; send it again";
        Fault::new(FaultKind::OutcomeUnknown, message)
    }

    /// What this very settlement has left in the ledger, if it is there.
    async fn settled_before(&self, settlement: &Settlement) -> Option<SettledEffect> {
        let Settlement { seq, step: Step::Settle { evidence, .. }, .. } = settlement else {
            return None;
        };
        let effect = self.reader.effect(*seq).await.ok()??;
        if effect.state.evidence() != Some(evidence) {
            return None;
        }
        let filed = self.ledger.filed_of(*seq).await.ok()?;
        let filed = filed.into_iter().filter(|filed| filed.seq == *seq).collect();
        Some(SettledEffect { effect, filed })
    }
}

/// An outcome that is no longer ours to settle, as something that became known too late.
fn as_evidence(settlement: &Settlement) -> Option<Settlement> {
    let Settlement { seq, step: Step::Settle { attempt, evidence, .. }, .. } = settlement else {
        return None;
    };
    let step = Step::Evidence { attempt: *attempt, evidence: evidence.clone() };
    Some(Settlement { seq: *seq, step, facts: None })
}

/// A reference of the bus in the words of the contract.
pub(super) fn eb_ref(
    reference: &admit_bus::Reference,
) -> admit_contracts::ingestion_gate::eb_ref::EbRef {
    use admit_contracts::ingestion_gate::eb_ref::{EbRef, WireOffsetKind};
    let offset_kind = match reference.offset_kind {
        admit_bus::OffsetKind::FileLine => WireOffsetKind::FileLine,
        admit_bus::OffsetKind::KinesisSequence => WireOffsetKind::KinesisSequence,
        admit_bus::OffsetKind::KafkaOffset => WireOffsetKind::KafkaOffset,
        admit_bus::OffsetKind::NatsSequence => WireOffsetKind::NatsSequence,
    };
    EbRef {
        topic: reference.topic.clone(),
        partition: reference.partition,
        offset: reference.offset.clone(),
        offset_kind,
        published_at: reference.published_at,
    }
}

/// Facts and plans as the ledger keeps them.
pub(super) fn object(text: &[u8]) -> Object<'static> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(text, &limits) {
        Ok(Value::Object(object)) => object.into_owned(),
        Ok(_) | Err(_) => Object::new(),
    }
}
