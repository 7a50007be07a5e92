//! What an import says: how far it is, and in the end what became of the files.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::send::{Fate, Standing, Told};
use crate::output::{Failure, aside, print, print_json, printable, table};

/// Between two lines of progress where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// So many files are named in a summary for people; programs get all of them.
const NAMED_MAX: usize = 20;

/// What became of the files so far.
#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    taken: u64,
    dispositions: BTreeMap<String, u64>,
    states: BTreeMap<String, u64>,
    links: BTreeMap<String, u64>,
    reasons: BTreeMap<String, u64>,
    /// Files that are known by their name with other content, which does not count.
    differing: Vec<PathBuf>,
    /// What was not taken, and why; without a reason it was not tried.
    failed: BTreeMap<PathBuf, Option<String>>,
    skipped: Vec<PathBuf>,
    /// Links that lead out of the folder.
    outside: Vec<PathBuf>,
    /// How all events of the gate stand in the end.
    standing: Option<Standing>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            taken: 0,
            dispositions: BTreeMap::new(),
            states: BTreeMap::new(),
            links: BTreeMap::new(),
            reasons: BTreeMap::new(),
            differing: Vec::new(),
            failed: BTreeMap::new(),
            skipped: Vec::new(),
            outside: Vec::new(),
            standing: None,
        }
    }

    /// Notes how everything stands after the last file.
    pub(super) fn stands(&mut self, standing: Option<Standing>) {
        self.standing = standing;
    }

    /// Notes what the last look at the folder left out.
    pub(super) fn skip(&mut self, skipped: Vec<PathBuf>, outside: Vec<PathBuf>) {
        (self.skipped, self.outside) = (skipped, outside);
    }

    pub(super) fn add(&mut self, path: &Path, fate: Fate) {
        match fate {
            Fate::Taken(told) => {
                self.failed.remove(path);
                if told.differs && told.disposition != "updated" {
                    self.differing.push(path.to_owned());
                }
                self.taken(told);
            }
            Fate::Refused(message) | Fate::Failed(message) | Fate::Hopeless(message) => {
                self.failed.insert(path.to_owned(), Some(message));
            }
            Fate::Untried => {
                self.failed.entry(path.to_owned()).or_default();
            }
        }
    }

    fn taken(&mut self, told: Told) {
        self.taken += 1;
        let Told { disposition, state, link_status, reason_code, differs: _ } = told;
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

    /// Says what became of everything; an error when not everything was taken.
    pub(super) fn end(&self, as_json: bool, is_dry: bool) -> Result<(), Failure> {
        if as_json {
            print_json(&self.for_programs(is_dry))?;
        } else {
            print(&self.for_people(is_dry))?;
        }
        let left = self.failed.len();
        if left == 0 {
            return Ok(());
        }
        Err(Failure::runtime(format!(
            "{left} files were not taken\n  mend what is said of them, then run the same command \
             again: files that were taken before change nothing"
        )))
    }

    fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&self) -> f64 {
        self.taken as f64 / self.seconds().max(0.001)
    }

    fn for_programs(&self, is_dry: bool) -> Value {
        let failed: Vec<Value> = self
            .failed
            .iter()
            .map(|(path, message)| json!({ "path": path, "message": message }))
            .collect();
        json!({
            "dry_run": is_dry,
            "taken": self.taken,
            "dispositions": self.dispositions,
            "states": self.states,
            "link_status": self.links,
            "reasons": self.reasons,
            "content_differs": self.differing,
            "failed": failed,
            "skipped": self.skipped,
            "outside": self.outside,
            "gate_now": self.standing.map(|now| json!({
                "events": now.events,
                "not_linked": now.not_linked,
                "parse_failed": now.unread,
            })),
            "seconds": self.seconds(),
            "files_per_second": self.rate(),
        })
    }

    fn for_people(&self, is_dry: bool) -> String {
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
            rows.push(vec!["file".to_owned(), "not taken".to_owned(), count]);
        }
        let verb = if is_dry { "would be sent, nothing was" } else { "taken" };
        let mut text = format!(
            "{} files {verb} in {:.1} s ({:.0} files/s), {} skipped\n",
            self.taken,
            self.seconds(),
            self.rate(),
            self.skipped.len()
        );
        if !rows.is_empty() {
            text.push('\n');
            let group = if is_dry { "" } else { "as answered" };
            text.push_str(&table(&[group, "what", "files"], rows));
        }
        if let Some(Standing { events, not_linked, unread }) = self.standing {
            text.push_str(&format!(
                "\nnow the gate holds {events} events, {not_linked} of them not linked ({unread} of \
                 these cannot be read)\n"
            ));
        }
        if !self.differing.is_empty() {
            let count = self.differing.len();
            text.push_str(&format!(
                "\n{count} files are known with other content, which is kept and does not count (admit \
                 rounds accept RECEIPT --reason … has it count):\n"
            ));
            for path in self.differing.iter().take(NAMED_MAX) {
                text.push_str(&format!("  {}\n", printable(&path.display().to_string())));
            }
        }
        if !self.outside.is_empty() {
            let count = self.outside.len();
            text.push_str(&format!("\n{count} links lead out of the folder and were left out:\n"));
            for path in self.outside.iter().take(NAMED_MAX) {
                text.push_str(&format!("  {}\n", printable(&path.display().to_string())));
            }
        }
        let told = self.failed.iter().filter_map(|(path, why)| Some((path, why.as_ref()?)));
        for (path, why) in told.take(NAMED_MAX) {
            let path = printable(&path.display().to_string());
            text.push_str(&format!("\n{path}: {}\n", printable(why)));
        }
        text
    }
}

/// How far an import is: a bar on a terminal, a line now and then elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    last: Instant,
    done: u64,
    all: u64,
}

impl Progress {
    pub(super) fn of(all: usize, as_json: bool) -> Self {
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
            aside(&format!("{} of {} files", self.done, self.all));
        }
    }

    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
