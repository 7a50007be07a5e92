//! Counter changes of the runs that a transaction touches.

use std::collections::HashMap;

use admit_core::Millis;

use crate::issuance::RunCounts;

/// Changes to the counters of runs.
#[derive(Debug, Default)]
pub(crate) struct RunDeltas {
    touched: HashMap<String, RunDelta>,
}

#[derive(Debug, Default)]
struct RunDelta {
    counts: RunCounts,
    at: Millis,
}

impl RunDeltas {
    /// Changes the counters of a run.
    pub(crate) fn count(&mut self, run: Option<&str>, at: Millis, add: impl Fn(&mut RunCounts)) {
        let Some(run) = run else { return };
        if !self.touched.contains_key(run) {
            self.touched.insert(run.to_owned(), RunDelta::default());
        }
        if let Some(touched) = self.touched.get_mut(run) {
            touched.at = touched.at.max(at);
            add(&mut touched.counts);
        }
    }

    /// Returns the changed runs: name, time of the change, and increments.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&str, Millis, &RunCounts)> {
        self.touched
            .iter()
            .filter(|(_, touched)| touched.counts != RunCounts::default())
            .map(|(run, touched)| (run.as_str(), touched.at, &touched.counts))
    }
}
