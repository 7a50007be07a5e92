//! Tracks the run that the background sweep is processing. A submit for that run waits for the sweep
//! instead of failing with "lease held".

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum wait for the sweep. Less than the time limit of a request.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(5);

/// The run that the sweep is processing, if any.
#[derive(Debug, Default)]
pub(super) struct SweepTracker(watch::Sender<Option<String>>);

/// Marks a run as being processed by the sweep, until dropped.
pub(super) struct SweepGuard<'l>(&'l SweepTracker);

/// Observes the sweep from its creation on.
pub(super) struct SweepWait(watch::Receiver<Option<String>>);

impl SweepTracker {
    /// Marks a run as being processed.
    pub(super) fn enter(&self, run_id: &str) -> SweepGuard<'_> {
        self.0.send_replace(Some(run_id.to_owned()));
        SweepGuard(self)
    }

    /// Starts to observe whether the sweep processes a run.
    pub(super) fn watch(&self, run_id: &str) -> SweepWait {
        let mut receiver = self.0.subscribe();
        let is_processing = receiver.borrow().as_deref() == Some(run_id);
        if is_processing {
            receiver.mark_changed();
        }
        SweepWait(receiver)
    }
}

impl Drop for SweepGuard<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(None);
    }
}

impl SweepWait {
    /// Waits until the sweep has left the run. Returns `false` if it certainly did not process the
    /// run meanwhile, or if the wait timed out.
    pub(super) async fn wait_until_left(mut self, run_id: &str) -> bool {
        let has_moved = self.0.has_changed().unwrap_or(false);
        let left = self.0.wait_for(|at| at.as_deref() != Some(run_id));
        has_moved && timeout(SWEEP_WAIT_MAX, left).await.is_ok_and(|left| left.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_submit_waits_for_a_sweep_of_its_run() {
        let tracker = SweepTracker::default();
        let guard = tracker.enter("a");
        let mut left = Box::pin(tracker.watch("a").wait_until_left("a"));
        assert_eq!(left.as_mut().now_or_never(), None);
        drop(guard);
        assert_eq!(left.as_mut().now_or_never(), Some(true));
    }

    #[tokio::test]
    async fn a_sweep_that_ran_meanwhile_counts() {
        let tracker = SweepTracker::default();
        let wait = tracker.watch("a");
        drop(tracker.enter("a"));
        assert_eq!(wait.wait_until_left("a").now_or_never(), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_stuck_sweep_times_out() {
        let tracker = SweepTracker::default();
        let _stuck = tracker.enter("a");
        assert!(!tracker.watch("a").wait_until_left("a").await);
    }

    #[tokio::test]
    async fn a_sweep_of_another_run_is_not_waited_for() {
        let tracker = SweepTracker::default();
        let other = tracker.enter("b");
        assert_eq!(tracker.watch("a").wait_until_left("a").now_or_never(), Some(false));
        drop(other);
        assert_eq!(tracker.watch("a").wait_until_left("a").now_or_never(), Some(false));
    }
}
