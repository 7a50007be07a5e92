//! Which run the gate's own look at unfinished runs is at. Whoever asks for that run meanwhile waits for
//! the look to pass, rather than being told that somebody else leads it.

use tokio::sync::watch;

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

    /// Begins to notice where the look is.
    pub(super) fn passing(&self) -> Passing {
        let mut seen = self.0.subscribe();
        if seen.borrow().is_some() {
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
    /// Whether the look may have been at a run since this began; then it is not any more.
    pub(super) async fn passed(mut self, run_id: &str) -> bool {
        let moved = self.0.has_changed().unwrap_or(false);
        moved && self.0.wait_for(|at| at.as_deref() != Some(run_id)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_look_that_is_at_the_run_is_waited_for() {
        let look = Look::default();
        let at = look.at("a");
        let mut passed = Box::pin(look.passing().passed("a"));
        assert_eq!(passed.as_mut().now_or_never(), None);
        drop(at);
        assert_eq!(passed.as_mut().now_or_never(), Some(true));
    }

    #[test]
    fn a_look_that_came_and_went_meanwhile_counts_and_one_elsewhere_holds_up_nobody() {
        let look = Look::default();
        let passing = look.passing();
        drop(look.at("a"));
        assert_eq!(passing.passed("a").now_or_never(), Some(true));
        let _elsewhere = look.at("b");
        assert_eq!(look.passing().passed("a").now_or_never(), Some(true));
    }

    #[test]
    fn without_a_look_nobody_waits_and_nobody_tries_again() {
        let look = Look::default();
        drop(look.at("a"));
        assert_eq!(look.passing().passed("a").now_or_never(), Some(false));
    }
}
