//! Detection of complete files: a file is settled when it has not changed for a while.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use admit_core::Clock as _;
use admit_gate::SystemClock;

use super::files::{FileStamp, RoundFile};

/// Stamps of the files seen so far.
#[derive(Debug)]
pub(super) struct SettleTracker {
    wait: Duration,
    last_seen: HashMap<PathBuf, (FileStamp, Instant)>,
    done: HashMap<PathBuf, FileStamp>,
}

impl SettleTracker {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, last_seen: HashMap::new(), done: HashMap::new() }
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Whether the file, with its current stamp, was not sent yet.
    pub(super) fn is_new(&self, file: &RoundFile) -> bool {
        self.done.get(&file.path) != Some(&file.stamp)
    }

    /// Marks the file, with its current stamp, as done.
    pub(super) fn mark_done(&mut self, file: &RoundFile) {
        self.last_seen.remove(&file.path);
        self.done.insert(file.path.clone(), file.stamp);
    }

    /// Splits files into settled ones and ones to check again.
    pub(super) fn split(&mut self, files: Vec<RoundFile>) -> (Vec<RoundFile>, Vec<RoundFile>) {
        let (now, at) = (Instant::now(), SystemClock.now().0);
        files.into_iter().partition(|file| self.is_settled(file, now, at))
    }

    /// Settled by modification time, or by our own clock since the stamp was first seen: the writer may have
    /// another clock.
    fn is_settled(&mut self, file: &RoundFile, now: Instant, at: i64) -> bool {
        let wait = i64::try_from(self.wait.as_millis()).unwrap_or(i64::MAX);
        if at.saturating_sub(file.stamp.modified) >= wait {
            return true;
        }
        match self.last_seen.get(&file.path) {
            Some((stamp, since)) if *stamp == file.stamp => now - *since >= self.wait,
            Some(_) | None => {
                self.last_seen.insert(file.path.clone(), (file.stamp, now));
                self.wait.is_zero()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64, modified: i64) -> RoundFile {
        RoundFile {
            path: "a-round-1.txt".into(),
            real: "/a-round-1.txt".into(),
            name: "a-round-1.txt".to_owned(),
            source: "filename_trigger",
            stamp: FileStamp { bytes, modified },
        }
    }

    #[test]
    fn a_file_is_settled_when_it_has_not_changed_for_a_while() {
        let mut tracker = SettleTracker::new(Duration::from_secs(2));
        let (start, at) = (Instant::now(), 10_000);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(tracker.is_settled(&file(1, 8_000), start, at), "old by its modification time");
        assert!(!tracker.is_settled(&file(1, 9_000), start, at));
        assert!(!tracker.is_settled(&file(2, 9_900), later(2), at), "it has grown");
        assert!(!tracker.is_settled(&file(2, 9_900), later(3), at));
        assert!(tracker.is_settled(&file(2, 9_900), later(4), at));
        let ahead = file(3, 99_000);
        assert!(!tracker.is_settled(&ahead, later(5), at), "a clock that is ahead of ours");
        assert!(tracker.is_settled(&ahead, later(7), at), "settles by ours");
    }

    #[test]
    fn a_file_that_was_sent_is_new_again_when_it_changes() {
        let mut tracker = SettleTracker::new(Duration::ZERO);
        tracker.mark_done(&file(1, 1));
        assert!(!tracker.is_new(&file(1, 1)));
        assert!(tracker.is_new(&file(2, 1)));
    }
}
