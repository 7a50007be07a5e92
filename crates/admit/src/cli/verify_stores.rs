//! `admit verify` outside the ledger: documents against artifact files, admissions against bus messages.
//!
//! The ledger is authoritative. Every document must have its file and every file its document; every
//! admission must have its message and every message its admission.

use std::collections::HashSet;
use std::io::IsTerminal as _;

use admit_core::{Fault, Seq};
use admit_ledger::verify::DisagreementSink;

use super::ledger_files::{self, LedgerFile};
use super::verify_artifacts::{ArtifactSource, check_documents, check_unknown_files};
use super::verify_bus::{BusSource, check_messages};
use super::verify_prefetch::DocumentIndex;
use crate::ledger::LedgerReader;
use crate::output::print_stderr;

/// Rows read per page.
pub(super) const PAGE: usize = 500;

/// Concurrent reads of files or bodies.
pub(super) const READS_MAX: usize = 16;

/// Rows between two lines of progress; a multiple of [`PAGE`].
const PROGRESS_EVERY: u64 = 10_000;

/// Numbers of checked artifacts and messages.
#[derive(Debug, Default)]
pub(super) struct StoreCounts {
    pub(super) artifacts: u64,
    pub(super) messages: u64,
    /// Messages on a shared bus that belong to no admission of this ledger.
    pub(super) other_messages: u64,
    /// Admissions whose message the retention of the bus has removed.
    pub(super) expired: u64,
    pub(super) ambiguous: u64,
}

/// Error of a check outside the ledger.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreCheckError {
    #[error("cannot read the ledger: {0}")]
    Ledger(#[from] Fault),
    #[error(transparent)]
    Artifacts(#[from] admit_artifacts::ArtifactsError),
    #[error("cannot read the bus: {0}")]
    Bus(#[from] std::io::Error),
}

/// Compares the ledger with artifacts and bus, up to `last`, the newest seq that the check of the ledger
/// covered.
pub(super) async fn verify(
    ledger: &dyn LedgerReader,
    artifacts: &ArtifactSource,
    bus: &BusSource,
    (files, reconciled): (&[LedgerFile], &HashSet<Seq>),
    last: Seq,
    found: &mut DisagreementSink<'_>,
) -> Result<StoreCounts, StoreCheckError> {
    let mut counts = StoreCounts::default();
    let mut documents = DocumentIndex::new(last);
    let context = (reconciled, &mut documents);
    check_documents(ledger, artifacts, context, &mut counts, found).await?;
    counts.artifacts += ledger_files::check(files, &*artifacts.store, found).await?;
    documents.sort();
    check_unknown_files(ledger, &*artifacts.store, &documents, found).await?;
    check_messages(ledger, bus, &documents, last, &mut counts, found).await?;
    Ok(counts)
}

/// Prints progress if stderr is a terminal.
pub(super) fn print_progress(count: u64, what: &str) {
    if count.is_multiple_of(PROGRESS_EVERY) && std::io::stderr().is_terminal() {
        print_stderr(&format!("{count} {what} checked"));
    }
}
