//! Commit metrics of a ledger, as plain atomics.
//!
//! Updated once per commit or once per call, never once per event, so the cost on the hot path cannot
//! be measured.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the commit time buckets, in microseconds.
const MICROS: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000,
];

/// Upper bounds of the events-per-commit buckets.
const EVENTS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

/// Histogram with fixed buckets.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: [u64; N],
    buckets: [AtomicU64; N],
    over: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    fn new(bounds: [u64; N]) -> Self {
        let buckets = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, buckets, over: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    fn observe(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.buckets.get(place).unwrap_or(&self.over).fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// Returns each bound with the number of values up to it, and the total count.
    pub fn cumulative(&self) -> (Vec<(u64, u64)>, u64) {
        let mut count = 0;
        let mut at_most = Vec::with_capacity(N);
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            count += bucket.load(Relaxed);
            at_most.push((*bound, count));
        }
        (at_most, count + self.over.load(Relaxed))
    }

    /// Sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }
}

/// Metrics of a ledger, written by the ledger and read by `/metrics`.
#[derive(Debug)]
pub struct Gauges {
    /// Duration from the first statement of a commit until it was durable, in microseconds.
    pub commit_micros: Histogram<15>,
    /// Events per commit.
    pub commit_events: Histogram<11>,
    commit_failures: AtomicU64,
    handed_in: AtomicU64,
    taken: AtomicU64,
    log_bytes: AtomicU64,
    log_held_back: AtomicBool,
}

impl Default for Gauges {
    fn default() -> Self {
        Self {
            commit_micros: Histogram::new(MICROS),
            commit_events: Histogram::new(EVENTS),
            commit_failures: AtomicU64::new(0),
            handed_in: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_held_back: AtomicBool::new(false),
        }
    }
}

impl Gauges {
    /// Commits that failed or whose outcome is unknown.
    pub fn commit_failures(&self) -> u64 {
        self.commit_failures.load(Relaxed)
    }

    /// Calls waiting for the writer.
    pub fn waiting(&self) -> u64 {
        // In this order, so that a call taken in between cannot make the queue look longer.
        let taken = self.taken.load(Relaxed);
        self.handed_in.load(Relaxed).saturating_sub(taken)
    }

    /// Bytes of pages in the WAL after the last commit, checkpointed or not.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Relaxed)
    }

    /// Whether a reader prevents a long WAL from being reset.
    pub fn is_log_held_back(&self) -> bool {
        self.log_held_back.load(Relaxed)
    }

    pub(crate) fn call_handed_in(&self) {
        self.handed_in.fetch_add(1, Relaxed);
    }

    pub(crate) fn calls_taken(&self, calls: usize) {
        self.taken.fetch_add(calls as u64, Relaxed);
    }

    pub(crate) fn committed(&self, events: usize, took: Duration) {
        self.commit_events.observe(events as u64);
        self.commit_micros.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn commit_failed(&self) {
        self.commit_failures.fetch_add(1, Relaxed);
    }

    pub(crate) fn log_is_held_back(&self, is_held_back: bool) {
        self.log_held_back.store(is_held_back, Relaxed);
    }

    pub(crate) fn log_is(&self, bytes: u64) {
        self.log_bytes.store(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_that_is_large_enough() {
        let gauges = Gauges::default();
        for (events, micros) in [(1, 100), (2, 101), (1_025, 6_000_000)] {
            gauges.committed(events, Duration::from_micros(micros));
        }
        let (events, count) = gauges.commit_events.cumulative();
        assert_eq!((events[0], events[1], events[10]), ((1, 1), (2, 2), (1_024, 2)));
        assert_eq!((count, gauges.commit_events.sum()), (3, 1_028));
        let (micros, count) = gauges.commit_micros.cumulative();
        assert_eq!((micros[0], micros[1], micros[14]), ((100, 1), (250, 2), (5_000_000, 2)));
        assert_eq!(count, 3);
    }

    #[test]
    fn a_call_waits_from_when_it_is_handed_in_until_it_is_taken() {
        let gauges = Gauges::default();
        gauges.call_handed_in();
        gauges.call_handed_in();
        assert_eq!(gauges.waiting(), 2);
        gauges.calls_taken(2);
        assert_eq!(gauges.waiting(), 0);
    }
}
