//! Search windows: queries with overlapping time ranges share one scan of the bus.

use std::collections::HashMap;
use std::time::Duration;

use crate::port::{Reference, SearchQuery, SearchResult};

/// One scan: its time range in milliseconds, and the queries it serves.
#[derive(Debug)]
pub(crate) struct SearchWindow<'s> {
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Indexes of the queries, by dedupe key.
    indexes: HashMap<&'s str, Vec<usize>>,
    hits: HashMap<usize, Vec<Reference>>,
}

/// Groups indexed queries into windows, each range widened by `slack` (clock skew).
pub(crate) fn search_windows<'s>(
    queries: &[(usize, &'s SearchQuery)],
    slack: Duration,
) -> Vec<SearchWindow<'s>> {
    let slack = i64::try_from(slack.as_millis()).unwrap_or(i64::MAX);
    let mut by_start: Vec<&(usize, &SearchQuery)> = queries.iter().collect();
    by_start.sort_by_key(|(_, query)| query.from);
    let mut windows: Vec<SearchWindow<'s>> = Vec::new();
    for (index, query) in by_start {
        let (from, to) = (query.from.0.saturating_sub(slack), query.to.0.saturating_add(slack));
        match windows.last_mut() {
            Some(window) if from <= window.to => window.to = window.to.max(to),
            _ => windows.push(SearchWindow {
                from,
                to,
                indexes: HashMap::new(),
                hits: HashMap::new(),
            }),
        }
        if let Some(window) = windows.last_mut() {
            window.indexes.entry(query.dedupe_key.as_str()).or_default().push(*index);
        }
    }
    windows
}

impl SearchWindow<'_> {
    /// Records a scanned message if a query wants it.
    pub(crate) fn record(&mut self, dedupe_key: Option<&str>, at: impl Fn() -> Reference) {
        for index in dedupe_key.and_then(|key| self.indexes.get(key)).into_iter().flatten() {
            self.hits.entry(*index).or_default().push(at());
        }
    }

    /// Results of the queries. A message that was seen is found even if the scan failed later.
    pub(crate) fn finish(mut self, searched: &Result<(), String>) -> Vec<(usize, SearchResult)> {
        let indexes: Vec<usize> = self.indexes.values().flatten().copied().collect();
        let result = |index| match (self.hits.remove(&index), searched) {
            (Some(references), _) => (index, SearchResult::Found(references)),
            (None, Ok(())) => (index, SearchResult::Absent),
            (None, Err(reason)) => (index, SearchResult::Unknown { reason: reason.clone() }),
        };
        indexes.into_iter().map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use admit_core::Millis;

    use super::*;

    #[test]
    fn overlapping_ranges_share_one_window() {
        let query = |key: &str, from: i64, to: i64| SearchQuery {
            topic: "t".to_owned(),
            dedupe_key: key.to_owned(),
            partition_key: "k".to_owned(),
            from: Millis(from),
            to: Millis(to),
        };
        let all = [query("c", 1_000, 1_001), query("a", 0, 50), query("b", 60, 70)];
        let all: Vec<(usize, &SearchQuery)> = all.iter().enumerate().collect();
        let windows = search_windows(&all, Duration::from_millis(10));
        let ranges: Vec<(i64, i64)> =
            windows.iter().map(|window| (window.from, window.to)).collect();
        assert_eq!(ranges, [(-10, 80), (990, 1_011)]);
        assert_eq!(windows[0].indexes["a"], [1]);
        assert_eq!(windows[0].indexes["b"], [2]);
        assert_eq!(windows[1].indexes["c"], [0]);
    }
}
