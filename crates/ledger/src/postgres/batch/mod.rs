//! One group inside its transaction: what it needs to know is read at once, every entry is decided
//! in memory, everything it causes is written at once.
//!
//! However many entries there are, the database is asked a handful of times. Nothing here changes
//! memory that outlives the transaction: what a batch learns is handed back and counts only once the
//! commit is durable.

mod fetch;
mod refusals;
mod rows;
mod tell;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{
    Code, Decision, Entry, Event, Fault, FaultKind, First, Issue, Key, Seq, Verdict, decide,
    refusal_of_conflict,
};

use super::conn::{self, Conn};
use super::desk::Desk;
use super::documents::{ApplyError, Documents};
use super::head::Position;
use super::inbox::Arrived;
use crate::common::RefusalQuota;
use crate::common::job::{Written, facts_text};
use crate::desk;
use fetch::Known;
use refusals::Refusals;
use rows::Rows;

/// A batch being written.
pub(super) struct Batch<'c> {
    pub(super) conn: &'c Conn,
    pub(super) epoch: u64,
    pub(super) position: Position,
    /// The effects of events, and the documents and runs of doors that issue.
    pub(super) desk: Desk<'c>,
    known: Known,
    /// What this batch itself has admitted; a repeat inside a batch is a duplicate like any other.
    fresh: HashMap<Key, First>,
    refusals: Refusals,
    rows: Rows,
    inbox: Arrived,
    documents: Documents,
}

/// Why a batch could not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchError {
    /// The database said no.
    #[error(transparent)]
    Server(#[from] conn::Error),
    /// This entry cannot be recorded; without it the others can.
    #[error(transparent)]
    Poisoned(Fault),
    /// A promise of the ledger is broken.
    #[error(transparent)]
    Broken(#[from] ClaimedTwice),
    /// Another process has started under the name of this gate.
    #[error("another process has started under the name of this gate")]
    Replaced,
    /// The lease of this gate ran out, and another gate has its bus.
    #[error("another gate has taken the bus of this gate")]
    BusTaken,
}

/// A key that was free under the lock was claimed all the same. It cannot happen; if it does,
/// somebody writes without the lock and the gate must stop.
#[derive(Debug, thiserror::Error)]
#[error("{claimed} keys were to be claimed and {taken} of them are taken")]
pub(super) struct ClaimedTwice {
    claimed: usize,
    taken: usize,
}

/// One entry of the group, with what puts its decision into words at a door that issues.
pub(super) type Delivery<'e> = (&'e Entry, Option<&'e dyn Issue>);

impl<'c> Batch<'c> {
    /// Reads what the deliveries need, inside a transaction that has the lock.
    pub(super) fn fetch(
        conn: &'c Conn,
        epoch: u64,
        quota: RefusalQuota,
        position: Position,
        deliveries: &[Delivery<'_>],
    ) -> conn::Result<Self> {
        let known = Known::fetch(conn, deliveries)?;
        let mut desk = Desk::new(conn, epoch, position.last_issued);
        desk.prepare(&known.wanted(deliveries))?;
        let (refusals, documents) = fetch::beside(conn, quota, &known, deliveries)?;
        Ok(Self {
            conn,
            epoch,
            position,
            desk,
            known,
            fresh: HashMap::new(),
            refusals,
            rows: Rows::default(),
            inbox: Arrived::default(),
            documents,
        })
    }

    /// Records one entry, with its documents where the door issues some. After an error the
    /// transaction must be rolled back.
    pub(super) fn record(
        &mut self,
        entry: &Entry,
        issue: Option<&dyn Issue>,
    ) -> Result<Written, BatchError> {
        if let Some(issue) = issue {
            let (verdict, told) = self.issuing(entry, issue)?;
            return Ok(Written { told: Some(Box::new(told)), ..Written::plain(verdict) });
        }
        match entry {
            Entry::Event(event) => {
                let (verdict, told_at) = self.event(event)?;
                let outcome = match &event.record {
                    None => None,
                    Some(rule) => self.tell(event, &**rule, &verdict, told_at)?,
                };
                Ok(Written { outcome, ..Written::plain(verdict) })
            }
            Entry::Refused(refused) => Ok(Written::plain(self.refused(refused)?)),
        }
    }

    /// Writes everything. The commit itself is the caller's.
    pub(super) fn flush(mut self) -> Result<Position, BatchError> {
        let claims = self.rows.claims();
        let asks = self.inbox.asks();
        let claimed = self.rows.flush(self.conn, self.epoch, asks)?;
        if claimed != claims {
            return Err(ClaimedTwice { claimed: claims, taken: claims - claimed }.into());
        }
        self.position.keys += claims as u64;
        self.refusals.flush(self.conn)?;
        self.documents.flush(self.conn)?;
        self.position.last_issued = self.desk.flush()?;
        Ok(self.position)
    }

    /// What an event means, and the place that holds what it says.
    fn event(&mut self, event: &Event) -> Result<(Verdict, Seq), BatchError> {
        let Some(first) = self.first(&event.key) else {
            return self.admit(event, None);
        };
        match decide(Some(&first), &event.digest, event.on_other_content) {
            Decision::Fresh => self.admit(event, None),
            Decision::Duplicate => {
                let seq = self.sighting(first.seq, event, None);
                let told_at = first.seq;
                Ok((Verdict::Duplicate { seq, first }, told_at))
            }
            // A version that was here before is a late copy, not newer content.
            Decision::Revision => match self.known.again(self.conn, event)? {
                Some(known) => {
                    let seq = self.sighting(known, event, None);
                    Ok((Verdict::Duplicate { seq, first }, known))
                }
                None => self.admit(event, Some(first)),
            },
            Decision::Conflict => {
                let told_at = first.seq;
                Ok((self.conflict(event, first)?, told_at))
            }
        }
    }

    /// What is known under `key`, in this batch or in the ledger.
    pub(super) fn first(&self, key: &Key) -> Option<First> {
        self.fresh.get(key).or_else(|| self.known.first(key)).cloned()
    }

    /// A fresh admission, or a revision of `first`: kept and applied.
    pub(super) fn admit(
        &mut self,
        event: &Event,
        first: Option<First>,
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
            desk::born(&mut self.desk, seq, intent, event.received_at)?;
        }
        self.rows.claim(event.key, seq);
        let (digest, received_at) = (event.digest, event.received_at);
        let (principal, facts) = (event.principal.clone(), facts.into());
        self.fresh.insert(event.key, First { seq, digest, received_at, principal, facts });
        Ok((Verdict::Fresh { seq }, seq))
    }

    /// Applies the event's side effects. A failure, even a panic, is the event's own.
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

    /// Other content under a known key: kept once as evidence, seen each time, never applied.
    pub(super) fn conflict(&mut self, event: &Event, first: First) -> conn::Result<Verdict> {
        let (seq, other) = match self.known.again(self.conn, event)? {
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

    /// A copy came.
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
