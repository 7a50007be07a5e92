//! Which run the gate's own look at unfinished runs is at. Whoever asks for that run meanwhile waits for
//! the look to pass, rather than being told that somebody else leads it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Longest wait for the look; whoever asked has been answered before that.
const PASSING_MAX: Duration = Duration::from_secs(5);

/// Where the look is.
#[derive(Debug, Default)]
pub(super) struct Look(watch::Sender<Option<String>>);

/// The look is at a run until this is dropped.
pub(super) struct At<'l>(&'l Look);

/// What the look does from here on.
pub(super) struct Passing(watch::Receiver<Option<String>>);

impl Look {
    /// Looks at a run.
    pub(super) fn at(&self, run_id: &str) -> At<'_> {
        self.0.send_replace(Some(run_id.to_owned()));
        At(self)
    }

    /// Begins to notice whether the look is at a run.
    pub(super) fn passing(&self, run_id: &str) -> Passing {
        let mut seen = self.0.subscribe();
        let is_there = seen.borrow().as_deref() == Some(run_id);
        if is_there {
            seen.mark_changed();
        }
        Passing(seen)
    }
}

impl Drop for At<'_> {
    fn drop(&mut self) {
        self.0.0.send_replace(None);
    }
}

impl Passing {
    /// Whether the look may have been at the run since this began; then it is not any more.
    pub(super) async fn passed(mut self, run_id: &str) -> bool {
        let moved = self.0.has_changed().unwrap_or(false);
        let away = self.0.wait_for(|at| at.as_deref() != Some(run_id));
        moved && timeout(PASSING_MAX, away).await.is_ok_and(|left| left.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_look_that_is_at_the_run_is_waited_for() {
        let look = Look::default();
        let at = look.at("a");
        let mut passed = Box::pin(look.passing("a").passed("a"));
        assert_eq!(passed.as_mut().now_or_never(), None);
        drop(at);
        assert_eq!(passed.as_mut().now_or_never(), Some(true));
    }

    #[tokio::test]
    async fn a_look_that_came_and_went_meanwhile_counts() {
        let look = Look::default();
        let passing = look.passing("a");
        drop(look.at("a"));
        assert_eq!(passing.passed("a").now_or_never(), Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_stuck_is_not_waited_for_without_end() {
        let look = Look::default();
        let _stuck = look.at("a");
        assert!(!look.passing("a").passed("a").await);
    }

    #[tokio::test]
    async fn where_the_look_is_elsewhere_or_nowhere_nobody_waits_and_nobody_tries_again() {
        let look = Look::default();
        let elsewhere = look.at("b");
        assert_eq!(look.passing("a").passed("a").now_or_never(), Some(false));
        drop(elsewhere);
        assert_eq!(look.passing("a").passed("a").now_or_never(), Some(false));
    }
}
