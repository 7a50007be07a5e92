//! Recording at doors that issue documents.

use admit_core::{Entry, Fault, FaultKind, First, Issue, Verdict};

use super::batch::{Batch, BatchError};
use super::conn::{Conn, Result};
use crate::common::job::Told;

/// A delivery at a door that issues, with the first under its key.
pub(super) struct Wanted<'e> {
    pub(super) entry: &'e Entry,
    pub(super) issue: &'e dyn Issue,
    pub(super) first: Option<&'e First>,
}

/// What a group needs to know about doors that issue, and what it leaves behind.
#[derive(Default)]
pub(super) struct Prefetched;

impl Prefetched {
    pub(super) fn fetch(_: &Conn, _: &[Wanted<'_>]) -> Result<Self> {
        Ok(Self)
    }

    pub(super) fn flush(&mut self, _: &Conn) -> Result<()> {
        Ok(())
    }
}

impl Batch<'_> {
    /// Records one entry of a door that issues. After an error the transaction is rolled back.
    pub(super) fn issuing(
        &mut self,
        _: &Entry,
        _: &dyn Issue,
    ) -> std::result::Result<(Verdict, Told), BatchError> {
        let message = "this ledger does not issue documents yet";
        Err(BatchError::Poisoned(Fault::new(FaultKind::Internal, message)))
    }
}
