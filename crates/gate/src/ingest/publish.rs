//! Publish loop of the ingestion gate: one bus call per batch of queued events, and one commit for its
//! outcomes.
//!
//! Calls are sequential, so the order of the ledger is the order on the bus. While one batch is being
//! settled, the next one is published.

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
use super::publish_queue::{PublishPayload, PublishResult, QueuedPublish};
use crate::bus_call::BusCall;

/// Backoff while the ledger cannot be written.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Message to a producer whose event is published but not settled.
const NOT_SETTLED: &str =
    "the event was published, but the ledger cannot store the outcome now; retry";

impl Ingest {
    pub(super) fn run_publish_loop(self: Arc<Self>) -> super::IngestLoop {
        Box::pin(async move {
            loop {
                let batch = self.publish_queue.next(self.settings.publish_batch_max).await;
                self.publish(batch).await;
            }
        })
    }

    /// Publishes a batch, and settles its outcomes in a task.
    async fn publish(self: &Arc<Self>, batch: Vec<QueuedPublish>) {
        let mut loaded = Vec::with_capacity(batch.len());
        let mut messages = Vec::with_capacity(batch.len());
        let mut unloaded = Vec::new();
        for mut publish in batch {
            match self.load(&mut publish).await {
                Ok((message, facts)) => {
                    messages.push(message);
                    loaded.push((publish, facts));
                }
                Err(reason) => {
                    // It never reaches the bus, so it cannot be published later.
                    self.publish_queue.mark_ended([publish.seq]);
                    unloaded.push(((publish, None), PublishOutcome::NotWritten { reason }));
                }
            }
        }
        let published = self.call_bus(&loaded, messages).await;
        let mut outcomes: Vec<_> = loaded
            .into_iter()
            .zip(published)
            .map(|((publish, facts), published)| ((publish, Some(facts)), published))
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
        self.health.count_outcomes(outcomes.iter().map(|(_, published)| published));
        let ingest = Arc::clone(self);
        self.tasks.spawn(async move { ingest.settle(outcomes).await });
    }

    /// Loads the message of a queued publish, and the facts of its event.
    async fn load(
        &self,
        publish: &mut QueuedPublish,
    ) -> Result<(Message, Object<'static>), String> {
        // After the lease, another gate may have recovered the publish, and an operator may have resolved it
        // as absent.
        if self.reader.lease().is_some_and(|lease| publish.since.elapsed() > lease) {
            return Err("the gate was paused for longer than its lease".to_owned());
        }
        let PublishPayload { plan, body, facts } = match publish.payload.take() {
            Some(payload) => payload,
            None => self.first_event(publish.seq).await.map_err(|fault| fault.to_string())?,
        };
        let Some(PublishPlan { topic, partition_key, dedupe_key }) = publication::plan(&plan)
        else {
            return Err("invalid plan of the publish".to_owned());
        };
        let at = self.clock.now();
        Ok((Message { topic, partition_key, dedupe_key, payload: body, at }, facts))
    }

    /// Reads the payload of the admission: a duplicate that repeats a released publish sends the original
    /// event, so that ledger, bus and receipt agree.
    async fn first_event(&self, seq: Seq) -> Result<PublishPayload, Fault> {
        let gone = || Fault::new(FaultKind::Internal, "the original event is no longer stored");
        let effect = self.reader.effect(seq).await?.ok_or_else(gone)?;
        let body = self.reader.body(seq).await?.ok_or_else(gone)?;
        let receipt = self.reader.receipt(seq).await?.ok_or_else(gone)?;
        let (plan, facts) = (object(&effect.plan), object(&receipt.facts));
        Ok(PublishPayload { plan, body, facts })
    }

    /// Publishes messages with a timeout. A late result is stored as evidence.
    async fn call_bus(
        self: &Arc<Self>,
        batch: &[(QueuedPublish, Object<'static>)],
        messages: Vec<Message>,
    ) -> Vec<PublishOutcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        let seqs: Vec<(Seq, u32)> =
            batch.iter().map(|(publish, _)| (publish.seq, publish.attempt)).collect();
        let (ingest, attempts) = (Arc::clone(self), seqs);
        let call = BusCall {
            bus: &self.bus,
            tasks: &self.tasks,
            stop: &self.stop,
            timeout_after: self.settings.publish_wait,
        };
        let on_end = async move |late: Option<Vec<PublishOutcome>>| {
            if let Some(late) = late {
                ingest.store_late(&attempts, &late).await;
            }
            // Only now: resolving as absent must see the late evidence.
            ingest.publish_queue.mark_ended(attempts.iter().map(|(seq, _)| *seq));
        };
        call.publish(messages, on_end).await
    }

    /// Stores outcomes that arrived after their attempt was settled, as evidence.
    async fn store_late(&self, attempts: &[(Seq, u32)], late: &[PublishOutcome]) {
        let late = attempts.iter().zip(late).map(|((seq, attempt), published)| {
            let (_, evidence) = self.evidence(published);
            let step = Step::Evidence { attempt: *attempt, evidence };
            Settlement { seq: *seq, step, facts: None }
        });
        self.store_evidence(late.collect()).await;
    }

    /// Stores evidence that changes no state. Retries until the ledger accepts it.
    async fn store_evidence(&self, batch: Vec<Settlement>) {
        if batch.is_empty() {
            return;
        }
        let (count, mut backoff) = (batch.len(), BACKOFF_MIN);
        loop {
            let (issue, now) = (self.issue.clone(), self.clock.now());
            let Err(fault) = self.ledger.settle(batch.clone(), issue, now).await else {
                tracing::warn!(count, "stored late results of the bus as evidence");
                return;
            };
            tracing::warn!(count, %fault, "failed to store late evidence; retrying");
            if self.stop.is_cancelled() {
                return;
            }
            sleep(backoff).await;
            backoff = BACKOFF_MAX.min(backoff * 2);
        }
    }

    /// Converts a publish outcome to an effect outcome and its evidence.
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

    /// Commits the outcomes of a batch, writes the files, and sends the results to the waiting deliveries.
    async fn settle(
        self: &Arc<Self>,
        outcomes: Vec<((QueuedPublish, Option<Object<'static>>), PublishOutcome)>,
    ) {
        let mut result_senders = Vec::with_capacity(outcomes.len());
        let mut batch = Vec::with_capacity(outcomes.len());
        for ((publish, facts), published) in outcomes {
            let (outcome, evidence) = self.evidence(&published);
            if let PublishOutcome::NotWritten { reason } | PublishOutcome::Unknown { reason } =
                &published
            {
                tracing::warn!(
                    seq = publish.seq.0,
                    reason,
                    "publish is ambiguous: its outcome is unknown"
                );
            }
            let QueuedPublish { seq, attempt, result_sender, .. } = publish;
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            batch.push(Settlement { seq, step, facts });
            result_senders.push((seq, Some(result_sender)));
        }
        let persisted = self.persist(batch, &mut result_senders).await;
        for (seq, _) in &result_senders {
            self.in_flight_effects.notify_ended(*seq);
        }
        let Some((settled, late)) = persisted else { return };
        let filed: Vec<_> = settled.iter().flatten().flat_map(|settled| &settled.filed).collect();
        let failed_writes = self.write_files(&filed, None).await;
        for ((_, result_sender), settled) in result_senders.into_iter().zip(settled) {
            let Some(result_sender) = result_sender else { continue };
            let result = match settled {
                Some(settled)
                    if settled.filed.iter().all(|filed| !failed_writes.contains(filed.n)) =>
                {
                    Ok(settled.filed)
                }
                Some(_) => Err(super::document_files::unwritten_receipt()),
                None => Err(self.lost_ownership()),
            };
            // The client may have disconnected; the outcome is committed anyway.
            result_sender.send(result).unwrap_or_default();
        }
        self.store_evidence(late).await;
    }

    /// Settles a batch, retrying until the ledger accepts it. After the first failure the waiting deliveries
    /// get a fault. `None` if the gate stops first. Settlements that another gate has recovered meanwhile
    /// are returned as evidence to be stored.
    async fn persist(
        &self,
        batch: Vec<Settlement>,
        result_senders: &mut [(Seq, Option<oneshot::Sender<PublishResult>>)],
    ) -> Option<(Vec<Option<SettledEffect>>, Vec<Settlement>)> {
        let mut backoff = BACKOFF_MIN;
        let mut may_be_committed = false;
        loop {
            let (issue, now) = (self.issue.clone(), self.clock.now());
            let fault = match self.ledger.settle(batch.clone(), issue, now).await {
                Ok(results) => {
                    let mut settled = Vec::with_capacity(results.len());
                    let mut late = Vec::new();
                    for (result, settlement) in results.into_iter().zip(&batch) {
                        let Err(illegal) = result else {
                            settled.push(result.ok());
                            continue;
                        };
                        // The unconfirmed commit may have succeeded after all.
                        let before = if may_be_committed {
                            self.settled_before(settlement).await
                        } else {
                            None
                        };
                        if before.is_none() {
                            let seq = settlement.seq.0;
                            tracing::error!(seq, %illegal, "illegal effect transition of a publish: state changed concurrently");
                            late.extend(as_evidence(settlement));
                        }
                        settled.push(before);
                    }
                    return Some((settled, late));
                }
                Err(fault) => fault,
            };
            may_be_committed |= fault.kind == FaultKind::OutcomeUnknown;
            tracing::error!(%fault, count = batch.len(), "failed to settle publishes; retrying");
            for (_, result_sender) in result_senders.iter_mut() {
                if let Some(result_sender) = result_sender.take() {
                    let kind = FaultKind::OutcomeUnknown;
                    let not_settled = Fault { kind, message: NOT_SETTLED, ..fault.clone() };
                    result_sender.send(Err(not_settled)).unwrap_or_default();
                }
            }
            if self.stop.is_cancelled() && !self.reader.is_healthy() {
                return None;
            }
            sleep(backoff).await;
            backoff = BACKOFF_MAX.min(backoff * 2);
        }
    }

    /// Fault of a publish that this gate no longer owns.
    fn lost_ownership(&self) -> Fault {
        if self.reader.lease().is_none() {
            let message = "illegal effect transition: state changed concurrently";
            return Fault::new(FaultKind::Internal, message);
        }
        let message = "another gate has recovered the publish of this event; retry";
        Fault::new(FaultKind::OutcomeUnknown, message)
    }

    /// Reads the result of a settlement that was committed without confirmation, if it was.
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

/// Converts a settlement that this gate no longer owns to late evidence.
fn as_evidence(settlement: &Settlement) -> Option<Settlement> {
    let Settlement { seq, step: Step::Settle { attempt, evidence, .. }, .. } = settlement else {
        return None;
    };
    let step = Step::Evidence { attempt: *attempt, evidence: evidence.clone() };
    Some(Settlement { seq: *seq, step, facts: None })
}

/// Converts a bus reference to the contract's type.
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

/// Parses stored facts or plans.
pub(super) fn object(text: &[u8]) -> Object<'static> {
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    match json::parse(text, &limits) {
        Ok(Value::Object(object)) => object.into_owned(),
        Ok(_) | Err(_) => Object::new(),
    }
}
