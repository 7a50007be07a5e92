//! The outboxes as a ledger: a verdict is returned once the row is durable.
//!
//! The agent knows only its outboxes: a copy of an event that was already sent and removed is fresh
//! here and a duplicate at the gate. Refusals are returned and counted here; those of the skyra
//! door are stored for an operator, because its contract keeps invalid envelopes. Conflicts that
//! the contract reports as accepted are sent on, so that the gate keeps them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use admit_core::json::Value;
use admit_core::{
    Digest, Door, EntityId, Entry, Event, Fault, FaultKind, Key, Principal, PriorAdmission,
    Receipt, RecordedEntry, RefusedSubmission, Seq, Verdict,
};
use admit_edge::{Dialect, EnqueueError, EnqueueOutcome, Outbox};
use admit_ledger::port::{Admissions, BoxFuture, Reader, ReceiptFilter, Status};
use admit_ledger::{EffectReader, Effects, Ledger};
use bytes::Bytes;
use futures_util::future::join_all;

use super::doors::EdgeDoor;
use super::outboxes::Outboxes;
use super::{metrics, row};

/// Ledger over the outboxes.
pub(super) struct OutboxLedger {
    outboxes: Arc<Outboxes>,
    is_healthy: AtomicBool,
}

impl OutboxLedger {
    pub(super) fn new(outboxes: Arc<Outboxes>) -> Self {
        Self { outboxes, is_healthy: AtomicBool::new(true) }
    }

    async fn record_entry(&self, entry: Entry) -> Result<RecordedEntry, Fault> {
        let verdict = match &entry {
            Entry::Refused(refused) => self.update_health(self.refuse(refused).await)?,
            Entry::Event(event) => self.update_health(self.store(event).await)?,
        };
        Ok(RecordedEntry { entry, verdict, ledger: self.tag(), outcome: None })
    }

    /// Updates the health. A full outbox, or one that cannot be opened, does not make the agent
    /// unhealthy.
    fn update_health(&self, result: Result<Verdict, Fault>) -> Result<Verdict, Fault> {
        let is_ours =
            |fault: &Fault| fault.message != OUTBOX_FULL && fault.message != OUTBOX_CLOSED;
        self.is_healthy.store(!result.as_ref().is_err_and(is_ours), Ordering::Relaxed);
        result
    }

    fn outbox(&self, door: &Door, principal: &Principal) -> Result<Arc<Outbox>, Fault> {
        self.outboxes
            .get_or_open(door, principal)
            .map_err(|error| Fault::caused_by(FaultKind::LedgerUnavailable, OUTBOX_CLOSED, error))
    }

    /// Stores an envelope that failed validation, if its contract keeps those, before the reply.
    async fn refuse(&self, refused: &RefusedSubmission) -> Result<Verdict, Fault> {
        let keeps_invalid =
            self.outboxes.door(&refused.door).is_some_and(|door| door.dialect == Dialect::Skyra);
        if keeps_invalid {
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
        let (id, payload) = row::encode(door.dialect, event);
        let (rowid, created_at, stored) =
            match outbox.enqueue_async(id.clone(), payload.clone()).await.map_err(fault)? {
                EnqueueOutcome::Stored { rowid } => return Ok(Verdict::Fresh { seq: seq(rowid) }),
                EnqueueOutcome::Duplicate { rowid, created_at } => (rowid, created_at, None),
                EnqueueOutcome::Conflict { rowid, created_at, payload_json } => {
                    (rowid, created_at, Some(payload_json))
                }
            };
        // The bytes of a copy may differ, because the plugin counts its attempts in them.
        let digest = match &stored {
            None => Some(event.digest),
            Some(payload) => row::digest(door, &event.principal, payload),
        };
        let first = |digest: Digest| PriorAdmission {
            seq: seq(rowid),
            digest,
            received_at: created_at,
            principal: event.principal.clone(),
            facts: Bytes::from_static(b"{}"),
        };
        match digest {
            Some(digest) if digest == event.digest => {
                Ok(Verdict::Duplicate { seq: seq(rowid), first: first(digest) })
            }
            other => {
                let conflict = Verdict::Conflict {
                    seq: seq(rowid),
                    first: first(other.unwrap_or(event.digest)),
                };
                if reports_conflict_as_accepted(door) {
                    let id = format!("{id}~{}", &event.digest.to_string()[..16]);
                    outbox.enqueue_async(id, payload).await.map_err(fault)?;
                }
                Ok(conflict)
            }
        }
    }
}

/// Whether the contract reports a conflict as accepted.
fn reports_conflict_as_accepted(door: &EdgeDoor) -> bool {
    match door.dialect {
        Dialect::Skyra | Dialect::PixelControl => true,
        Dialect::Events => false,
    }
}

fn seq(rowid: i64) -> Seq {
    Seq(u64::try_from(rowid).unwrap_or(0))
}

const OUTBOX_FULL: &str = "the agent's outbox is full; retry after rows have been sent to the gate";

/// Message for an outbox that is damaged, or cannot be opened for another reason.
const OUTBOX_CLOSED: &str = "the agent's outbox of this door and producer cannot be opened";

fn fault(error: EnqueueError) -> Fault {
    match error {
        EnqueueError::Full { .. } => {
            Fault::caused_by(FaultKind::LedgerUnavailable, OUTBOX_FULL, error)
        }
        EnqueueError::Storage(_) => {
            let message = "failed to store the event in the agent's outbox";
            Fault::caused_by(FaultKind::LedgerUnavailable, message, error)
        }
        EnqueueError::Unknown(_) | EnqueueError::Stopped(_) => {
            let message = "commit outcome of the agent's outbox unknown; retry the event";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, error)
        }
        EnqueueError::Closed => {
            Fault::caused_by(FaultKind::Draining, "the agent is stopping", error)
        }
    }
}

impl Admissions for OutboxLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>> {
        Box::pin(join_all(batch.into_iter().map(|entry| self.record_entry(entry))))
    }
}

/// Empty: receipts are at the gate.
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

    fn list(&self, _: ReceiptFilter) -> BoxFuture<'_, Result<Vec<Receipt>, Fault>> {
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

impl EffectReader for OutboxLedger {}

impl Effects for OutboxLedger {}

impl Ledger for OutboxLedger {
    fn is_healthy(&self) -> bool {
        self.is_healthy.load(Ordering::Relaxed)
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(async {
            let reason = self.outboxes.must_stop().await;
            let message = "disk failure of an outbox";
            Fault::caused_by(FaultKind::OutcomeUnknown, message, EnqueueError::Stopped(reason))
        })
    }

    fn exposition(&self) -> String {
        metrics::write(&self.outboxes)
    }
}
