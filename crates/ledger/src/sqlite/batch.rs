//! One batch inside its transaction: decides every entry and writes its rows.
//!
//! Nothing here changes memory that outlives the transaction: the new state of a batch is returned
//! and takes effect only once the commit is durable.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use admit_core::{
    Code, Digest, Entry, Event, Fault, FaultKind, Issue, Key, Millis, Principal, PriorAdmission,
    RefusedSubmission, Seq, Verdict, evidence_of, refusal_of_conflict,
};
use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::documents::{ApplyError, Documents};
use super::effect_store::SqliteEffectStore;
use super::inbox;
use super::issuing::IssuingBatch;
use super::keys::{ClaimError, ClaimedTwice, KeyIndex, Seed};
use super::queries;
use crate::common::records::{self, RecordApplyError};
use crate::common::write_command::{EntryOutcome, facts_text};
use crate::common::{RefusalQuota, refusal_cost};
use crate::rules;
use crate::tables::record::RecordTables;

/// Counters of the ledger; the writer's copy is updated only with durable commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) last_seq: Seq,
    pub(super) admissions: u64,
    pub(super) sightings: u64,
    /// Keys ever claimed.
    pub(super) keys: u64,
}

impl Position {
    fn next(&mut self) -> Seq {
        self.last_seq = Seq(self.last_seq.0 + 1);
        self.last_seq
    }
}

/// The statements of the hot path, prepared once per batch.
struct Statements<'c> {
    first: CachedStatement<'c>,
    again: CachedStatement<'c>,
    admission: CachedStatement<'c>,
    body: CachedStatement<'c>,
    sighting: CachedStatement<'c>,
}

/// A batch being written.
pub(super) struct Batch<'c> {
    conn: &'c Connection,
    statements: Statements<'c>,
    epoch: u64,
    quota: RefusalQuota,
    position: Position,
    /// Effects of events, and documents and runs of doors that issue documents.
    pub(super) store: SqliteEffectStore<'c>,
    /// Admissions of this batch; a repeat inside a batch is a duplicate like any other.
    fresh: HashMap<Key, PriorAdmission, Seed>,
    claims: Vec<(Key, Seq)>,
    documents: Documents,
}

/// Why a batch could not continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum BatchError {
    /// SQLite error.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// This entry cannot be recorded; without it the others can.
    #[error(transparent)]
    Poisoned(Fault),
    /// An invariant of the ledger is broken.
    #[error(transparent)]
    Broken(#[from] ClaimedTwice),
}

impl From<ClaimError> for BatchError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Sqlite(error) => Self::Sqlite(error),
            ClaimError::ClaimedTwice(error) => Self::Broken(error),
        }
    }
}

impl From<RecordApplyError<rusqlite::Error>> for BatchError {
    fn from(error: RecordApplyError<rusqlite::Error>) -> Self {
        match error {
            RecordApplyError::Store(error) => Self::Sqlite(error),
            RecordApplyError::Poisoned(fault) => Self::Poisoned(fault),
        }
    }
}

impl<'c> Batch<'c> {
    pub(super) fn begin(
        conn: &'c Connection,
        epoch: u64,
        quota: RefusalQuota,
        position: Position,
    ) -> rusqlite::Result<Self> {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let statements = Statements {
            first: conn.prepare_cached(queries::FIRST)?,
            again: conn.prepare_cached(queries::AGAIN)?,
            admission: conn.prepare_cached(queries::INSERT_ADMISSION)?,
            body: conn.prepare_cached(queries::INSERT_BODY)?,
            sighting: conn.prepare_cached(queries::INSERT_SIGHTING)?,
        };
        let fresh = HashMap::with_hasher(Seed::drawn());
        let (claims, documents) = (Vec::new(), Documents::default());
        let store = SqliteEffectStore::new(conn, epoch);
        Ok(Self { conn, statements, epoch, quota, position, store, fresh, claims, documents })
    }

    /// Records one entry, with its documents at a door that issues some. After an error the
    /// transaction must be rolled back.
    pub(super) fn record(
        &mut self,
        keys: &KeyIndex,
        entry: &Entry,
        issue: Option<&dyn Issue>,
    ) -> Result<EntryOutcome, BatchError> {
        if let Some(issue) = issue {
            let (verdict, issued) = IssuingBatch { batch: self, keys }.record(entry, issue)?;
            return Ok(EntryOutcome {
                issued: Some(Box::new(issued)),
                ..EntryOutcome::plain(verdict)
            });
        }
        match entry {
            Entry::Event(event) => {
                let issuing = &mut IssuingBatch { batch: self, keys };
                let (verdict, content_seq) = rules::record_event(issuing, event)?;
                let outcome = match &event.record {
                    None => None,
                    Some(rule) => {
                        let tables = &mut RecordTables::new(self.conn);
                        records::apply(tables, event, &**rule, &verdict, content_seq)?
                    }
                };
                Ok(EntryOutcome { outcome, ..EntryOutcome::plain(verdict) })
            }
            Entry::Refused(refused) => Ok(EntryOutcome::plain(self.refused(refused)?)),
        }
    }

    /// Writes the rows of the batch as a whole. The caller commits.
    pub(super) fn finish(mut self, keys: &mut KeyIndex) -> Result<Position, BatchError> {
        self.documents.write(self.conn)?;
        self.store.finish()?;
        self.position.keys += self.claims.len() as u64;
        keys.claim(self.conn, std::mem::take(&mut self.claims))?;
        let mut put = self.conn.prepare_cached(queries::META_PUT)?;
        put.execute(("last_seq", self.position.last_seq.0))?;
        put.execute(("admissions", self.position.admissions))?;
        put.execute(("sightings", self.position.sightings))?;
        put.execute(("keys", self.position.keys))?;
        Ok(self.position)
    }

    /// Returns the first admission under `key`, in this batch or in the ledger.
    pub(super) fn first(
        &mut self,
        keys: &KeyIndex,
        key: &Key,
    ) -> rusqlite::Result<Option<PriorAdmission>> {
        if let Some(first) = self.fresh.get(key) {
            return Ok(Some(first.clone()));
        }
        let Some(seq) = keys.find(self.conn, key)? else { return Ok(None) };
        self.statements
            .first
            .query_row([seq.0], |row| {
                Ok(PriorAdmission {
                    seq,
                    digest: Digest::from_bytes(row.get(0)?),
                    received_at: Millis(row.get(1)?),
                    facts: Bytes::from(row.get::<_, String>(2)?),
                    principal: Principal::new(row.get_ref(3)?.as_str()?),
                })
            })
            .map(Some)
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
        let seq = self.insert_event(event, verdict, of, None, &facts)?;
        self.project(event, seq)?;
        if let Some(first) = first {
            return Ok((Verdict::Revision { seq, first }, seq));
        }
        inbox::put(self.conn, seq, event)?;
        if let Some(intent) = &event.effect {
            rules::begin_effect(&mut self.store, seq, intent, event.received_at)?;
        }
        self.claims.push((event.key, seq));
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
            Ok(Err(ApplyError::Sqlite(error))) => Err(error.into()),
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
    ) -> rusqlite::Result<Verdict> {
        let (seq, other) = match self.same_content(event)? {
            Some(known) => (None, known),
            None => {
                let facts = facts_text(&event.facts);
                let reason = refusal_of_conflict(&first, event);
                let seq = self.insert_event(event, "conflict", Some(first.seq), reason, &facts)?;
                (Some(seq), seq)
            }
        };
        let sighting = self.sighting(first.seq, event, Some(other))?;
        Ok(Verdict::Conflict { seq: seq.unwrap_or(sighting), first })
    }

    /// Returns the stored revision or conflict with exactly this content.
    pub(super) fn same_content(&mut self, event: &Event) -> rusqlite::Result<Option<Seq>> {
        let principal = evidence_of(event).map(Principal::as_str);
        self.statements
            .again
            .query_row((event.key.as_bytes(), event.digest.as_bytes(), principal), |row| {
                row.get(0).map(Seq)
            })
            .optional()
    }

    pub(super) fn refused(&mut self, refused: &RefusedSubmission) -> rusqlite::Result<Verdict> {
        let digest = Digest::of(&refused.body);
        let (door, principal) = (refused.door.as_str(), refused.principal.as_str());
        let before = self
            .conn
            .prepare_cached(queries::REFUSED_BEFORE)?
            .query_row((digest.as_bytes(), door, principal, refused.code.as_str()), |row| {
                row.get::<_, u64>(0)
            })
            .optional()?;
        if let Some(admission) = before {
            let seq = self.position.next();
            self.position.sightings += 1;
            let at = refused.received_at.0;
            let row = (seq.0, admission, at, refused.attempt, None::<u64>);
            self.statements.sighting.execute(row)?;
            return Ok(Verdict::Refused { seq: Some(seq) });
        }
        let facts = facts_text(&refused.facts);
        let taken = self.conn.prepare_cached(queries::QUOTA_TAKE)?.execute((
            door,
            principal,
            refusal_cost(refused, &facts),
            self.quota.rows_max,
            self.quota.bytes_max,
        ))?;
        if taken == 0 {
            return Ok(Verdict::Refused { seq: None });
        }
        let seq = self.position.next();
        self.position.admissions += 1;
        self.statements.admission.execute((
            seq.0,
            self.epoch,
            door,
            principal,
            "refused",
            None::<&[u8]>,
            digest.as_bytes(),
            refused.received_at.0,
            refused.attempt,
            None::<u64>,
            refused.code.as_str(),
            &refused.message,
            facts,
            None::<i64>,
        ))?;
        self.statements.body.execute((seq.0, &refused.body[..]))?;
        Ok(Verdict::Refused { seq: Some(seq) })
    }

    fn insert_event(
        &mut self,
        event: &Event,
        verdict: &str,
        first: Option<Seq>,
        reason: Option<(Code, &str)>,
        facts: &str,
    ) -> rusqlite::Result<Seq> {
        let seq = self.position.next();
        self.position.admissions += 1;
        self.statements.admission.execute((
            seq.0,
            self.epoch,
            event.door.as_str(),
            event.principal.as_str(),
            verdict,
            event.key.as_bytes(),
            event.digest.as_bytes(),
            event.received_at.0,
            event.attempt,
            first.map(|seq| seq.0),
            reason.map(|(code, _)| code.as_str()),
            reason.map(|(_, message)| message),
            facts,
            event.happened_at.map(|at| at.0),
        ))?;
        self.statements.body.execute((seq.0, &event.body[..]))?;
        Ok(seq)
    }

    pub(super) fn sighting(
        &mut self,
        admission: Seq,
        event: &Event,
        other: Option<Seq>,
    ) -> rusqlite::Result<Seq> {
        let seq = self.position.next();
        self.position.sightings += 1;
        let other = other.map(|seq| seq.0);
        let row = (seq.0, admission.0, event.received_at.0, event.attempt, other);
        self.statements.sighting.execute(row)?;
        Ok(seq)
    }
}
