//! Publish loop: finds due records, begins their publication, publishes and settles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admit_bus::{BusHealth, Message, PublishOutcome, Reference};
use admit_contracts::rounds::DOOR;
use admit_core::effect::{EffectState, IllegalStep, Outcome, Step};
use admit_core::entity::{PUBLISH_NOT_WRITTEN, PUBLISH_UNKNOWN};
use admit_core::json::{self, Object, Value};
use admit_core::{Digest, Evidence, Fault, FaultKind, Key, Millis};
use admit_ledger::publications::{Offer, Publication, PublicationStep, UnpublishedRecord};
use bytes::Bytes;
use tokio::time::sleep;

use super::Publisher;
use super::reconcile::with_end;
use crate::bus_call::BusCall;
use crate::rounds;

/// Maximum number of unpublished records per scan, and of messages per publish call.
const SCAN_MAX: usize = 256;
const BATCH_MAX: usize = 32;

/// A record that keeps changing is published after this many settle times.
const SETTLE_TIMES_MAX: i64 = 10;

/// Scan interval without a wakeup: another gate may have changed a record.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// Retry interval while the bus is down or the ledger fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Backoff while the ledger cannot be written.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Reason of an attempt that was not made because its begin commit was not confirmed.
const NOT_BEGUN: &str = "the ledger did not confirm that the attempt began, nothing was sent";

/// Reason of an attempt that was not made because the lease had expired.
const LEASE_EXPIRED: &str = "the gate was paused for longer than its lease, nothing was sent";

/// Next step of the loop.
enum NextStep {
    /// Scan again: more records may be due.
    Scan,
    /// Wait: nothing is due earlier.
    Pause(Duration),
    /// Wait for a wakeup: no unpublished records.
    WaitForWakeup,
}

/// A record to be published.
struct PendingPublication {
    offer: Offer,
    payload: Bytes,
}

impl Publisher {
    pub(super) async fn run_publish_loop(self: Arc<Self>) {
        let mut was_down = false;
        while !self.stop.is_cancelled() {
            let next = self.publish_due(&mut was_down).await.unwrap_or_else(|fault| {
                tracing::warn!(%fault, "failed to publish records; retrying");
                NextStep::Pause(RETRY_INTERVAL)
            });
            match next {
                NextStep::Scan => {}
                NextStep::Pause(backoff) => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = sleep(backoff) => {}
                },
                NextStep::WaitForWakeup => tokio::select! {
                    () = self.stop.cancelled() => {}
                    () = self.wakeup.notified() => {}
                    () = sleep(IDLE_MAX) => {}
                },
            }
        }
    }

    /// Publishes the records that are due.
    async fn publish_due(self: &Arc<Self>, was_down: &mut bool) -> Result<NextStep, Fault> {
        let waiting = self.ledger.unoffered(DOOR.to_owned(), SCAN_MAX).await?;
        let now = self.clock.now();
        let Some(first) = waiting.iter().map(|one| self.due_at(one)).min() else {
            return Ok(NextStep::WaitForWakeup);
        };
        if first > now {
            let backoff = u64::try_from(first.0.saturating_sub(now.0)).unwrap_or(1).max(1);
            return Ok(NextStep::Pause(Duration::from_millis(backoff).min(IDLE_MAX)));
        }
        let health = self.bus.health(&[self.settings.topic.to_string()]).await;
        if let BusHealth::Down { reason } = health {
            if !std::mem::replace(was_down, true) {
                tracing::warn!(reason, "the bus is down, publishing is paused");
            }
            return Ok(NextStep::Pause(RETRY_INTERVAL));
        }
        if std::mem::replace(was_down, false) {
            tracing::info!("the bus is up again, publishing resumes");
        }
        let due = waiting.iter().filter(|one| self.due_at(one) <= now).take(BATCH_MAX);
        let mut pending = Vec::with_capacity(BATCH_MAX);
        for one in due {
            pending.extend(self.load(one).await?);
        }
        match self.publish_batch(pending).await? {
            0 => Ok(NextStep::Pause(RETRY_INTERVAL)),
            _ => Ok(NextStep::Scan),
        }
    }

    /// Due time of a record: after the settle time without changes, or after the maximum wait.
    fn due_at(&self, one: &UnpublishedRecord) -> Millis {
        let settle = i64::try_from(self.settings.settle.as_millis()).unwrap_or(i64::MAX);
        let settled = one.changed_at.0.saturating_add(settle);
        let waited = one.since.0.saturating_add(settle.saturating_mul(SETTLE_TIMES_MAX));
        Millis(settled.min(waited))
    }

    /// Loads the message of a record, unless the record has changed since the scan.
    async fn load(&self, one: &UnpublishedRecord) -> Result<Option<PendingPublication>, Fault> {
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
        Ok(Some(PendingPublication { offer, payload: payload.into() }))
    }

    /// Begins, publishes and settles a batch. Returns the number of publications.
    async fn publish_batch(
        self: &Arc<Self>,
        pending: Vec<PendingPublication>,
    ) -> Result<usize, Fault> {
        if pending.is_empty() {
            return Ok(0);
        }
        let offers: Vec<Offer> = pending.iter().map(|one| one.offer.clone()).collect();
        let (at, since) = (self.clock.now(), Instant::now());
        let begun = match self.ledger.offer(offers, at).await {
            Ok(begun) => begun,
            Err(fault) => {
                if fault.kind == FaultKind::OutcomeUnknown {
                    self.abandon(&pending).await;
                }
                return Err(fault);
            }
        };
        let mut publications = Vec::with_capacity(begun.len());
        let mut messages = Vec::with_capacity(begun.len());
        for (publication, PendingPublication { offer, payload }) in begun.into_iter().zip(pending) {
            let Some(publication) = publication else { continue };
            let (partition_key, dedupe_key) = (offer.partition_key, offer.dedupe_key);
            let topic = Arc::clone(&self.settings.topic);
            messages.push(Message { topic, partition_key, dedupe_key, payload, at });
            publications.push(publication);
        }
        if publications.is_empty() {
            return Ok(0);
        }
        self.active().extend(publications.iter().map(|publication| publication.n));
        // After the lease, another gate may have recovered it, and an operator may have resolved it as absent.
        let is_late = self.ledger.lease().is_some_and(|lease| since.elapsed() > lease);
        let published = match is_late {
            true => self.skip_expired(&publications),
            false => self.call_bus(&publications, messages).await,
        };
        let steps = publications.iter().zip(&published).map(|(publication, published)| {
            match published {
                PublishOutcome::Committed(_) => self.published.add_one(),
                PublishOutcome::NotWritten { reason } | PublishOutcome::Unknown { reason } => {
                    self.ambiguous.add_one();
                    let Publication { record_id, revision, .. } = publication;
                    tracing::warn!(
                        record_id,
                        revision,
                        reason,
                        "publication is ambiguous: its outcome is unknown"
                    );
                }
            }
            let (outcome, evidence, reason) = self.evidence(published);
            let attempt = publication.state.attempt();
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            with_end(publication.n, step, reason)
        });
        self.settle(steps.collect()).await;
        Ok(publications.len())
    }

    /// Returns "not written" for publications that are not sent because the lease has expired.
    fn skip_expired(&self, publications: &[Publication]) -> Vec<PublishOutcome> {
        let mut active = self.active();
        for publication in publications {
            active.remove(&publication.n);
        }
        let not_written = || PublishOutcome::NotWritten { reason: LEASE_EXPIRED.to_owned() };
        publications.iter().map(|_| not_written()).collect()
    }

    async fn call_bus(
        self: &Arc<Self>,
        publications: &[Publication],
        messages: Vec<Message>,
    ) -> Vec<PublishOutcome> {
        let publisher = Arc::clone(self);
        let attempts: Vec<(u64, u32)> = publications
            .iter()
            .map(|publication| (publication.n, publication.state.attempt()))
            .collect();
        let call = BusCall {
            bus: &self.bus,
            tasks: &self.calls,
            stop: &self.cancel_calls,
            timeout_after: self.settings.publish_wait,
        };
        let on_end = async move |late: Option<Vec<PublishOutcome>>| {
            let late = late.unwrap_or_default();
            if !late.is_empty() {
                tracing::warn!(count = late.len(), "storing late results of the bus as evidence");
            }
            let steps = attempts.iter().zip(&late).map(|((n, attempt), published)| {
                let (_, evidence, reason) = publisher.evidence(published);
                let step = Step::Evidence { attempt: *attempt, evidence };
                with_end(*n, step, reason)
            });
            let steps: Vec<_> = steps.collect();
            if !steps.is_empty() {
                publisher.persist(steps).await;
            }
            // Only now: resolving as absent must see the late evidence.
            let mut active = publisher.active();
            for (n, _) in &attempts {
                active.remove(n);
            }
        };
        call.publish(messages, on_end).await
    }

    /// Converts a publish outcome to an effect outcome, its evidence and a reason code.
    fn evidence(&self, published: &PublishOutcome) -> (Outcome, Evidence, Option<&'static str>) {
        match published {
            PublishOutcome::Committed(reference) => {
                let mut evidence = reference_object(reference);
                evidence.push("known_at", self.clock.now().to_rfc3339_millis());
                (Outcome::Done, Evidence::of(&evidence), None)
            }
            PublishOutcome::NotWritten { reason } => {
                (Outcome::Ambiguous, unknown_evidence(reason, true), Some(PUBLISH_NOT_WRITTEN))
            }
            PublishOutcome::Unknown { reason } => {
                (Outcome::Ambiguous, unknown_evidence(reason, false), Some(PUBLISH_UNKNOWN))
            }
        }
    }

    /// Settles publications whose begin commit was not confirmed: ambiguous, with evidence that nothing was
    /// sent. Publications that another gate has begun are left alone.
    async fn abandon(&self, pending: &[PendingPublication]) {
        // The ledger completes this write only after the unconfirmed commit is resolved.
        self.persist(Vec::new()).await;
        let mut remaining: Vec<&str> =
            pending.iter().map(|one| one.offer.dedupe_key.as_str()).collect();
        let mut backoff = BACKOFF_MIN;
        while let Some(key) = remaining.last() {
            let found = match self.ledger.publication(DOOR.to_owned(), (*key).to_owned()).await {
                Ok(found) => found,
                Err(_) if self.stop.is_cancelled() => return,
                Err(fault) => {
                    tracing::warn!(%fault, "failed to read publications that may have begun; retrying");
                    sleep(backoff).await;
                    backoff = BACKOFF_MAX.min(backoff * 2);
                    continue;
                }
            };
            remaining.pop();
            let Some(Publication { n, state, .. }) = found else { continue };
            if !matches!(state, EffectState::InFlight(_)) {
                continue;
            }
            let attempt = state.attempt();
            let (outcome, evidence) = (Outcome::Ambiguous, unknown_evidence(NOT_BEGUN, true));
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            let reason = Some(PUBLISH_NOT_WRITTEN);
            self.persist(vec![with_end(n, step, reason)]).await;
        }
    }

    /// Settles publications. Those that another gate has recovered meanwhile are stored as evidence only.
    async fn settle(&self, batch: Vec<PublicationStep>) {
        let mut late = Vec::new();
        for (PublicationStep { n, step, reason, .. }, illegal) in self.persist(batch).await {
            let Step::Settle { attempt, evidence, .. } = step else { continue };
            tracing::error!(n, %illegal, "illegal transition of a publication: state changed concurrently; storing evidence only");
            late.push(with_end(n, Step::Evidence { attempt, evidence }, reason));
        }
        if !late.is_empty() {
            self.persist(late).await;
        }
    }

    /// Commits steps, retrying until the ledger accepts them. Returns the rejected ones with the reason. If
    /// the gate stops first, the recovery of the next start marks them as ambiguous.
    async fn persist(&self, batch: Vec<PublicationStep>) -> Vec<(PublicationStep, IllegalStep)> {
        let (mut backoff, mut may_be_committed) = (BACKOFF_MIN, false);
        loop {
            let fault = match self.ledger.step_publications(batch.clone(), self.clock.now()).await {
                Ok(results) => {
                    let results = batch.into_iter().zip(results);
                    let illegal = results.filter_map(|(step, result)| Some((step, result.err()?)));
                    // The unconfirmed commit may have succeeded after all. On a shared ledger another
                    // gate may have recovered the publication, so the evidence is stored again.
                    let is_committed =
                        |illegal| may_be_committed && illegal == IllegalStep::NotInFlight;
                    let is_alone = self.ledger.lease().is_none();
                    return illegal.filter(|(_, why)| !(is_alone && is_committed(*why))).collect();
                }
                Err(fault) => fault,
            };
            may_be_committed |= fault.kind == FaultKind::OutcomeUnknown;
            let count = batch.len();
            tracing::error!(%fault, count, "failed to settle publications; retrying");
            if self.stop.is_cancelled() {
                return Vec::new();
            }
            sleep(backoff).await;
            backoff = BACKOFF_MAX.min(backoff * 2);
        }
    }
}

/// Dedupe key of the message about a revision. Stable for ever.
fn dedupe_key(record_id: &str, revision: u64) -> String {
    let revision = revision.to_string();
    Key::derive("rounds/published", &[record_id.as_bytes(), revision.as_bytes()]).to_string()
}

/// JSON of a bus reference, for evidence.
pub(super) fn reference_object(reference: &Reference) -> Object<'static> {
    Object::from_iter([
        ("topic", Value::from(reference.topic.clone())),
        ("partition", reference.partition.into()),
        ("offset", reference.offset.clone().into()),
        ("offset_kind", reference.offset_kind.word().into()),
        ("published_at", reference.published_at.map(Millis::to_rfc3339_millis).into()),
    ])
}

/// Evidence of an unknown outcome, or of a message that was certainly not written.
pub(super) fn unknown_evidence(reason: &str, is_not_written: bool) -> Evidence {
    Evidence::of(&Object::from_iter([
        ("reason", Value::from(reason)),
        ("not_written", is_not_written.into()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dedupe_key_of_a_revision_is_stable() {
        let key = dedupe_key("rnd-0a1b2c3d4e5f6071", 3);
        assert_eq!(key.len(), 64);
        assert_eq!(key, dedupe_key("rnd-0a1b2c3d4e5f6071", 3));
        assert_ne!(key, dedupe_key("rnd-0a1b2c3d4e5f6071", 4));
        assert_ne!(key, dedupe_key("rnd-0a1b2c3d4e5f6072", 3));
    }
}
