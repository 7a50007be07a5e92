//! The outboxes as the ledger of a gate: a verdict is said when the row is durable.
//!
//! What the agent cannot know, it does not claim: a copy of an event that was sent and acknowledged
//! before is fresh here and a duplicate at the gate. Refusals are answered and counted here; those of
//! the skyra door are kept for a person, because its contract keeps invalid envelopes. Conflicts that the contract answers as accepted are sent on, so that the gate keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admit_core::json::Value;
use admit_core::{
    Digest, Door, EntityId, Entry, Event, Fault, FaultKind, First, Key, Principal, Receipt,
    Recorded, Refused, Seq, Verdict,
};
use admit_edge::{Dialect, EnqueueError, Enqueued, Outbox};
use admit_ledger::port::{Admissions, BoxFuture, Filter, Reader, Status};
use admit_ledger::{Ledger, WithoutEffects};
use bytes::Bytes;
use futures_util::future::join_all;

use super::doors::EdgeDoor;
use super::outboxes::Outboxes;
use super::{metrics, row};

/// See the module.
pub(super) struct OutboxLedger {
    outboxes: Arc<Outboxes>,
    is_healthy: AtomicBool,
}

impl OutboxLedger {
    pub(super) fn over(outboxes: Arc<Outboxes>) -> Self {
        Self { outboxes, is_healthy: AtomicBool::new(true) }
    }

    async fn keep(&self, entry: Entry) -> Result<Recorded, Fault> {
        let verdict = match &entry {
            Entry::Refused(refused) => self.note_health(self.refuse(refused).await)?,
            Entry::Event(event) => self.note_health(self.store(event).await)?,
        };
        Ok(Recorded { entry, verdict, ledger: self.tag(), outcome: None })
    }

    /// A full outbox, or one that cannot be opened, is no failure of the agent.
    fn note_health(&self, kept: Result<Verdict, Fault>) -> Result<Verdict, Fault> {
        let is_ours = |fault: &Fault| fault.message != FULL && fault.message != CLOSED;
        self.is_healthy.store(!kept.as_ref().is_err_and(is_ours), Ordering::Relaxed);
        kept
    }

    fn outbox(&self, door: &Door, principal: &Principal) -> Result<Arc<Outbox>, Fault> {
        self.outboxes
            .of(door, principal)
            .map_err(|error| Fault::caused_by(FaultKind::LedgerUnavailable, CLOSED, error))
    }

    /// Keeps an envelope that failed the vet, where the contract keeps them, before it is answered.
    async fn refuse(&self, refused: &Refused) -> Result<Verdict, Fault> {
        let is_kept =
            self.outboxes.door(&refused.door).is_some_and(|door| door.dialect == Dialect::Skyra);
        if is_kept {
            let outbox = self.outbox(&refused.door, &refused.principal)?;
            let event_id = refused.facts.get("event_id").and_then(Value::as_str);
            let error = format!("{}: {}", refused.code.as_str(), refused.message);
            let (event_id, payload) = (event_id.map(str::to_owned), refused.body.to_vec());
            outbox.keep_invalid(event_id, payload, error).await.map_err(fault)?;
        }
        Ok(Verdict::Refused { seq: None })
    }

    async fn store(&self, event: &Event) -> Result<Verdict, Fault> {
        let door = self
            .outboxes
            .door(&event.door)
            .ok_or_else(|| Fault::new(FaultKind::Internal, "the agent has no such door"))?;
        let outbox = self.outbox(&event.door, &event.principal)?;
        let (id, payload) = row::of(door.dialect, event);
        let (place, created_at, stored) =
            match outbox.enqueue_async(id.clone(), payload.clone()).await.map_err(fault)? {
                Enqueued::Stored { place } => return Ok(Verdict::Fresh { seq: seq(place) }),
                Enqueued::Already { place, created_at } => (place, created_at, None),
                Enqueued::Differs { place, created_at, payload_json } => {
                    (place, created_at, Some(payload_json))
                }
            };
        // The bytes may differ and the event be the same: a plugin counts its attempts in them.
        let digest = match &stored {
            None => Some(event.digest),
            Some(payload) => row::digest(door, &event.principal, payload),
        };
        let first = |digest: Digest| First {
            seq: seq(place),
            digest,
            received_at: created_at,
            principal: event.principal.clone(),
            facts: Bytes::from_static(b"{}"),
        };
        match digest {
            Some(digest) if digest == event.digest => {
                Ok(Verdict::Duplicate { seq: seq(place), first: first(digest) })
            }
            other => {
                let conflict = Verdict::Conflict {
                    seq: seq(place),
                    first: first(other.unwrap_or(event.digest)),
                };
                if is_said_accepted(door) {
                    let id = format!("{id}~{}", &event.digest.to_string()[..16]);
                    outbox.enqueue_async(id, payload).await.map_err(fault)?;
                }
                Ok(conflict)
            }
        }
    }
}

/// Whether the contract answers a conflict as if it were accepted.
fn is_said_accepted(door: &EdgeDoor) -> bool {
    match door.dialect {
        Dialect::Skyra | Dialect::PixelControl => true,
        Dialect::Events => false,
    }
}

fn seq(place: i64) -> Seq {
    Seq(u64::try_from(place).unwrap_or(0))
}

const FULL: &str = "the agent's outbox is full; it empties as the gate takes events";

/// Message of an outbox that is damaged, or cannot be opened for another reason.
const CLOSED: &str = "the agent's outbox of this door and producer cannot be opened";

fn fault(error: EnqueueError) -> Fault {
    match error {
        EnqueueError::Full { .. } => Fault::caused_by(FaultKind::LedgerUnavailable, FULL, error),
        EnqueueError::Storage(_) => {
            let message = "the agent's outbox could not store the event";
            Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
        }
        EnqueueError::Unknown(_) | EnqueueError::Stopped(_) => {
            let message = "whether the agent's outbox stored the event is not known";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, error)
        }
        EnqueueError::Closed => Fault::caused_by(FaultKind::Draining, "the agent stops", error),
    }
}

impl Admissions for OutboxLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<Recorded, Fault>>> {
        Box::pin(join_all(batch.into_iter().map(|entry| self.keep(entry))))
    }
}

/// There is nothing to read: what is known of an event is at the gate.
impl Reader for OutboxLedger {
    fn tag(&self) -> u32 {
        0
    }

    fn receipt(&self, _: Seq) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn find(&self, _: Key) -> BoxFuture<'_, Result<Option<Receipt>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn body(&self, _: Seq) -> BoxFuture<'_, Result<Option<Bytes>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn list(&self, _: Filter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn document(&self, _: EntityId) -> BoxFuture<'_, Result<Option<String>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn documents(
        &self,
        _: &'static str,
        _: String,
        _: Option<String>,
        _: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, String)>, Fault>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn status(&self) -> BoxFuture<'_, Result<Status, Fault>> {
        let bytes = |outbox: &admit_edge::Outbox| outbox.counters().bytes.load(Ordering::Relaxed);
        let all = self.outboxes.all();
        let bytes = all.iter().map(|(_, _, outbox)| bytes(outbox)).sum();
        let status = Status { admissions: self.outboxes.waiting(), bytes, ..Status::default() };
        Box::pin(async { Ok(status) })
    }
}

impl WithoutEffects for OutboxLedger {}

impl Ledger for OutboxLedger {
    fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(async {
            let reason = self.outboxes.must_stop().await;
            let message = "an outbox cannot be trusted any more";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, EnqueueError::Stopped(reason))
        })
    }

    fn exposition(&self) -> String {
        metrics::write(&self.outboxes)
    }
}
