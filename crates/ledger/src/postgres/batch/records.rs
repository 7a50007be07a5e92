//! Records of a batch.

use admit_core::entity::EntityRule;
use admit_core::json::Object;
use admit_core::{Event, Seq, Verdict};

use super::{Batch, BatchError};
use crate::common::records::{self, RecordApplyError};
use crate::postgres::conn;
use crate::postgres::records::RecordTables;

impl From<RecordApplyError<conn::Error>> for BatchError {
    fn from(error: RecordApplyError<conn::Error>) -> Self {
        match error {
            RecordApplyError::Store(error) => error.into(),
            RecordApplyError::Poisoned(fault) => Self::Poisoned(fault),
        }
    }
}

impl Batch<'_> {
    /// Applies an event to its record, inside the transaction: each event depends on the result of those before
    /// it, so each takes a few round trips of its own.
    pub(super) fn apply_to_record(
        &self,
        event: &Event,
        rule: &dyn EntityRule,
        verdict: &Verdict,
        content_seq: Seq,
    ) -> Result<Option<Object<'static>>, BatchError> {
        let tables = &mut RecordTables::new(self.conn);
        Ok(records::apply(tables, event, rule, verdict, content_seq)?)
    }
}
