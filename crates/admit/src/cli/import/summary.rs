//! Output of an import: progress, and a summary at the end.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::sender::{FileOutcome, FileReply, LinkCounts};
use crate::output::{Failure, print, print_json, print_stderr, printable, table};

/// Interval between lines of progress without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of paths per list in text output; JSON has all of them.
const PATHS_MAX: usize = 20;

/// Counts and paths of the files so far.
#[derive(Debug)]
pub(super) struct ImportSummary {
    begun: Instant,
    accepted: u64,
    dispositions: BTreeMap<String, u64>,
    states: BTreeMap<String, u64>,
    links: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
    /// Files with a known name and different content, which is not applied.
    differing: Vec<PathBuf>,
    /// Files that were not accepted, with the error; `None` if they were not sent.
    failed: BTreeMap<PathBuf, Option<String>>,
    skipped: Vec<PathBuf>,
    /// Links to targets outside the folder.
    outside: Vec<PathBuf>,
    /// Link counts of all events of the gate at the end.
    link_counts: Option<LinkCounts>,
}

impl ImportSummary {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            accepted: 0,
            dispositions: BTreeMap::new(),
            states: BTreeMap::new(),
            links: BTreeMap::new(),
            reasons: BTreeMap::new(),
            differing: Vec::new(),
            failed: BTreeMap::new(),
            skipped: Vec::new(),
            outside: Vec::new(),
            link_counts: None,
        }
    }

    /// Sets the link counts after the last file.
    pub(super) fn set_link_counts(&mut self, link_counts: Option<LinkCounts>) {
        self.link_counts = link_counts;
    }

    /// Sets the paths that the last scan skipped.
    pub(super) fn skip(&mut self, skipped: Vec<PathBuf>, outside: Vec<PathBuf>) {
        (self.skipped, self.outside) = (skipped, outside);
    }

    pub(super) fn add(&mut self, path: &Path, outcome: FileOutcome) {
        match outcome {
            FileOutcome::Accepted(reply) => {
                self.failed.remove(path);
                if reply.differs && reply.disposition != "updated" {
                    self.differing.push(path.to_owned());
                }
                self.accepted(reply);
            }
            FileOutcome::Refused(message)
            | FileOutcome::Failed(message)
            | FileOutcome::Fatal(message) => {
                self.failed.insert(path.to_owned(), Some(message));
            }
            FileOutcome::NotSent => {
                self.failed.entry(path.to_owned()).or_default();
            }
        }
    }

    fn accepted(&mut self, reply: FileReply) {
        self.accepted += 1;
        let FileReply { disposition, state, link_status, reason_code, differs: _ } = reply;
        for (counts, word) in [
            (&mut self.dispositions, disposition),
            (&mut self.states, state),
            (&mut self.links, link_status),
            (&mut self.reasons, reason_code),
        ] {
            if !word.is_empty() {
                *counts.entry(word).or_default() += 1;
            }
        }
    }

    /// Prints the summary. Fails if a file was not accepted.
    pub(super) fn finish(&self, as_json: bool, is_dry: bool) -> Result<(), Failure> {
        if as_json {
            print_json(&self.to_json(is_dry))?;
        } else {
            print(&self.to_text(is_dry))?;
        }
        let left = self.failed.len();
        if left == 0 {
            return Ok(());
        }
        Err(Failure::runtime(format!(
            "{left} files were not accepted\n  fix the listed errors, then repeat the command: files \
             that were accepted before change nothing"
        )))
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "an approximate rate for display")]
    fn rate(&self) -> f64 {
        self.accepted as f64 / self.seconds().max(0.001)
    }

    fn to_json(&self, is_dry: bool) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(path, message)| json!({ "path": path, "message": message }))
            .collect();
        json!({
            "dry_run": is_dry,
            "taken": self.accepted,
            "dispositions": self.dispositions,
            "states": self.states,
            "link_status": self.links,
            "reasons": self.reasons,
            "content_differs": self.differing,
            "failed": failed,
            "skipped": self.skipped,
            "outside": self.outside,
            "gate_now": self.link_counts.map(|now| json!({
                "events": now.events,
                "not_linked": now.not_linked,
                "parse_failed": now.unread,
            })),
            "seconds": self.seconds(),
            "files_per_second": self.rate(),
        })
    }

    fn to_text(&self, is_dry: bool) -> String {
        let mut rows = Vec::new();
        let groups = [
            ("disposition", &self.dispositions),
            ("state", &self.states),
            ("link", &self.links),
            ("reason", &self.reasons),
        ];
        for (group, counts) in groups {
            for (word, count) in counts {
                rows.push(vec![group.to_owned(), word.clone(), count.to_string()]);
            }
        }
        if !self.failed.is_empty() {
            let count = self.failed.len().to_string();
            rows.push(vec!["file".to_owned(), "not accepted".to_owned(), count]);
        }
        let verb = if is_dry { "would be sent (dry run)" } else { "accepted" };
        let mut text = format!(
            "{} files {verb} in {:.1} s ({:.0} files/s), {} skipped\n",
            self.accepted,
            self.seconds(),
            self.rate(),
            self.skipped.len()
        );
        if !rows.is_empty() {
            text.push('\n');
            text.push_str(&table(&["field", "value", "files"], rows));
        }
        if let Some(LinkCounts { events, not_linked, unread }) = self.link_counts {
            text.push_str(&format!(
                "\nthe gate now has {events} events, {not_linked} of them not linked ({unread} of \
                 these not readable)\n"
            ));
        }
        if !self.differing.is_empty() {
            let count = self.differing.len();
            text.push_str(&format!(
                "\n{count} files have a known name with different content, which is stored but not \
                 applied (apply it with admit rounds accept RECEIPT --reason …):\n"
            ));
            for path in self.differing.iter().take(PATHS_MAX) {
                text.push_str(&format!("  {}\n", printable(&path.display().to_string())));
            }
        }
        if !self.outside.is_empty() {
            let count = self.outside.len();
            text.push_str(&format!(
                "\n{count} links to targets outside the folder were skipped:\n"
            ));
            for path in self.outside.iter().take(PATHS_MAX) {
                text.push_str(&format!("  {}\n", printable(&path.display().to_string())));
            }
        }
        let errors = self.failed.iter().filter_map(|(path, why)| Some((path, why.as_ref()?)));
        for (path, why) in errors.take(PATHS_MAX) {
            let path = printable(&path.display().to_string());
            text.push_str(&format!("\n{path}: {}\n", printable(why)));
        }
        text
    }
}

/// Progress of an import: a bar on a terminal, periodic lines otherwise.
pub(super) struct ImportProgress {
    bar: Option<ProgressBar>,
    last: Instant,
    done: u64,
    all: u64,
}

impl ImportProgress {
    pub(super) fn new(all: usize, as_json: bool) -> Self {
        let all = all as u64;
        let has_bar = !as_json && std::io::stderr().is_terminal() && all > 0;
        let bar = has_bar.then(|| {
            let look = "{bar:40} {pos}/{len} files, {per_sec}, {eta} left";
            let style = ProgressStyle::with_template(look);
            ProgressBar::new(all).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, last: Instant::now(), done: 0, all }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        } else if self.last.elapsed() >= LINE_EVERY {
            self.last = Instant::now();
            print_stderr(&format!("{} of {} files", self.done, self.all));
        }
    }

    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
