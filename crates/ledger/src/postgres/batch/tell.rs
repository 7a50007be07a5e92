//! Records: what an event tells, put together with what others told.

use admit_core::json::Object;
use admit_core::record::RecordRule;
use admit_core::{Event, Fault, FaultKind, Seq, Verdict};

use super::{Batch, BatchError};

impl Batch<'_> {
    /// Puts what an event tells together with what others told. A failure, even a panic, is the
    /// event's own.
    pub(super) fn tell(
        &self,
        _: &Event,
        _: &dyn RecordRule,
        _: &Verdict,
        _: Seq,
    ) -> Result<Option<Object<'static>>, BatchError> {
        let message = "this ledger keeps no records yet, nothing was stored";
        Err(BatchError::Poisoned(Fault::new(FaultKind::Internal, message)))
    }
}
