//! Documents against artifact files: every document has its file, every file its document.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::Artifacts;
use admit_contracts::ingestion_gate::audit_check::{self, DocumentOrigin};
use admit_contracts::ingestion_gate::receipt::CommitEvidence;
use admit_core::effect::EffectState;
use admit_core::json;
use admit_core::{Digest, DocumentKind, Fault, Seq, StoredDocument};
use admit_ledger::verify::{Disagreement, DisagreementSink};
use admit_ledger::{DocumentFilter, Run, RunCounts};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;

use super::verify_prefetch::{DocumentIndex, ReceiptPrefetch};
use super::verify_stores::{PAGE, READS_MAX, StoreCheckError, StoreCounts, print_progress};
use crate::artifacts;
use crate::config::Config;
use crate::ledger::LedgerReader;
use crate::output::Failure;

/// Paths listed per page. Each page reads and sorts the whole folder, so a large page keeps the check linear.
const LIST_PAGE: usize = 100_000;

/// Wait for a missing file: a running gate writes files shortly after the commit.
const FILE_WAIT: Duration = Duration::from_millis(500);

/// The same for a store with write-behind.
const FILE_WAIT_WRITE_BEHIND: Duration = Duration::from_secs(5);

/// Artifact store, with the wait for files that a running gate has committed but not written yet.
pub(super) struct ArtifactSource {
    pub(super) store: Arc<dyn Artifacts>,
    file_wait: Duration,
}

impl ArtifactSource {
    /// Opens the configured artifact store for reading.
    pub(super) fn open(config: &Config) -> Result<Self, Failure> {
        let file_wait = if artifacts::write_behind(config)?.is_some() {
            FILE_WAIT_WRITE_BEHIND
        } else {
            FILE_WAIT
        };
        Ok(Self { store: artifacts::open_read_only(config)?, file_wait })
    }

    /// Describes a missing or changed file of a document; `None` if it matches.
    async fn check_file(&self, stored: &StoredDocument) -> Result<Option<String>, StoreCheckError> {
        let path = &stored.document.path;
        let until = Instant::now() + self.file_wait;
        let mut file = self.store.get(path).await?;
        while file.is_none() && Instant::now() < until {
            tokio::time::sleep(FILE_WAIT.min(self.file_wait)).await;
            file = self.store.get(path).await?;
        }
        Ok(match file {
            None => Some(format!("{path} is missing")),
            Some(file) if file.strip_suffix(b"\n") != Some(stored.document.text.as_bytes()) => {
                Some(format!("{path} differs from the ledger"))
            }
            Some(_) => None,
        })
    }
}

/// Compares every document with its file, byte for byte.
pub(super) async fn check_documents(
    ledger: &dyn LedgerReader,
    files: &ArtifactSource,
    (reconciled, documents): (&HashSet<Seq>, &mut DocumentIndex),
    counts: &mut StoreCounts,
    found: &mut DisagreementSink<'_>,
) -> Result<(), StoreCheckError> {
    let mut after = 0;
    let before = runs(ledger).await?;
    let mut totals = DocumentTotals::default();
    loop {
        let filter = DocumentFilter { after, rows_max: PAGE, ..DocumentFilter::default() };
        let page = ledger.filed(filter).await?;
        let Some(last) = page.last() else { break };
        after = last.n;
        let prefetch = ReceiptPrefetch::read(
            ledger,
            page.iter().map(|stored| stored.of.unwrap_or(stored.seq)),
        )
        .await?;
        let context = (ledger, &prefetch, reconciled);
        let checks =
            page.iter().map(|stored| check_document(context, files, stored)).collect::<Vec<_>>();
        let checks: Vec<_> = stream::iter(checks).buffered(READS_MAX).try_collect().await?;
        for (stored, checks) in page.iter().zip(checks) {
            counts.artifacts += 1;
            totals.count(stored);
            documents.add(stored);
            checks.into_iter().for_each(&mut *found);
        }
        print_progress(counts.artifacts, "documents");
    }
    totals.check_run_counters(&before, &runs(ledger).await?, found);
    totals.check_log_lines(&*files.store, found).await
}

/// Returns all disagreements about a document.
async fn check_document(
    (ledger, prefetch, reconciled): (&dyn LedgerReader, &ReceiptPrefetch<'_>, &HashSet<Seq>),
    files: &ArtifactSource,
    stored: &StoredDocument,
) -> Result<Vec<Disagreement>, StoreCheckError> {
    let mut wrong = Vec::new();
    if let Some(message) = files.check_file(stored).await? {
        wrong.push(Disagreement::at(stored.seq, "artifact", message));
    }
    if !matches_ledger((ledger, prefetch, reconciled), stored).await? {
        let path = &stored.document.path;
        let message = format!("{path} does not match its body and outcome");
        wrong.push(Disagreement::at(stored.seq, "document", message));
    }
    if let Some(message) = check_raw_body(ledger, &*files.store, stored).await? {
        wrong.push(Disagreement::at(stored.seq, "artifact", message));
    }
    Ok(wrong)
}

/// All runs by id.
async fn runs(ledger: &dyn LedgerReader) -> Result<BTreeMap<String, Run>, StoreCheckError> {
    let mut all = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = ledger.runs(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = last.id.clone();
        all.extend(page.into_iter().map(|run| (run.id.clone(), run)));
    }
}

/// Totals of all documents: counters of runs and lines of governance logs.
#[derive(Default)]
struct DocumentTotals {
    runs: BTreeMap<String, RunCounts>,
    logs: BTreeMap<String, Vec<(Seq, Digest)>>,
}

impl DocumentTotals {
    fn count(&mut self, stored: &StoredDocument) {
        let issued = &stored.document;
        if issued.kind == DocumentKind::Governance {
            if let Some(log) = governance_log_path(stored) {
                let line = (stored.seq, Digest::of(issued.text.as_bytes()));
                self.logs.entry(log).or_default().push(line);
            }
            return;
        }
        let Some(run) = issued.run.as_ref().filter(|_| issued.kind == DocumentKind::Receipt) else {
            return;
        };
        let counts = self.runs.entry(run.clone()).or_default();
        match &*issued.decision {
            "ADMIT" => counts.admit += 1,
            "DUPLICATE" => counts.duplicate += 1,
            _ => counts.quarantine += 1,
        }
        counts.superseded += i64::from(stored.superseded_by.is_some());
        counts.released += i64::from(stored.released.is_some());
    }

    /// Compares the counters of every run that did not change during the check.
    fn check_run_counters(
        &mut self,
        before: &BTreeMap<String, Run>,
        now: &BTreeMap<String, Run>,
        found: &mut DisagreementSink<'_>,
    ) {
        for (name, run) in now.iter().filter(|(name, run)| before.get(*name) == Some(*run)) {
            let RunCounts { deliveries, in_flight, ambiguous, .. } = run.counts;
            let tally = self.runs.remove(name).unwrap_or_default();
            let tally = RunCounts { deliveries, in_flight, ambiguous, ..tally };
            if tally != run.counts {
                let message = format!("counters of run {name} do not match its documents");
                found(Disagreement { at: None, check: "run", message });
            }
        }
    }

    /// Checks that every governance document has its line in the log.
    async fn check_log_lines(
        &self,
        store: &dyn Artifacts,
        found: &mut DisagreementSink<'_>,
    ) -> Result<(), StoreCheckError> {
        for (path, expected) in &self.logs {
            let log = store.get(path).await?.unwrap_or_default();
            let lines_present: HashSet<Digest> =
                log.split(|byte| *byte == b'\n').map(Digest::of).collect();
            for (seq, _) in expected.iter().filter(|(_, line)| !lines_present.contains(line)) {
                let message = format!("{path} lacks the line of this document");
                found(Disagreement::at(*seq, "artifact", message));
            }
        }
        Ok(())
    }
}

/// Whether a document equals the one regenerated from the ledger.
async fn matches_ledger(
    (ledger, prefetch, reconciled): (&dyn LedgerReader, &ReceiptPrefetch<'_>, &HashSet<Seq>),
    stored: &StoredDocument,
) -> Result<bool, StoreCheckError> {
    // Retention may have removed the row; the check of the ledger covers that.
    let Some(delivery) = prefetch.receipt(stored.seq).await? else { return Ok(true) };
    let limits = json::Limits { bytes_max: usize::MAX, ..json::Limits::default() };
    let Ok(json::Value::Object(facts)) = json::parse(&delivery.facts, &limits) else {
        return Ok(false);
    };
    let of = stored.of.unwrap_or(stored.seq);
    let (mut committed, mut by) = (None, None);
    if let Some(effect) = prefetch.effect(of).await?
        && matches!(effect.state, EffectState::Done(_))
    {
        committed = effect.state.evidence().and_then(CommitEvidence::read);
        if reconciled.contains(&of) {
            let history = ledger.history(of).await?;
            let done = history.into_iter().rev().find(|line| line.what == "done");
            by = done.and_then(|line| line.by);
        }
    }
    let origin = DocumentOrigin {
        facts: &facts,
        is_copy: delivery.verdict == "duplicate",
        committed: committed.as_ref(),
        by: by.as_ref(),
        at: stored.at,
    };
    Ok(audit_check::matches_origin(&stored.document, &origin))
}

/// Path of the raw body of a delivery without a run.
pub(super) fn raw_body_path(stored: &StoredDocument) -> Option<String> {
    let is_outside =
        stored.document.run.is_none() && stored.document.kind == DocumentKind::Quarantine;
    let path = stored.document.path.strip_suffix(".json").filter(|_| is_outside)?;
    Some(format!("{path}.raw"))
}

/// Path of the log that contains the line of a governance document.
pub(super) fn governance_log_path(stored: &StoredDocument) -> Option<String> {
    let (folder, _) = stored.document.path.rsplit_once("/markers/")?;
    Some(format!("{folder}/events.jsonl"))
}

/// Reads the body that a document is about. `None` if retention has removed it, or for a copy of a refusal.
pub(super) async fn read_body(
    ledger: &dyn LedgerReader,
    stored: &StoredDocument,
) -> Result<Option<bytes::Bytes>, Fault> {
    let first = ledger.receipt(stored.seq).await?.and_then(|receipt| receipt.first);
    ledger.body(first.map_or(stored.seq, |first| first.seq)).await
}

/// Describes a missing or changed raw body of a delivery without a run; `None` if it matches.
async fn check_raw_body(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    stored: &StoredDocument,
) -> Result<Option<String>, StoreCheckError> {
    let Some(path) = raw_body_path(stored) else { return Ok(None) };
    // Retention removed the body from the ledger, so there is nothing to compare with.
    let Some(body) = read_body(ledger, stored).await? else { return Ok(None) };
    Ok(match store.get(&path).await? {
        None => Some(format!("{path} is missing")),
        Some(raw) if raw != body => Some(format!("{path} differs from the body in the ledger")),
        Some(_) => None,
    })
}

/// Checks that every receipt and quarantine file has its document in the ledger.
pub(super) async fn check_unknown_files(
    ledger: &dyn LedgerReader,
    store: &dyn Artifacts,
    documents: &DocumentIndex,
    found: &mut DisagreementSink<'_>,
) -> Result<(), StoreCheckError> {
    let mut after = None;
    loop {
        let page = store.list("", after.take(), LIST_PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for path in &page {
            let is_ours = path.contains("/ig/receipts/") || path.contains("/ig/quarantine/");
            let id = path.rsplit('/').next().and_then(|name| name.strip_suffix(".json"));
            let Some(id) = id.filter(|_| is_ours && !documents.has_path(path)) else { continue };
            let named = ledger.named(id.to_owned()).await?;
            if !named.iter().any(|stored| stored.document.path == *path) {
                let message = format!("{path} is not in the ledger");
                found(Disagreement { at: None, check: "artifact", message });
            }
        }
    }
}
