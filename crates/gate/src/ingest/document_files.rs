//! Files of documents: written after the commit and before the reply, synced to stable storage later.
//! For slow stores they are [written behind](super::write_behind) the reply.
//!
//! A power failure may lose a file until it is synced. The ledger stores the number up to which all files
//! are synced, and the next start restores the others. Where several gates share a ledger, each writes
//! the files of its own documents, and live gates restore those of dead gates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admit_artifacts::{File, Line, Markers};
use admit_core::{DocumentKind, Fault, FaultKind, StoredDocument};
use admit_ledger::FileNote;
use bytes::Bytes;
use tokio::time::sleep;

use super::Ingest;

/// Number of documents restored at a time.
const PAGE: usize = 256;

/// Number of document numbers per ledger query.
const NUMBERS_PAGE: usize = 4096;

/// Tracks which of the documents issued by this process have their files.
#[derive(Debug, Default)]
pub(super) struct FileTracker(Mutex<FileProgress>);

#[derive(Debug, Default)]
struct FileProgress {
    /// All own files up to this number are written.
    written_to: u64,
    /// Written files beyond `written_to`.
    beyond: BTreeSet<u64>,
    /// All own files up to this number are synced, and the ledger has recorded it.
    synced_to: u64,
    /// First own file that was missing at the last check.
    missing: Option<u64>,
}

impl FileTracker {
    fn lock(&self) -> MutexGuard<'_, FileProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts with all files up to `n` written and synced, after the start-up recovery.
    pub(super) fn start_at(&self, n: u64) {
        let mut numbers = self.lock();
        (numbers.written_to, numbers.synced_to) = (n, n);
    }

    fn mark_written(&self, written: impl Iterator<Item = u64>) {
        let mut numbers = self.lock();
        let written_to = numbers.written_to;
        numbers.beyond.extend(written.filter(|n| *n > written_to));
    }

    /// Returns the first of `own` up to `newest` whose file is missing.
    fn first_missing(&self, own: &[u64], newest: u64) -> Option<u64> {
        let numbers = self.lock();
        own.iter().copied().find(|n| *n <= newest && !numbers.beyond.contains(n))
    }

    /// Advances `written_to` to `newest`, or to the file before the first missing one. Returns the missing
    /// one if it was already missing at the last check.
    fn advance(&self, newest: u64, missing: Option<u64>) -> Option<u64> {
        let mut numbers = self.lock();
        numbers.written_to = missing.map_or(newest, |n| n - 1).max(numbers.written_to);
        let beyond = numbers.written_to + 1;
        numbers.beyond = numbers.beyond.split_off(&beyond);
        let before = std::mem::replace(&mut numbers.missing, missing);
        missing.filter(|_| missing == before)
    }
}

/// Numbers of the files of a batch that could not be written.
#[derive(Debug, Default)]
pub(super) struct FailedWrites(BTreeSet<u64>);

impl FailedWrites {
    pub(super) fn new(numbers: BTreeSet<u64>) -> Self {
        Self(numbers)
    }

    pub(super) fn contains(&self, n: u64) -> bool {
        self.0.contains(&n)
    }
}

/// Fault for a committed decision whose file could not be written.
pub(super) fn unwritten_receipt() -> Fault {
    Fault::new(
        FaultKind::OutcomeUnknown,
        "the decision is stored, but its receipt file could not be written; retry",
    )
}

impl Ingest {
    /// Writes or queues the files of documents. `raw` is the body of their event, for documents with a body
    /// file.
    pub(super) async fn write_files(
        &self,
        filed: &[&StoredDocument],
        raw: Option<&Bytes>,
    ) -> FailedWrites {
        match &self.write_behind {
            Some(behind) => self.queue_files(behind, filed, raw).await,
            None => self.write_now(filed, raw).await,
        }
    }

    async fn write_now(&self, filed: &[&StoredDocument], raw: Option<&Bytes>) -> FailedWrites {
        let documents: Vec<(&StoredDocument, Option<&Bytes>)> =
            filed.iter().map(|filed| (*filed, raw)).collect();
        let failed = self.put_files(&documents).await;
        self.note_unwritten(&failed).await;
        FailedWrites(failed)
    }

    /// Writes the files of documents. Returns the numbers of those that failed.
    pub(super) async fn put_files(
        &self,
        documents: &[(&StoredDocument, Option<&Bytes>)],
    ) -> BTreeSet<u64> {
        let mut failed = BTreeSet::new();
        if documents.is_empty() {
            return failed;
        }
        let mut files = Vec::with_capacity(documents.len());
        let mut numbers = Vec::with_capacity(documents.len());
        let is_line = |filed: &StoredDocument| filed.document.kind == DocumentKind::Governance;
        for (filed, raw) in documents.iter().filter(|(filed, _)| !is_line(filed)) {
            if let (Some(path), Some(raw)) = (self.raw_path(filed), raw) {
                files.push(File::new(path, (*raw).clone()));
                numbers.push(filed.n);
            }
            files.push(file(filed));
            numbers.push(filed.n);
        }
        let put = self.artifacts.put_if_absent(files).await;
        for (n, put) in numbers.iter().zip(put) {
            if let Err(error) = put {
                tracing::error!(n, %error, "failed to write a document file; will retry from the ledger");
                failed.insert(*n);
            }
        }
        for (log, lines) in self.lines(documents.iter().map(|(filed, _)| *filed)) {
            let (numbers, lines): (Vec<u64>, Vec<Line>) = lines.into_iter().unzip();
            let put = self.artifacts.append_lines(&log, lines, Markers::Trusted).await;
            for (n, put) in numbers.iter().zip(put) {
                if let Err(error) = put {
                    tracing::error!(n, %error, "failed to append a governance line");
                    failed.insert(*n);
                }
            }
        }
        let written = documents.iter().map(|(filed, _)| filed.n);
        self.files.mark_written(written.filter(|n| !failed.contains(n)));
        failed
    }

    pub(super) async fn note_unwritten(&self, failed: &BTreeSet<u64>) {
        if !failed.is_empty() {
            self.note_files(FileNote::Unwritten(failed.iter().copied().collect())).await;
        }
    }

    pub(super) async fn note_files(&self, note: FileNote) {
        if let Err(fault) = self.ledger.note_files(note).await {
            tracing::warn!(%fault, "failed to record the state of document files");
        }
    }

    /// Path of the body file of a delivery without a run.
    pub(super) fn raw_path(&self, filed: &StoredDocument) -> Option<String> {
        let is_outside =
            filed.document.run.is_none() && filed.document.kind == DocumentKind::Quarantine;
        is_outside.then(|| self.contract.paths().unscoped_raw(&filed.document.id))
    }

    /// Groups governance lines by their log.
    fn lines<'f>(
        &self,
        filed: impl Iterator<Item = &'f StoredDocument>,
    ) -> BTreeMap<String, Vec<(u64, Line)>> {
        let mut logs: BTreeMap<String, Vec<(u64, Line)>> = BTreeMap::new();
        for filed in filed.filter(|filed| filed.document.kind == DocumentKind::Governance) {
            let run = filed.document.run.as_deref().unwrap_or(super::governance::UNSCOPED);
            let line = Line { text: Bytes::from(filed.document.text.clone()), marker: file(filed) };
            logs.entry(self.contract.paths().governance_log(run))
                .or_default()
                .push((filed.n, line));
        }
        logs
    }

    /// Restores files that dead processes may have left unwritten. Returns the number of documents checked,
    /// and the newest number.
    pub(super) async fn restore_files(&self) -> Result<(u64, u64), Fault> {
        let (after, newest) = self.ledger.left_unsynced().await?;
        if newest > after {
            self.restore_between(after, newest).await?;
            self.artifacts.sync().await.map_err(cannot_restore)?;
            self.ledger.note_files(FileNote::Restored { after, to: newest }).await?;
        }
        Ok((newest - after, newest))
    }

    /// Restores the missing files of the documents after `after` up to `to`.
    async fn restore_between(&self, mut after: u64, to: u64) -> Result<(), Fault> {
        while after < to {
            let filter = admit_ledger::DocumentFilter {
                after,
                rows_max: PAGE,
                ..admit_ledger::DocumentFilter::default()
            };
            let mut page = self.ledger.filed(filter).await?;
            let Some(last) = page.last() else { break };
            after = last.n;
            page.retain(|filed| filed.n <= to);
            let mut files = Vec::with_capacity(page.len());
            for filed in page.iter().filter(|f| f.document.kind != DocumentKind::Governance) {
                if let Some(path) = self.raw_path(filed) {
                    let seq = self.seq_of_body(filed.seq).await?;
                    if let Some(body) = self.reader.body(seq).await? {
                        files.push(File::new(path, body));
                    }
                }
                files.push(file(filed));
            }
            for restored in self.artifacts.restore(files).await {
                restored.map_err(cannot_restore)?;
            }
            for (log, lines) in self.lines(page.iter()) {
                let lines = lines.into_iter().map(|(_, line)| line).collect();
                for put in self.artifacts.append_lines(&log, lines, Markers::Verified).await {
                    put.map_err(cannot_restore)?;
                }
            }
            let numbers = page.iter().map(|filed| filed.n).collect();
            self.ledger.note_files(FileNote::Written(numbers)).await?;
        }
        Ok(())
    }

    /// Computes up to which number all own files are written. A file that was never written, because the
    /// commit of its document was not confirmed in time, is noted as unwritten at the second check.
    async fn update_progress(&self) -> Result<(), Fault> {
        let (mut after, newest) = {
            let numbers = self.files.lock();
            (numbers.written_to, numbers.beyond.last().copied())
        };
        // The query runs after this number was assigned, so it returns all earlier ones.
        let Some(newest) = newest else { return Ok(()) };
        let mut missing = None;
        while after < newest && missing.is_none() {
            let own = self.ledger.issued_here(after, NUMBERS_PAGE).await?;
            missing = self.files.first_missing(&own, newest);
            after = own.get(NUMBERS_PAGE - 1).copied().unwrap_or(newest);
        }
        match self.files.advance(newest, missing) {
            Some(n) => self.ledger.note_files(FileNote::Unwritten(vec![n])).await,
            None => Ok(()),
        }
    }

    /// Returns the seq under which the body of a delivery is stored: a repeated refusal has no own body.
    async fn seq_of_body(&self, seq: admit_core::Seq) -> Result<admit_core::Seq, Fault> {
        let receipt = self.reader.receipt(seq).await?;
        Ok(receipt.and_then(|receipt| receipt.first).map_or(seq, |first| first.seq))
    }

    pub(super) fn run_sync_loop(self: Arc<Self>) -> super::IngestLoop {
        Box::pin(async move {
            loop {
                sleep(self.settings.sync_every).await;
                self.sync_files().await;
                self.retry_unwritten().await;
                // On a shared ledger, another gate may have died.
                if self.reader.lease().is_some()
                    && let Err(fault) = self.restore_files().await
                {
                    // Debug: an unavailable ledger is logged elsewhere.
                    tracing::debug!(%fault, "failed to restore the document files of dead gates; will retry");
                }
            }
        })
    }

    /// Syncs the written files, and records that in the ledger.
    pub(super) async fn sync_files(&self) {
        if let Err(fault) = self.update_progress().await {
            tracing::warn!(%fault, "failed to read the documents issued by this gate");
        }
        let (to, synced_to) = {
            let numbers = self.files.lock();
            (numbers.written_to, numbers.synced_to)
        };
        if to <= synced_to {
            return;
        }
        if let Err(error) = self.artifacts.sync().await {
            tracing::error!(%error, "failed to sync document files");
            return;
        }
        match self.ledger.note_files(FileNote::SyncedTo(to)).await {
            Ok(()) => self.files.lock().synced_to = to,
            Err(fault) => tracing::warn!(%fault, "failed to record the sync of document files"),
        }
    }

    /// Retries unwritten files, page by page until a page fails.
    async fn retry_unwritten(&self) {
        let mut after = 0;
        loop {
            let unwritten = match self.ledger.unwritten(after, PAGE).await {
                Ok(unwritten) => unwritten,
                Err(fault) => {
                    tracing::debug!(%fault, "failed to read the unwritten documents");
                    return;
                }
            };
            let Some(last) = unwritten.last() else { return };
            after = last.n;
            let written = self.rewrite(&unwritten).await;
            let is_whole = written.len() == unwritten.len() && unwritten.len() == PAGE;
            if !written.is_empty() {
                tracing::info!(count = written.len(), "wrote documents that had failed before");
                self.note_files(FileNote::Written(written)).await;
            }
            if !is_whole {
                return;
            }
        }
    }

    /// Writes the files of `unwritten`. Returns the numbers that succeeded.
    async fn rewrite(&self, unwritten: &[StoredDocument]) -> Vec<u64> {
        let mut bodies = Vec::with_capacity(unwritten.len());
        for filed in unwritten {
            bodies.push(match self.raw_path(filed) {
                Some(_) => match self.seq_of_body(filed.seq).await {
                    Ok(seq) => self.reader.body(seq).await.ok().flatten(),
                    Err(_) => None,
                },
                None => None,
            });
        }
        let documents: Vec<(&StoredDocument, Option<&Bytes>)> =
            unwritten.iter().zip(bodies.iter().map(Option::as_ref)).collect();
        let failed = self.put_files(&documents).await;
        let numbers = unwritten.iter().map(|filed| filed.n);
        numbers.filter(|n| !failed.contains(n)).collect()
    }
}

fn cannot_restore(error: admit_artifacts::ArtifactsError) -> Fault {
    let message = "cannot restore the document files after the last sync";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// Renders a document as a file.
pub(super) fn file(filed: &StoredDocument) -> File {
    let mut bytes = Vec::with_capacity(filed.document.text.len() + 1);
    bytes.extend_from_slice(filed.document.text.as_bytes());
    bytes.push(b'\n');
    File::new(filed.document.path.clone(), bytes)
}
