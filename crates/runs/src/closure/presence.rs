//! Presence check of a run: every document must have its file, and every file its document.
//!
//! Both sides are read in name order, in pages, and merged.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use admit_core::closure::CountedSample;
use admit_core::{DocumentKind, Fault};
use tokio::time::{Instant, sleep};

use super::POLL_EVERY;
use crate::report::RunReporter;

/// Ids per page.
const IDS_PAGE: usize = 10_000;

/// Paths per page. A local folder is read from its beginning for every page.
const PATHS_PAGE: usize = 100_000;

/// Maximum mismatches per side that are checked again individually: a file or document may have been
/// written while the lists were read.
const RECHECKS_MAX: usize = 1_000;

/// Maximum interval of checks while files are missing.
const POLL_EVERY_MAX: Duration = Duration::from_secs(2);

const EXTENSION: &str = ".json";

/// Run, kind and folder of the checked documents.
type DocumentScope<'a> = (&'a str, DocumentKind, &'a str);

/// Result of the presence check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FilePresence {
    /// Documents with their file.
    pub(super) present: u64,
    /// Paths of missing files.
    pub(super) missing: CountedSample,
    /// Paths of files without a document.
    pub(super) unknown: CountedSample,
    /// Numbers of documents with missing files, up to [`RECHECKS_MAX`].
    pub(super) lost: Vec<u64>,
}

/// Cursor over the ids of documents, in order.
struct DocumentIds<'b> {
    reporter: &'b RunReporter,
    run: &'b str,
    kind: DocumentKind,
    /// First hex digit of the ids being read.
    part: u8,
    after: String,
    page: VecDeque<String>,
}

impl DocumentIds<'_> {
    async fn next(&mut self) -> Result<Option<String>, Fault> {
        loop {
            if let Some(id) = self.page.pop_front() {
                self.after.clone_from(&id);
                return Ok(Some(id));
            }
            if self.part > 0xf {
                return Ok(None);
            }
            // Upper bound after the last hex digit.
            let below =
                if self.part == 0xf { "~".to_owned() } else { format!("{:x}", self.part + 1) };
            let (run, after) = (self.run.to_owned(), self.after.clone());
            let page = self
                .reporter
                .ledger
                .run_ids(run, self.kind, after, below.clone(), IDS_PAGE)
                .await?;
            if page.len() < IDS_PAGE {
                self.part += 1;
                // Continue at the beginning of the next part.
                if page.is_empty() {
                    self.after = below;
                }
            }
            self.page = page.into();
        }
    }
}

/// Cursor over the paths of files, in order.
struct FilePaths<'b> {
    reporter: &'b RunReporter,
    folder: &'b str,
    after: Option<String>,
    page: VecDeque<String>,
    is_at_end: bool,
}

impl FilePaths<'_> {
    async fn next(&mut self) -> Result<Option<String>, Fault> {
        if self.page.is_empty() && !self.is_at_end {
            let page =
                self.reporter.artifacts_list(self.folder, self.after.take(), PATHS_PAGE).await?;
            self.is_at_end = page.is_empty();
            self.after = page.last().cloned();
            self.page = page.into();
        }
        Ok(self.page.pop_front())
    }
}

/// Mismatches of one side, before the recheck.
#[derive(Default)]
struct MismatchList {
    count: u64,
    paths: Vec<String>,
}

impl MismatchList {
    fn add(&mut self, path: String) {
        self.count += 1;
        if self.paths.len() < RECHECKS_MAX {
            self.paths.push(path);
        }
    }

    /// The mismatches that remain after the recheck. `still` has a flag per path.
    fn remaining(self, still: &[bool]) -> CountedSample {
        let beyond = self.count - self.paths.len() as u64;
        let still = self.paths.iter().zip(still).filter(|(_, is_mismatch)| **is_mismatch);
        let mut listed: CountedSample = still.map(|(path, _)| path.as_str()).collect();
        listed.count += beyond;
        listed
    }
}

impl RunReporter {
    /// Compares the documents of one kind with their files. Waits for missing files until the deadline:
    /// they are written after the commit, and restored in the background.
    pub(super) async fn check_presence(
        &self,
        run: &str,
        kind: DocumentKind,
        deadline: Instant,
    ) -> Result<FilePresence, Fault> {
        let mut pause = POLL_EVERY * 8;
        loop {
            let presence = self.compare(run, kind).await?;
            let now = Instant::now();
            if presence.missing.count == 0 || now >= deadline {
                return Ok(presence);
            }
            // Back off: comparing many documents is expensive.
            sleep(pause.min(deadline - now)).await;
            pause = POLL_EVERY_MAX.min(pause * 2);
        }
    }

    async fn compare(&self, run: &str, kind: DocumentKind) -> Result<FilePresence, Fault> {
        let folder = match kind {
            DocumentKind::Quarantine => self.paths.of_run(run, "ig/quarantine/"),
            DocumentKind::Receipt => self.paths.of_run(run, "ig/receipts/"),
            DocumentKind::Governance => self.paths.of_run(run, "obs/governance/markers/"),
        };
        let (part, after, page) = (0, String::new(), VecDeque::new());
        let mut ids = DocumentIds { reporter: self, run, kind, part, after, page };
        let (after, page, is_at_end) = (None, VecDeque::new(), false);
        let mut paths = FilePaths { reporter: self, folder: &folder, after, page, is_at_end };
        let (mut present, mut missing, mut unknown) =
            (0, MismatchList::default(), MismatchList::default());
        let (mut id, mut path) = (ids.next().await?, paths.next().await?);
        loop {
            let expected = id.as_ref().map(|id| format!("{folder}{id}{EXTENSION}"));
            let order = match (&expected, &path) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(expected), Some(path)) => expected.cmp(path),
            };
            if order == Ordering::Equal {
                present += 1;
            }
            if order == Ordering::Less {
                missing.add(expected.unwrap_or_default());
            }
            if order != Ordering::Greater {
                id = ids.next().await?;
            }
            if order != Ordering::Less {
                let found = std::mem::replace(&mut path, paths.next().await?);
                if order == Ordering::Greater {
                    unknown.add(found.unwrap_or_default());
                }
            }
        }
        let scope = (run, kind, &*folder);
        let (missing, lost) = self.still_missing(missing, scope).await?;
        let unknown = self.still_unknown(unknown, scope).await?;
        Ok(FilePresence { present, missing, unknown, lost })
    }

    async fn still_missing(
        &self,
        mismatches: MismatchList,
        scope: DocumentScope<'_>,
    ) -> Result<(CountedSample, Vec<u64>), Fault> {
        let (mut still, mut lost) = (Vec::with_capacity(mismatches.paths.len()), Vec::new());
        for path in &mismatches.paths {
            let is_missing = self.artifacts_get(path).await?.is_none();
            if is_missing {
                lost.extend(self.find_document(path, scope).await?);
            }
            still.push(is_missing);
        }
        Ok((mismatches.remaining(&still), lost))
    }

    /// Returns the number of the document with this file; `None` if there is none.
    async fn find_document(
        &self,
        path: &str,
        (run, kind, folder): DocumentScope<'_>,
    ) -> Result<Option<u64>, Fault> {
        let id = path.strip_prefix(folder).and_then(|name| name.strip_suffix(EXTENSION));
        let Some(id) = id else { return Ok(None) };
        let named = self.ledger.named(id.to_owned()).await?;
        let found = named.iter().find(|filed| {
            filed.document.kind == kind && filed.document.run.as_deref() == Some(run)
        });
        Ok(found.map(|filed| filed.n))
    }

    async fn still_unknown(
        &self,
        mismatches: MismatchList,
        scope: DocumentScope<'_>,
    ) -> Result<CountedSample, Fault> {
        let mut still = Vec::with_capacity(mismatches.paths.len());
        for path in &mismatches.paths {
            still.push(self.find_document(path, scope).await?.is_none());
        }
        Ok(mismatches.remaining(&still))
    }
}
