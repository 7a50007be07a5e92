//! Records: what an event tells, put together with what others told.

use admit_core::json::Object;
use admit_core::record::RecordRule;
use admit_core::{Event, Seq, Verdict};

use super::{Batch, BatchError};
use crate::common::records::{self, NotTold};
use crate::postgres::conn;
use crate::postgres::records::RecordTables;

impl From<NotTold<conn::Error>> for BatchError {
    fn from(error: NotTold<conn::Error>) -> Self {
        match error {
            NotTold::Store(error) => Self::Server(error),
            NotTold::Poisoned(fault) => Self::Poisoned(fault),
        }
    }
}

impl Batch<'_> {
    /// Puts what an event tells together with what others told, inside the transaction: each event sees
    /// what the ones before it have come to, so each is a few round trips of its own.
    pub(super) fn tell(
        &self,
        event: &Event,
        rule: &dyn RecordRule,
        verdict: &Verdict,
        told_at: Seq,
    ) -> Result<Option<Object<'static>>, BatchError> {
        let tables = &mut RecordTables::new(self.conn);
        Ok(records::tell(tables, event, rule, verdict, told_at)?)
    }
}
