//! Recording at doors that issue documents: verdict, documents and the counters of the run in one
//! transaction.

use admit_core::{
    Entry, Event, Fault, Issue, Key, PriorAdmission, RefusedSubmission, Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::effect_store::SqliteEffectStore;
use super::keys::KeyIndex;
use crate::rules::{self, IssueResult, RecordingBatch};

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

impl<'c> RecordingBatch for IssuingBatch<'_, 'c> {
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
