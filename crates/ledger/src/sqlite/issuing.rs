//! Recording and settling at doors that issue documents: verdict, documents and the counters of the
//! run in one transaction.

use std::sync::Arc;

use admit_core::effect::{Attribution, Effect, IllegalStep};
use admit_core::{
    Door, Entry, Event, Fault, Issue, Key, Millis, PriorAdmission, RecordedEntry,
    RefusedSubmission, RunState, Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::effect_store::SqliteEffectStore;
use super::keys::KeyIndex;
use super::write_op::{Tx, WriteOp};
use super::{effects, issued, queries};
use crate::issuance::{FileNote, SettledCopy, SettledEffect, Settlement};
use crate::rules::{self, IssueResult, Recording};

/// A batch of a door that issues, with the key index.
pub(super) struct IssuingBatch<'b, 'c> {
    pub(super) batch: &'b mut Batch<'c>,
    pub(super) keys: &'b KeyIndex,
}

impl IssuingBatch<'_, '_> {
    /// Records one entry. After an error the transaction is rolled back.
    pub(super) fn record(
        &mut self,
        entry: &Entry,
        issue: &dyn Issue,
    ) -> Result<(Verdict, IssueResult), BatchError> {
        rules::record(self, entry, issue)
    }
}

impl<'c> Recording for IssuingBatch<'_, 'c> {
    type Error = BatchError;
    type Store = SqliteEffectStore<'c>;

    fn poisoned(fault: Fault) -> BatchError {
        BatchError::Poisoned(fault)
    }

    fn store(&mut self) -> &mut SqliteEffectStore<'c> {
        &mut self.batch.store
    }

    fn first(&mut self, key: &Key) -> Result<Option<PriorAdmission>, BatchError> {
        Ok(self.batch.first(self.keys, key)?)
    }

    fn same_content(&mut self, event: &Event) -> Result<Option<Seq>, BatchError> {
        Ok(self.batch.same_content(event)?)
    }

    fn admit(
        &mut self,
        event: &Event,
        first: Option<PriorAdmission>,
    ) -> Result<(Verdict, Seq), BatchError> {
        self.batch.admit(event, first)
    }

    fn conflict(&mut self, event: &Event, first: PriorAdmission) -> Result<Verdict, BatchError> {
        Ok(self.batch.conflict(event, first)?)
    }

    fn sighting(&mut self, event: &Event, first: Seq) -> Result<Seq, BatchError> {
        Ok(self.batch.sighting(first, event, None)?)
    }

    fn refused(&mut self, refused: &RefusedSubmission) -> Result<Verdict, BatchError> {
        Ok(self.batch.refused(refused)?)
    }
}

/// Advances effects.
pub(super) struct Settle {
    pub(super) epoch: u64,
    pub(super) batch: Vec<Settlement>,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl WriteOp for Settle {
    type Output = Vec<Result<SettledEffect, IllegalStep>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let mut store = SqliteEffectStore::new(tx.conn, self.epoch);
        let settled = rules::settle(&mut store, &self.batch, &*self.issue, self.at)?;
        store.finish()?;
        Ok(settled)
    }
}

/// Issues the documents of a copy that waited.
pub(super) struct SettleCopy {
    pub(super) epoch: u64,
    pub(super) copy: RecordedEntry,
    pub(super) first: Seq,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl WriteOp for SettleCopy {
    type Output = Result<SettledCopy, IllegalStep>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let mut store = SqliteEffectStore::new(tx.conn, self.epoch);
        let copied = rules::settle_copy(&mut store, &self.copy, self.first, &*self.issue, self.at)?;
        store.finish()?;
        Ok(copied)
    }
}

/// Recovers what earlier processes had in flight at one door.
pub(super) struct RecoverDoor {
    pub(super) epoch: u64,
    pub(super) door: Door,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl WriteOp for RecoverDoor {
    type Output = Vec<Effect>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Output> {
        let lost: Vec<Effect> = tx
            .conn
            .prepare_cached(queries::EFFECT_LOST_OF_DOOR)?
            .query_map([self.door.as_str()], effects::effect_row)?
            .collect::<Result<_, _>>()?;
        let mut store = SqliteEffectStore::new(tx.conn, self.epoch);
        let recovered = rules::recover_door(&mut store, lost, &*self.issue, self.at)?;
        store.finish()?;
        Ok(recovered)
    }
}

/// Releases a quarantine.
pub(super) struct Release {
    pub(super) epoch: u64,
    pub(super) run: String,
    pub(super) id: String,
    pub(super) how: &'static str,
    pub(super) by: Attribution,
    pub(super) at: Millis,
}

impl WriteOp for Release {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let mut store = SqliteEffectStore::new(tx.conn, self.epoch);
        let open = issued::open_named(tx.conn, &self.run, &self.id)?;
        let any = rules::release_documents(&mut store, open, self.how, &self.by, self.at)?;
        store.finish()?;
        Ok(any)
    }
}

/// Records progress on files.
pub(super) struct NoteFiles(pub(super) FileNote);

impl WriteOp for NoteFiles {
    type Output = ();

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<()> {
        let (numbers, is_unwritten) = match &self.0 {
            FileNote::SyncedTo(n) | FileNote::Restored { to: n, .. } => {
                tx.conn.prepare_cached(queries::META_PUT)?.execute((issued::SYNCED, n))?;
                return Ok(());
            }
            FileNote::Unwritten(numbers) => (numbers, true),
            FileNote::Written(numbers) => (numbers, false),
        };
        let mut put = tx.conn.prepare_cached(queries::ISSUED_UNWRITTEN_PUT)?;
        for n in numbers {
            put.execute((n, is_unwritten))?;
        }
        Ok(())
    }
}

/// Changes whether a run accepts events.
pub(super) struct TurnRun {
    pub(super) id: String,
    pub(super) from: RunState,
    pub(super) to: RunState,
    pub(super) at: Millis,
}

impl WriteOp for TurnRun {
    type Output = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let row = (&self.id, self.from.as_str(), self.to.as_str(), self.at.0);
        Ok(tx.conn.prepare_cached(queries::RUN_STATE)?.execute(row)? > 0)
    }
}
