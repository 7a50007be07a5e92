//! Ledger whose next settles fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use admit_core::effect::{Attribution, Effect, IllegalStep};
use admit_core::{
    Door, Entry, Fault, FaultKind, Issue, Millis, RecordedEntry, RunState, Seq, StoredDocument,
};
use admit_ledger::sqlite::SqliteLedger;
use admit_ledger::{
    BoxFuture, DocumentFilter, DocumentReader, FileNote, Issuance, IssueHandlers, RecordedDelivery,
    Run, SettledCopy, SettledEffect, Settlement,
};

/// Wraps a ledger with a number of settles that fail.
pub(crate) struct FlakyLedger {
    inner: Arc<SqliteLedger>,
    failures_left: AtomicU32,
}

impl FlakyLedger {
    pub(crate) fn over(inner: Arc<SqliteLedger>) -> Self {
        Self { inner, failures_left: AtomicU32::new(0) }
    }

    /// Makes the next `count` settles fail.
    pub(crate) fn fail_settles(&self, count: u32) {
        self.failures_left.store(count, SeqCst);
    }
}

impl DocumentReader for FlakyLedger {
    fn filed(&self, filter: DocumentFilter) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.inner.filed(filter)
    }

    fn named(&self, id: String) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.inner.named(id)
    }

    fn filed_of(&self, seq: Seq) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.inner.filed_of(seq)
    }

    fn unwritten(
        &self,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredDocument>, Fault>> {
        self.inner.unwritten(after, rows_max)
    }

    fn synced(&self) -> BoxFuture<'_, Result<(u64, u64), Fault>> {
        self.inner.synced()
    }

    fn run(&self, id: String) -> BoxFuture<'_, Result<Option<Run>, Fault>> {
        self.inner.run(id)
    }

    fn runs(&self, after: String, rows_max: usize) -> BoxFuture<'_, Result<Vec<Run>, Fault>> {
        self.inner.runs(after, rows_max)
    }
}

impl Issuance for FlakyLedger {
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: IssueHandlers,
    ) -> BoxFuture<'_, Vec<Result<RecordedDelivery, Fault>>> {
        self.inner.record_issuing(batch, issuing)
    }

    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<SettledEffect, IllegalStep>>, Fault>> {
        let decrement = |left: u32| left.checked_sub(1);
        if self.failures_left.try_update(SeqCst, SeqCst, decrement).is_ok() {
            let fault = Fault::new(FaultKind::LedgerUnavailable, "failure for a test");
            return Box::pin(std::future::ready(Err(fault)));
        }
        self.inner.settle(batch, issue, at)
    }

    fn settle_copy(
        &self,
        copy: RecordedEntry,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<SettledCopy, Fault>> {
        self.inner.settle_copy(copy, first, issue, at)
    }

    fn recover_issuing(
        &self,
        door: Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        self.inner.recover_issuing(door, issue, at)
    }

    fn release(
        &self,
        run: String,
        id: String,
        how: &'static str,
        by: Attribution,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        self.inner.release(run, id, how, by, at)
    }

    fn issued_here(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<u64>, Fault>> {
        self.inner.issued_here(after, rows_max)
    }

    fn note_files(&self, note: FileNote) -> BoxFuture<'_, Result<(), Fault>> {
        self.inner.note_files(note)
    }

    fn turn_run(
        &self,
        id: String,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        self.inner.turn_run(id, from, to, at)
    }
}
