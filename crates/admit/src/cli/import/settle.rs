//! Which files are whole: those that have not changed for a while.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use admit_core::Clock as _;
use admit_gate::SystemClock;

use super::files::{Artifact, Stamp};

/// What was seen of files so far.
#[derive(Debug)]
pub(super) struct Settling {
    wait: Duration,
    seen: HashMap<PathBuf, (Stamp, Instant)>,
    done: HashMap<PathBuf, Stamp>,
}

impl Settling {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, seen: HashMap::new(), done: HashMap::new() }
    }

    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Whether the file was not sent yet as it is now.
    pub(super) fn is_new(&self, artifact: &Artifact) -> bool {
        self.done.get(&artifact.path) != Some(&artifact.stamp)
    }

    /// Notes that there is nothing more to do about the file as it is now.
    pub(super) fn is_done_with(&mut self, artifact: &Artifact) {
        self.seen.remove(&artifact.path);
        self.done.insert(artifact.path.clone(), artifact.stamp);
    }

    /// Those that are whole, and those to look at again.
    pub(super) fn split(&mut self, artifacts: Vec<Artifact>) -> (Vec<Artifact>, Vec<Artifact>) {
        let (now, at) = (Instant::now(), SystemClock.now().0);
        artifacts.into_iter().partition(|artifact| self.is_settled(artifact, now, at))
    }

    /// By our own clock if the file was seen before, else by what the file says of itself: another
    /// machine may have written it by another clock.
    fn is_settled(&mut self, artifact: &Artifact, now: Instant, at: i64) -> bool {
        let wait = i64::try_from(self.wait.as_millis()).unwrap_or(i64::MAX);
        if at.saturating_sub(artifact.stamp.modified) >= wait {
            return true;
        }
        match self.seen.get(&artifact.path) {
            Some((stamp, since)) if *stamp == artifact.stamp => now - *since >= self.wait,
            Some(_) | None => {
                self.seen.insert(artifact.path.clone(), (artifact.stamp, now));
                self.wait.is_zero()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(bytes: u64, modified: i64) -> Artifact {
        Artifact {
            path: "a-round-1.txt".into(),
            real: "/a-round-1.txt".into(),
            name: "a-round-1.txt".to_owned(),
            source: "filename_trigger",
            stamp: Stamp { bytes, modified },
        }
    }

    #[test]
    fn a_file_is_whole_when_it_has_not_changed_for_a_while() {
        let mut settling = Settling::new(Duration::from_secs(2));
        let (start, at) = (Instant::now(), 10_000);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(settling.is_settled(&artifact(1, 8_000), start, at), "old by its own account");
        assert!(!settling.is_settled(&artifact(1, 9_000), start, at));
        assert!(!settling.is_settled(&artifact(2, 9_900), later(2), at), "it has grown");
        assert!(!settling.is_settled(&artifact(2, 9_900), later(3), at));
        assert!(settling.is_settled(&artifact(2, 9_900), later(4), at));
        let ahead = artifact(3, 99_000);
        assert!(!settling.is_settled(&ahead, later(5), at), "a clock that is ahead of ours");
        assert!(settling.is_settled(&ahead, later(7), at), "settles by ours");
    }

    #[test]
    fn a_file_that_was_sent_is_new_again_when_it_changes() {
        let mut settling = Settling::new(Duration::ZERO);
        settling.is_done_with(&artifact(1, 1));
        assert!(!settling.is_new(&artifact(1, 1)));
        assert!(settling.is_new(&artifact(2, 1)));
    }
}
