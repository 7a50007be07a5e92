//! The files of documents: written after the commit and before the reply, brought to stable storage
//! behind it. Where the store is far away they are [written behind](super::behind) the reply as well.
//!
//! A file may be lost with the power until it is synced; the ledger remembers up to which number
//! everything is, and the next start makes the rest again. Where several gates share a ledger, each
//! writes the files of its own documents, and the living make again what one that died has left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use admit_artifacts::{File, Line, Markers};
use admit_core::{Fault, FaultKind, StoredDocument, DocumentKind};
use admit_ledger::FileNote;
use bytes::Bytes;
use tokio::time::sleep;

use super::Ingest;

/// Documents that are put right at a time.
const PAGE: usize = 256;

/// Numbers that are looked at in one question.
const NUMBERS_PAGE: usize = 4096;

/// Which numbers have their files. Every process writes the files of what it issued itself.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// Every file of ours up to this number is there.
    written_to: u64,
    /// Those beyond it that are there too.
    beyond: BTreeSet<u64>,
    /// Every file of ours up to this number is on stable storage, and the ledger knows.
    synced_to: u64,
    /// The first of ours that was not there at the last look.
    missing: Option<u64>,
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to `n` is there and safe: a start has looked after it.
    pub(super) fn begin_at(&self, n: u64) {
        let mut numbers = self.lock();
        (numbers.written_to, numbers.synced_to) = (n, n);
    }

    fn written(&self, written: impl Iterator<Item = u64>) {
        let mut numbers = self.lock();
        let written_to = numbers.written_to;
        numbers.beyond.extend(written.filter(|n| *n > written_to));
    }

    /// The first of `own` up to `newest` whose file is not there.
    fn first_missing(&self, own: &[u64], newest: u64) -> Option<u64> {
        let numbers = self.lock();
        own.iter().copied().find(|n| *n <= newest && !numbers.beyond.contains(n))
    }

    /// Everything of ours up to `newest` is there, or up to the first that is missing. The one that
    /// was missing at the last look already.
    fn looked(&self, newest: u64, missing: Option<u64>) -> Option<u64> {
        let mut numbers = self.lock();
        numbers.written_to = missing.map_or(newest, |n| n - 1).max(numbers.written_to);
        let beyond = numbers.written_to + 1;
        numbers.beyond = numbers.beyond.split_off(&beyond);
        let before = std::mem::replace(&mut numbers.missing, missing);
        missing.filter(|_| missing == before)
    }
}

/// Which of a batch of files could not be written.
#[derive(Debug, Default)]
pub(super) struct Written(BTreeSet<u64>);

impl Written {
    pub(super) fn failing(numbers: BTreeSet<u64>) -> Self {
        Self(numbers)
    }

    pub(super) fn failed(&self, n: u64) -> bool {
        self.0.contains(&n)
    }
}

/// What is said when a decision stands and its file does not.
pub(super) fn unwritten() -> Fault {
    Fault::new(
        FaultKind::OutcomeUnknown,
        "the decision is kept, but its receipt cannot be written just now; send it again",
    )
}

impl Ingest {
    /// Writes the files of documents that are not there yet, now or behind. `raw` is the body they
    /// are about, for those that keep it beside them.
    pub(super) async fn write_files(&self, filed: &[&StoredDocument], raw: Option<&Bytes>) -> Written {
        match &self.behind {
            Some(behind) => self.queue_files(behind, filed, raw).await,
            None => self.write_now(filed, raw).await,
        }
    }

    async fn write_now(&self, filed: &[&StoredDocument], raw: Option<&Bytes>) -> Written {
        let documents: Vec<(&StoredDocument, Option<&Bytes>)> =
            filed.iter().map(|filed| (*filed, raw)).collect();
        let failed = self.put_files(&documents).await;
        self.note_unwritten(&failed).await;
        Written(failed)
    }

    /// Puts the files of documents, and says which could not be written.
    pub(super) async fn put_files(&self, documents: &[(&StoredDocument, Option<&Bytes>)]) -> BTreeSet<u64> {
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
                tracing::error!(n, %error, "a document could not be written, it is in the ledger");
                failed.insert(*n);
            }
        }
        for (log, lines) in self.lines(documents.iter().map(|(filed, _)| *filed)) {
            let (numbers, lines): (Vec<u64>, Vec<Line>) = lines.into_iter().unzip();
            let put = self.artifacts.append_lines(&log, lines, Markers::Trusted).await;
            for (n, put) in numbers.iter().zip(put) {
                if let Err(error) = put {
                    tracing::error!(n, %error, "a governance line could not be written");
                    failed.insert(*n);
                }
            }
        }
        let written = documents.iter().map(|(filed, _)| filed.n);
        self.files.written(written.filter(|n| !failed.contains(n)));
        failed
    }

    pub(super) async fn note_unwritten(&self, failed: &BTreeSet<u64>) {
        if !failed.is_empty() {
            self.note_files(FileNote::Unwritten(failed.iter().copied().collect())).await;
        }
    }

    pub(super) async fn note_files(&self, note: FileNote) {
        if let Err(fault) = self.ledger.note_files(note).await {
            tracing::warn!(%fault, "how documents stand could not be noted");
        }
    }

    /// Where the bytes of a delivery lie that is in no run.
    pub(super) fn raw_path(&self, filed: &StoredDocument) -> Option<String> {
        let is_outside = filed.document.run.is_none() && filed.document.kind == DocumentKind::Quarantine;
        is_outside.then(|| self.contract.paths().unscoped_raw(&filed.document.id))
    }

    /// Governance lines by the log they belong to.
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

    /// Makes again what processes that are gone may have left unwritten. How many it looked at, and
    /// the newest number.
    pub(super) async fn restore_files(&self) -> Result<(u64, u64), Fault> {
        let (after, newest) = self.ledger.left_unsynced().await?;
        if newest > after {
            self.restore_between(after, newest).await?;
            self.artifacts.sync().await.map_err(cannot_restore)?;
            self.ledger.note_files(FileNote::Restored { after, to: newest }).await?;
        }
        Ok((newest - after, newest))
    }

    /// Makes the documents after `after` up to `to` again, where they are not.
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
                    let seq = self.kept_at(filed.seq).await?;
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

    /// Finds out up to where every file of ours is there. One that nobody came to write, because the
    /// commit that issued it was not confirmed in time, is noted as unwritten at the second look.
    async fn close_up(&self) -> Result<(), Fault> {
        let (mut after, newest) = {
            let numbers = self.files.lock();
            (numbers.written_to, numbers.beyond.last().copied())
        };
        // The ledger was asked after this number was given out, so it shows all that came before.
        let Some(newest) = newest else { return Ok(()) };
        let mut missing = None;
        while after < newest && missing.is_none() {
            let own = self.ledger.issued_here(after, NUMBERS_PAGE).await?;
            missing = self.files.first_missing(&own, newest);
            after = own.get(NUMBERS_PAGE - 1).copied().unwrap_or(newest);
        }
        match self.files.looked(newest, missing) {
            Some(n) => self.ledger.note_files(FileNote::Unwritten(vec![n])).await,
            None => Ok(()),
        }
    }

    /// Where the body of a delivery is: a copy of a refusal keeps none of its own.
    async fn kept_at(&self, seq: admit_core::Seq) -> Result<admit_core::Seq, Fault> {
        let receipt = self.reader.receipt(seq).await?;
        Ok(receipt.and_then(|receipt| receipt.first).map_or(seq, |first| first.seq))
    }

    pub(super) fn keep_syncing(self: Arc<Self>) -> super::Work {
        Box::pin(async move {
            loop {
                sleep(self.settings.sync_every).await;
                self.sync_files().await;
                self.mend_files().await;
                // Where others share the ledger, one of them may have died.
                if self.reader.lease().is_some()
                    && let Err(fault) = self.restore_files().await
                {
                    // It has been said already when the ledger is away.
                    tracing::debug!(%fault, "documents of other gates were not looked after");
                }
            }
        })
    }

    /// Brings what is written to stable storage, and has the ledger remember.
    pub(super) async fn sync_files(&self) {
        if let Err(fault) = self.close_up().await {
            tracing::warn!(%fault, "the ledger did not say which documents are this gate's");
        }
        let (to, synced_to) = {
            let numbers = self.files.lock();
            (numbers.written_to, numbers.synced_to)
        };
        if to <= synced_to {
            return;
        }
        if let Err(error) = self.artifacts.sync().await {
            tracing::error!(%error, "documents could not be brought to stable storage");
            return;
        }
        match self.ledger.note_files(FileNote::SyncedTo(to)).await {
            Ok(()) => self.files.lock().synced_to = to,
            Err(fault) => tracing::warn!(%fault, "the sync of documents could not be noted"),
        }
    }

    /// Writes what could not be written before, page by page as long as it can be.
    async fn mend_files(&self) {
        let mut after = 0;
        loop {
            let unwritten = match self.ledger.unwritten(after, PAGE).await {
                Ok(unwritten) => unwritten,
                Err(fault) => {
                    tracing::debug!(%fault, "unwritten documents could not be looked for");
                    return;
                }
            };
            let Some(last) = unwritten.last() else { return };
            after = last.n;
            let mended = self.mend(&unwritten).await;
            let is_whole = mended.len() == unwritten.len() && unwritten.len() == PAGE;
            if !mended.is_empty() {
                tracing::info!(count = mended.len(), "documents were written after all");
                self.note_files(FileNote::Written(mended)).await;
            }
            if !is_whole {
                return;
            }
        }
    }

    /// Those that could be written now.
    async fn mend(&self, unwritten: &[StoredDocument]) -> Vec<u64> {
        let mut bodies = Vec::with_capacity(unwritten.len());
        for filed in unwritten {
            bodies.push(match self.raw_path(filed) {
                Some(_) => match self.kept_at(filed.seq).await {
                    Ok(seq) => self.reader.body(seq).await.ok().flatten(),
                    Err(_) => None,
                },
                None => None,
            });
        }
        let documents: Vec<(&StoredDocument, Option<&Bytes>)> =
            unwritten.iter().zip(bodies.iter().map(Option::as_ref)).collect();
        let failed = self.put_files(&documents).await;
        let mended = unwritten.iter().map(|filed| filed.n);
        mended.filter(|n| !failed.contains(n)).collect()
    }
}

fn cannot_restore(error: admit_artifacts::ArtifactsError) -> Fault {
    let message = "the documents after the last sync cannot be put back";
    Fault::caused_by(FaultKind::Internal, message, error)
}

/// A document as a file.
pub(super) fn file(filed: &StoredDocument) -> File {
    let mut bytes = Vec::with_capacity(filed.document.text.len() + 1);
    bytes.extend_from_slice(filed.document.text.as_bytes());
    bytes.push(b'\n');
    File::new(filed.document.path.clone(), bytes)
}
