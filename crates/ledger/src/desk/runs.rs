//! The runs that a transaction touches, and what it adds to them.

use std::collections::HashMap;

use admit_core::Millis;

use crate::issuance::RunCounts;

/// What a transaction adds to the counters of runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    touched: HashMap<String, Touched>,
}

#[derive(Debug, Default)]
struct Touched {
    counts: RunCounts,
    at: Millis,
}

impl Runs {
    /// Adds to the counters of a run.
    pub(crate) fn count(&mut self, run: Option<&str>, at: Millis, add: impl Fn(&mut RunCounts)) {
        let Some(run) = run else { return };
        if !self.touched.contains_key(run) {
            self.touched.insert(run.to_owned(), Touched::default());
        }
        if let Some(touched) = self.touched.get_mut(run) {
            touched.at = touched.at.max(at);
            add(&mut touched.counts);
        }
    }

    /// What has changed: the run, when it did, and by how much.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&str, Millis, &RunCounts)> {
        self.touched
            .iter()
            .filter(|(_, touched)| touched.counts != RunCounts::default())
            .map(|(run, touched)| (run.as_str(), touched.at, &touched.counts))
    }
}
