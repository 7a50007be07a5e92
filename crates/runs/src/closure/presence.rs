//! Whether every document of a run has its file, and every file its document.
//!
//! Both sides are read in the order of their names and laid side by side, a page of each at a time.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use admit_core::closure::CountedSample;
use admit_core::{Fault, DocumentKind};
use tokio::time::{Instant, sleep};

use super::LOOK_EVERY;
use crate::report::RunReporter;

/// Ids that are read at a time.
const IDS_PAGE: usize = 10_000;

/// Paths that are listed at a time. A local folder is read from its beginning for every page.
const PATHS_PAGE: usize = 100_000;

/// What does not fit is looked at again one by one, up to so many of each side: a file may have been
/// written, and a copy answered, while the lists were read.
const SECOND_LOOKS_MAX: usize = 1_000;

/// The longest pause between two looks at files that are missing.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(2);

const ENDING: &str = ".json";

/// The run, the kind and the folder of the documents that are looked at.
type Of<'a> = (&'a str, DocumentKind, &'a str);

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Presence {
    /// Documents that have their file.
    pub(super) present: u64,
    /// Paths where there should be a file.
    pub(super) missing: CountedSample,
    /// Paths where there should be none.
    pub(super) unknown: CountedSample,
    /// Numbers of documents whose files are missing, as many as are looked at again.
    pub(super) lost: Vec<u64>,
}

/// Names of documents in their order, page by page.
struct Ids<'b> {
    books: &'b RunReporter,
    run: &'b str,
    kind: DocumentKind,
    /// Which sixteenth of all names is being read; ids are hex.
    part: u8,
    after: String,
    page: VecDeque<String>,
}

impl Ids<'_> {
    async fn next(&mut self) -> Result<Option<String>, Fault> {
        loop {
            if let Some(id) = self.page.pop_front() {
                self.after.clone_from(&id);
                return Ok(Some(id));
            }
            if self.part > 0xf {
                return Ok(None);
            }
            // Beyond the last hex digit there is nothing that could be an id.
            let below =
                if self.part == 0xf { "~".to_owned() } else { format!("{:x}", self.part + 1) };
            let (run, after) = (self.run.to_owned(), self.after.clone());
            let page =
                self.books.ledger.run_ids(run, self.kind, after, below.clone(), IDS_PAGE).await?;
            if page.len() < IDS_PAGE {
                self.part += 1;
                // What has been read of the next part is none of it yet.
                if page.is_empty() {
                    self.after = below;
                }
            }
            self.page = page.into();
        }
    }
}

/// Paths of files in their order, page by page.
struct Paths<'b> {
    books: &'b RunReporter,
    folder: &'b str,
    after: Option<String>,
    page: VecDeque<String>,
    is_over: bool,
}

impl Paths<'_> {
    async fn next(&mut self) -> Result<Option<String>, Fault> {
        if self.page.is_empty() && !self.is_over {
            let page =
                self.books.artifacts_list(self.folder, self.after.take(), PATHS_PAGE).await?;
            self.is_over = page.is_empty();
            self.after = page.last().cloned();
            self.page = page.into();
        }
        Ok(self.page.pop_front())
    }
}

/// What does not fit, before it is looked at again.
#[derive(Default)]
struct Odd {
    count: u64,
    paths: Vec<String>,
}

impl Odd {
    fn add(&mut self, path: String) {
        self.count += 1;
        if self.paths.len() < SECOND_LOOKS_MAX {
            self.paths.push(path);
        }
    }

    /// What is left of it once `is_odd` has been asked about each.
    fn left(self, still: &[bool]) -> CountedSample {
        let beyond = self.count - self.paths.len() as u64;
        let still = self.paths.iter().zip(still).filter(|(_, is_odd)| **is_odd);
        let mut listed: CountedSample = still.map(|(path, _)| path.as_str()).collect();
        listed.count += beyond;
        listed
    }
}

impl RunReporter {
    /// Lays the documents of one kind beside their files. Files that are missing are waited for: they
    /// are written after the commit, and put right in the background.
    pub(super) async fn present(
        &self,
        run: &str,
        kind: DocumentKind,
        until: Instant,
    ) -> Result<Presence, Fault> {
        let mut pause = LOOK_EVERY * 8;
        loop {
            let presence = self.compare(run, kind).await?;
            let now = Instant::now();
            if presence.missing.count == 0 || now >= until {
                return Ok(presence);
            }
            // Laying them side by side again costs more the more there are.
            sleep(pause.min(until - now)).await;
            pause = LOOK_EVERY_MAX.min(pause * 2);
        }
    }

    async fn compare(&self, run: &str, kind: DocumentKind) -> Result<Presence, Fault> {
        let folder = match kind {
            DocumentKind::Quarantine => self.paths.of_run(run, "ig/quarantine/"),
            DocumentKind::Receipt => self.paths.of_run(run, "ig/receipts/"),
            DocumentKind::Governance => self.paths.of_run(run, "obs/governance/markers/"),
        };
        let (part, after, page) = (0, String::new(), VecDeque::new());
        let mut ids = Ids { books: self, run, kind, part, after, page };
        let (after, page, is_over) = (None, VecDeque::new(), false);
        let mut paths = Paths { books: self, folder: &folder, after, page, is_over };
        let (mut present, mut missing, mut unknown) = (0, Odd::default(), Odd::default());
        let (mut id, mut path) = (ids.next().await?, paths.next().await?);
        loop {
            let wanted = id.as_ref().map(|id| format!("{folder}{id}{ENDING}"));
            let order = match (&wanted, &path) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(wanted), Some(path)) => wanted.cmp(path),
            };
            if order == Ordering::Equal {
                present += 1;
            }
            if order == Ordering::Less {
                missing.add(wanted.unwrap_or_default());
            }
            if order != Ordering::Greater {
                id = ids.next().await?;
            }
            if order != Ordering::Less {
                let there = std::mem::replace(&mut path, paths.next().await?);
                if order == Ordering::Greater {
                    unknown.add(there.unwrap_or_default());
                }
            }
        }
        let of = (run, kind, &*folder);
        let (missing, lost) = self.still_missing(missing, of).await?;
        let unknown = self.still_unknown(unknown, of).await?;
        Ok(Presence { present, missing, unknown, lost })
    }

    async fn still_missing(&self, odd: Odd, of: Of<'_>) -> Result<(CountedSample, Vec<u64>), Fault> {
        let (mut still, mut lost) = (Vec::with_capacity(odd.paths.len()), Vec::new());
        for path in &odd.paths {
            let is_missing = self.artifacts_get(path).await?.is_none();
            if is_missing {
                lost.extend(self.number(path, of).await?);
            }
            still.push(is_missing);
        }
        Ok((odd.left(&still), lost))
    }

    /// The number of the document whose file lies there; `None` where it is no document's.
    async fn number(&self, path: &str, (run, kind, folder): Of<'_>) -> Result<Option<u64>, Fault> {
        let id = path.strip_prefix(folder).and_then(|name| name.strip_suffix(ENDING));
        let Some(id) = id else { return Ok(None) };
        let named = self.ledger.named(id.to_owned()).await?;
        let found = named
            .iter()
            .find(|filed| filed.document.kind == kind && filed.document.run.as_deref() == Some(run));
        Ok(found.map(|filed| filed.n))
    }

    async fn still_unknown(&self, odd: Odd, of: Of<'_>) -> Result<CountedSample, Fault> {
        let mut still = Vec::with_capacity(odd.paths.len());
        for path in &odd.paths {
            still.push(self.number(path, of).await?.is_none());
        }
        Ok(odd.left(&still))
    }
}
