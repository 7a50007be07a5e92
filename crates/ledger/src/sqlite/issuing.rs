//! Recording and settling at doors that issue documents: verdict, documents and the counters of the
//! run in one transaction.

use std::sync::Arc;

use admit_core::effect::{By, Effect, Illegal};
use admit_core::{
    Door, Entry, Event, Fault, First, Issue, Key, Millis, Recorded, Refused, RunState, Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::desk::Desk;
use super::keys::KeyIndex;
use super::task::{Tx, Work};
use super::{effects, issued, queries};
use crate::desk::{self, Recording, Told};
use crate::issuance::{Copied, FileNote, Settled, Settlement};

/// A batch of a door that issues, with the keys to look in.
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
    ) -> Result<(Verdict, Told), BatchError> {
        desk::record(self, entry, issue)
    }
}

impl<'c> Recording for IssuingBatch<'_, 'c> {
    type Error = BatchError;
    type Desk = Desk<'c>;

    fn poisoned(fault: Fault) -> BatchError {
        BatchError::Poisoned(fault)
    }

    fn desk(&mut self) -> &mut Desk<'c> {
        &mut self.batch.desk
    }

    fn first(&mut self, key: &Key) -> Result<Option<First>, BatchError> {
        Ok(self.batch.first(self.keys, key)?)
    }

    fn admit(&mut self, event: &Event) -> Result<(Verdict, Seq), BatchError> {
        self.batch.admit(event, None)
    }

    fn conflict(&mut self, event: &Event, first: First) -> Result<Verdict, BatchError> {
        Ok(self.batch.conflict(event, first)?)
    }

    fn sighting(&mut self, event: &Event, first: Seq) -> Result<Seq, BatchError> {
        Ok(self.batch.sighting(first, event, None)?)
    }

    fn refused(&mut self, refused: &Refused) -> Result<Verdict, BatchError> {
        Ok(self.batch.refused(refused)?)
    }
}

/// Moving effects on, for the writer.
pub(super) struct Settle {
    pub(super) epoch: u64,
    pub(super) batch: Vec<Settlement>,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for Settle {
    type Answer = Vec<Result<Settled, Illegal>>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut desk = Desk::new(tx.conn, self.epoch);
        let settled = desk::settle(&mut desk, &self.batch, &*self.issue, self.at)?;
        desk.finish()?;
        Ok(settled)
    }
}

/// Saying what there is to say about a copy that has waited, for the writer.
pub(super) struct SettleCopy {
    pub(super) epoch: u64,
    pub(super) copy: Recorded,
    pub(super) first: Seq,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for SettleCopy {
    type Answer = Result<Copied, Illegal>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let mut desk = Desk::new(tx.conn, self.epoch);
        let copied = desk::settle_copy(&mut desk, &self.copy, self.first, &*self.issue, self.at)?;
        desk.finish()?;
        Ok(copied)
    }
}

/// Looking after what earlier processes had in flight at one door, for the writer.
pub(super) struct RecoverDoor {
    pub(super) epoch: u64,
    pub(super) door: Door,
    pub(super) issue: Arc<dyn Issue>,
    pub(super) at: Millis,
}

impl Work for RecoverDoor {
    type Answer = Vec<Effect>;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<Self::Answer> {
        let lost: Vec<Effect> = tx
            .conn
            .prepare_cached(queries::EFFECT_LOST_OF_DOOR)?
            .query_map([self.door.as_str()], effects::effect_row)?
            .collect::<Result<_, _>>()?;
        let mut desk = Desk::new(tx.conn, self.epoch);
        let recovered = desk::recover_door(&mut desk, lost, &*self.issue, self.at)?;
        desk.finish()?;
        Ok(recovered)
    }
}

/// Letting a quarantine go, for the writer.
pub(super) struct Release {
    pub(super) epoch: u64,
    pub(super) run: String,
    pub(super) id: String,
    pub(super) how: &'static str,
    pub(super) by: By,
    pub(super) at: Millis,
}

impl Work for Release {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let mut desk = Desk::new(tx.conn, self.epoch);
        let open = issued::open_named(tx.conn, &self.run, &self.id)?;
        let any = desk::let_go(&mut desk, open, self.how, &self.by, self.at)?;
        desk.finish()?;
        Ok(any)
    }
}

/// Noting what is known about files, for the writer.
pub(super) struct NoteFiles(pub(super) FileNote);

impl Work for NoteFiles {
    type Answer = ();

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

/// Changing whether a run takes events, for the writer.
pub(super) struct TurnRun {
    pub(super) id: String,
    pub(super) from: RunState,
    pub(super) to: RunState,
    pub(super) at: Millis,
}

impl Work for TurnRun {
    type Answer = bool;

    fn write(&mut self, tx: &mut Tx<'_>) -> rusqlite::Result<bool> {
        let row = (&self.id, self.from.as_str(), self.to.as_str(), self.at.0);
        Ok(tx.conn.prepare_cached(queries::RUN_STATE)?.execute(row)? > 0)
    }
}
