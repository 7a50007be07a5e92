//! Time ranges to search: several searches that touch are one pass over the bus.

use std::collections::HashMap;
use std::time::Duration;

use crate::port::{Found, Reference, Sought};

/// One pass: its range in milliseconds, and whose it is.
#[derive(Debug)]
pub(crate) struct Window<'s> {
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Places in the answer, by dedupe key.
    wanted: HashMap<&'s str, Vec<usize>>,
    there: HashMap<usize, Vec<Reference>>,
}

/// The ranges of these searches, each widened by `slack`; the number is a search's place in the
/// answer.
pub(crate) fn windows<'s>(sought: &[(usize, &'s Sought)], slack: Duration) -> Vec<Window<'s>> {
    let slack = i64::try_from(slack.as_millis()).unwrap_or(i64::MAX);
    let mut by_time: Vec<&(usize, &Sought)> = sought.iter().collect();
    by_time.sort_by_key(|(_, one)| one.from);
    let mut windows: Vec<Window<'s>> = Vec::new();
    for (place, one) in by_time {
        let (from, to) = (one.from.0.saturating_sub(slack), one.to.0.saturating_add(slack));
        match windows.last_mut() {
            Some(window) if from <= window.to => window.to = window.to.max(to),
            _ => windows.push(Window { from, to, wanted: HashMap::new(), there: HashMap::new() }),
        }
        if let Some(window) = windows.last_mut() {
            window.wanted.entry(one.dedupe_key.as_str()).or_default().push(*place);
        }
    }
    windows
}

impl Window<'_> {
    /// Notes a message, if somebody looks for it.
    pub(crate) fn see(&mut self, dedupe_key: Option<&str>, at: impl Fn() -> Reference) {
        for place in dedupe_key.and_then(|key| self.wanted.get(key)).into_iter().flatten() {
            self.there.entry(*place).or_default().push(at());
        }
    }

    /// What the pass came to. What was seen is there, however the pass ended.
    pub(crate) fn end(mut self, searched: &Result<(), String>) -> Vec<(usize, Found)> {
        let places: Vec<usize> = self.wanted.values().flatten().copied().collect();
        let answer = |place| match (self.there.remove(&place), searched) {
            (Some(references), _) => (place, Found::At(references)),
            (None, Ok(())) => (place, Found::Absent),
            (None, Err(reason)) => (place, Found::CannotTell { reason: reason.clone() }),
        };
        places.into_iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use admit_core::Millis;

    use super::*;

    #[test]
    fn ranges_that_touch_are_searched_once_and_others_apart() {
        let sought = |key: &str, from: i64, to: i64| Sought {
            topic: "t".to_owned(),
            dedupe_key: key.to_owned(),
            partition_key: "k".to_owned(),
            from: Millis(from),
            to: Millis(to),
        };
        let all = [sought("c", 1_000, 1_001), sought("a", 0, 50), sought("b", 60, 70)];
        let all: Vec<(usize, &Sought)> = all.iter().enumerate().collect();
        let windows = windows(&all, Duration::from_millis(10));
        let ranges: Vec<(i64, i64)> = windows.iter().map(|one| (one.from, one.to)).collect();
        assert_eq!(ranges, [(-10, 80), (990, 1_011)]);
        assert_eq!(windows[0].wanted["a"], [1]);
        assert_eq!(windows[0].wanted["b"], [2]);
        assert_eq!(windows[1].wanted["c"], [0]);
    }
}
