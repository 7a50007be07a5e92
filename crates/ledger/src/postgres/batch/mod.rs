//! One batch inside its transaction: what it needs is looked up at once, every entry is decided in memory,
//! everything is written and committed at once.
//!
//! The number of round trips is constant, regardless of the number of entries. Nothing here changes memory
//! that outlives the transaction: the new state of a batch is returned and takes effect only once the
//! commit is durable.

mod prefetch;
mod records;
mod refusals;
mod rows;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{
    Code, Entry, Event, Fault, FaultKind, Issue, Key, PriorAdmission, Seq, Verdict,
    refusal_of_conflict,
};

use super::conn::{self, Conn, OwnedQuery};
use super::documents::{ApplyError, Documents};
use super::effect_store::PgEffectStore;
use super::fault;
use super::head_lock::Position;
use super::inbox::NewInboxRows;
use crate::common::write_command::{EntryOutcome, facts_text};
use crate::rules;
use prefetch::KeyPrefetch;
pub(super) use prefetch::{LookedUp, Lookup};
use refusals::Refusals;
use rows::BatchRows;

/// A batch being written.
pub(super) struct Batch<'c> {
    pub(super) conn: &'c Conn,
    pub(super) epoch: u64,
    pub(super) position: Position,
    /// Effects of events, and documents and runs of doors that issue documents.
    pub(super) store: PgEffectStore<'c>,
    known: KeyPrefetch,
    /// Admissions of this batch; a repeat inside a batch is a duplicate like any other.
    fresh: HashMap<Key, PriorAdmission>,
    refusals: Refusals,
    rows: BatchRows,
    inbox: NewInboxRows,
    documents: Documents,
}

/// Why a batch could not continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchError {
    /// Database error.
    #[error(transparent)]
    Server(conn::Error),
    /// This entry cannot be recorded; without it the others can.
    #[error(transparent)]
    Poisoned(Fault),
    /// A key that was free under the lock was claimed all the same. It cannot happen; if it does, something
    /// writes without the lock and the gate must stop.
    #[error(transparent)]
    ClaimedTwice(conn::Error),
    /// Another process has started under the name of this gate.
    #[error("another process has started under the name of this gate")]
    Replaced,
    /// The lease of this gate ran out, and another gate holds its bus.
    #[error("another gate has taken the bus of this gate")]
    BusTaken,
}

impl From<conn::Error> for BatchError {
    fn from(error: conn::Error) -> Self {
        if fault::is_key_taken(&error) { Self::ClaimedTwice(error) } else { Self::Server(error) }
    }
}

/// One entry of the batch, with the document factory at a door that issues documents.
pub(super) type Delivery<'e> = (&'e Entry, Option<&'e dyn Issue>);

impl<'c> Batch<'c> {
    /// A batch with what was looked up for its deliveries, inside a transaction that holds the lock.
    pub(super) fn new(
        conn: &'c Conn,
        epoch: u64,
        position: Position,
        looked_up: LookedUp,
        deliveries: &[Delivery<'_>],
    ) -> conn::Result<Self> {
        let LookedUp { mut known, refusals, documents } = looked_up;
        known.prefetch_same_content(conn, deliveries)?;
        let mut store = PgEffectStore::new(conn, epoch, position.last_issued);
        store.prepare(&known.expected(deliveries))?;
        Ok(Self {
            conn,
            epoch,
            position,
            store,
            known,
            fresh: HashMap::new(),
            refusals,
            rows: BatchRows::default(),
            inbox: NewInboxRows::default(),
            documents,
        })
    }

    /// Records one entry, with its documents at a door that issues some. After an error the
    /// transaction must be rolled back.
    pub(super) fn record(
        &mut self,
        entry: &Entry,
        issue: Option<&dyn Issue>,
    ) -> Result<EntryOutcome, BatchError> {
        if let Some(issue) = issue {
            let (verdict, issued) = self.issuing(entry, issue)?;
            return Ok(EntryOutcome {
                issued: Some(Box::new(issued)),
                ..EntryOutcome::plain(verdict)
            });
        }
        match entry {
            Entry::Event(event) => {
                let (verdict, content_seq) = rules::record_event(self, event)?;
                let outcome = match &event.record {
                    None => None,
                    Some(rule) => self.apply_to_record(event, &**rule, &verdict, content_seq)?,
                };
                Ok(EntryOutcome { outcome, ..EntryOutcome::plain(verdict) })
            }
            Entry::Refused(refused) => Ok(EntryOutcome::plain(self.refused(refused)?)),
        }
    }

    /// Writes everything. The caller commits.
    pub(super) fn flush(mut self) -> Result<Position, BatchError> {
        let conn = self.conn;
        let (writes, position) = self.writes()?;
        if !writes.is_empty() {
            conn.execute_all(&writes)?;
        }
        Ok(position)
    }

    /// The statements that write everything, and the counters after them.
    pub(super) fn writes(&mut self) -> conn::Result<(Vec<OwnedQuery<'_>>, Position)> {
        let mut position = self.position;
        position.keys += self.rows.claims() as u64;
        position.last_issued = self.store.last_issued();
        let mut writes = self.rows.writes(self.epoch);
        writes.extend(self.inbox.writes());
        writes.extend(self.refusals.writes());
        writes.extend(self.documents.writes());
        writes.extend(self.store.writes()?);
        Ok((writes, position))
    }

    /// Returns the first admission under `key`, in this batch or in the ledger.
    pub(super) fn first(&self, key: &Key) -> Option<PriorAdmission> {
        self.fresh.get(key).or_else(|| self.known.first(key)).cloned()
    }

    /// Returns the stored revision or conflict with exactly this content.
    pub(super) fn same_content(&mut self, event: &Event) -> conn::Result<Option<Seq>> {
        self.known.same_content(self.conn, event)
    }

    /// Admits a fresh event, or a revision of `first`: stored and applied.
    pub(super) fn admit(
        &mut self,
        event: &Event,
        first: Option<PriorAdmission>,
    ) -> Result<(Verdict, Seq), BatchError> {
        let facts = facts_text(&event.facts);
        let verdict = if first.is_some() { "revision" } else { "fresh" };
        let of = first.as_ref().map(|first| first.seq);
        let seq = self.insert_event(event, verdict, of, None, facts.clone());
        self.project(event, seq)?;
        if let Some(first) = first {
            self.known.keep(event, seq);
            return Ok((Verdict::Revision { seq, first }, seq));
        }
        self.inbox.push(seq, event);
        if let Some(intent) = &event.effect {
            rules::begin_effect(&mut self.store, seq, intent, event.received_at)?;
        }
        self.rows.claim(event.key, seq);
        let (digest, received_at) = (event.digest, event.received_at);
        let (principal, facts) = (event.principal.clone(), facts.into());
        self.fresh.insert(event.key, PriorAdmission { seq, digest, received_at, principal, facts });
        Ok((Verdict::Fresh { seq }, seq))
    }

    /// Applies the event's projections. A failure, even a panic, affects this event only.
    fn project(&mut self, event: &Event, seq: Seq) -> Result<(), BatchError> {
        let apply = || self.documents.apply(self.conn, &event.projections, seq);
        match catch_unwind(AssertUnwindSafe(apply)) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(ApplyError::Server(error))) => Err(error.into()),
            Ok(Err(ApplyError::Projection(error))) => {
                let message = "a side effect of this event failed, nothing was stored";
                Err(BatchError::Poisoned(Fault::caused_by(FaultKind::Internal, message, error)))
            }
            Err(_) => {
                let message = "a side effect of this event panicked, nothing was stored";
                Err(BatchError::Poisoned(Fault::new(FaultKind::Internal, message)))
            }
        }
    }

    /// Records other content under a known key: stored once as evidence, sighted each time, never applied.
    pub(super) fn conflict(
        &mut self,
        event: &Event,
        first: PriorAdmission,
    ) -> conn::Result<Verdict> {
        let (seq, other) = match self.same_content(event)? {
            Some(known) => (None, known),
            None => {
                let facts = facts_text(&event.facts);
                let reason = refusal_of_conflict(&first, event);
                let seq = self.insert_event(event, "conflict", Some(first.seq), reason, facts);
                self.known.keep(event, seq);
                (Some(seq), seq)
            }
        };
        let sighting = self.sighting(first.seq, event, Some(other));
        Ok(Verdict::Conflict { seq: seq.unwrap_or(sighting), first })
    }

    fn insert_event(
        &mut self,
        event: &Event,
        verdict: &'static str,
        first: Option<Seq>,
        reason: Option<(Code, &str)>,
        facts: String,
    ) -> Seq {
        let seq = self.position.next();
        self.position.admissions += 1;
        self.rows.event(seq, event, verdict, first, reason, facts);
        seq
    }

    pub(super) fn sighting(&mut self, admission: Seq, event: &Event, other: Option<Seq>) -> Seq {
        self.seen(admission, event.received_at, event.attempt, other)
    }

    /// Adds a sighting.
    fn seen(
        &mut self,
        admission: Seq,
        at: admit_core::Millis,
        attempt: Option<u32>,
        other: Option<Seq>,
    ) -> Seq {
        let seq = self.position.next();
        self.position.sightings += 1;
        self.rows.sighting(seq, admission, at, attempt, other);
        seq
    }
}
