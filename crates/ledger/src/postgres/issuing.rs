//! Recording at doors that issue documents: verdict, documents and the counters of the run in one
//! transaction.

use admit_core::{
    Entry, Event, Fault, Issue, Key, PriorAdmission, RefusedSubmission, Seq, Verdict,
};

use super::batch::{Batch, BatchError};
use super::effect_store::PgEffectStore;
use crate::rules::{self, IssueResult, RecordingBatch};

impl Batch<'_> {
    /// Records one entry of a door that issues. After an error the transaction is rolled back.
    pub(super) fn issuing(
        &mut self,
        entry: &Entry,
        issue: &dyn Issue,
    ) -> std::result::Result<(Verdict, IssueResult), BatchError> {
        rules::record(self, entry, issue)
    }
}

impl<'c> RecordingBatch for Batch<'c> {
    type Error = BatchError;
    type Store = PgEffectStore<'c>;

    fn poisoned(fault: Fault) -> BatchError {
        BatchError::Poisoned(fault)
    }

    fn store(&mut self) -> &mut PgEffectStore<'c> {
        &mut self.store
    }

    fn first(&mut self, key: &Key) -> std::result::Result<Option<PriorAdmission>, BatchError> {
        Ok(Batch::first(self, key))
    }

    fn same_content(&mut self, event: &Event) -> std::result::Result<Option<Seq>, BatchError> {
        Ok(Batch::same_content(self, event)?)
    }

    fn admit(
        &mut self,
        event: &Event,
        first: Option<PriorAdmission>,
    ) -> std::result::Result<(Verdict, Seq), BatchError> {
        Batch::admit(self, event, first)
    }

    fn conflict(
        &mut self,
        event: &Event,
        first: PriorAdmission,
    ) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::conflict(self, event, first)?)
    }

    fn sighting(&mut self, event: &Event, first: Seq) -> std::result::Result<Seq, BatchError> {
        Ok(Batch::sighting(self, first, event, None))
    }

    fn refused(&mut self, refused: &RefusedSubmission) -> std::result::Result<Verdict, BatchError> {
        Ok(Batch::refused(self, refused)?)
    }
}
