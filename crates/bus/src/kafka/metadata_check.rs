//! Metadata checks of topics before their first publish, one at a time per topic.
//!
//! Many publishers that start at once would each open a client, and overload the brokers until none
//! gets a response in time. So concurrent callers share the running check.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};

use crate::port::BoxFuture;

/// A running check; the error is the reason why the topic cannot be used.
type TopicCheck = BoxFuture<'static, Result<(), String>>;

/// State of a topic.
enum TopicState {
    /// A check is running. Waiters share its future; if all are dropped it is cancelled and its
    /// result discarded.
    Checking(WeakShared<TopicCheck>),
    Usable,
}

/// Topics that are usable or being checked.
#[derive(Default)]
pub(super) struct TopicChecks(Mutex<HashMap<String, TopicState>>);

impl TopicChecks {
    fn states(&self) -> MutexGuard<'_, HashMap<String, TopicState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the topic has passed its check.
    pub(super) fn is_usable(&self, topic: &str) -> bool {
        matches!(self.states().get(topic), Some(TopicState::Usable))
    }

    /// Waits for the check of a topic, starting one if none is running. A failed check is repeated
    /// by the next caller.
    pub(super) async fn wait(
        &self,
        topic: &str,
        check: impl FnOnce() -> TopicCheck,
    ) -> Result<(), String> {
        let Some(check) = self.join(topic, check) else { return Ok(()) };
        let result = check.await;
        if result.is_ok() {
            self.states().insert(topic.to_owned(), TopicState::Usable);
        }
        result
    }

    /// The running check of a topic; `None` if it has passed.
    fn join(&self, topic: &str, check: impl FnOnce() -> TopicCheck) -> Option<Shared<TopicCheck>> {
        let mut states = self.states();
        let running = match states.get(topic) {
            Some(TopicState::Usable) => return None,
            Some(TopicState::Checking(check)) => check.upgrade(),
            None => None,
        };
        Some(running.unwrap_or_else(|| {
            let new = catch_panic(check()).shared();
            if let Some(weak) = new.downgrade() {
                states.insert(topic.to_owned(), TopicState::Checking(weak));
            }
            new
        }))
    }
}

/// Turns a panic into a failed check; polling a shared future again after a panic would panic in
/// every waiter.
fn catch_panic(check: TopicCheck) -> TopicCheck {
    let caught = AssertUnwindSafe(check).catch_unwind();
    Box::pin(
        caught
            .map(|result| result.unwrap_or_else(|_| Err("the metadata check panicked".to_owned()))),
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::{join_all, pending};
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn concurrent_publishers_check_a_topic_once() {
        let (checks, runs) = (TopicChecks::default(), Cell::new(0));
        let (respond, responded) = watch::channel(false);
        let check = || -> TopicCheck {
            runs.set(runs.get() + 1);
            let mut responded = responded.clone();
            Box::pin(async move {
                responded
                    .wait_for(|responded| *responded)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok(())
            })
        };
        let publishers = join_all((0..16).map(|_| checks.wait("t", check)));
        let broker = async {
            tokio::task::yield_now().await;
            assert!(!checks.is_usable("t"), "no response yet");
            respond.send_replace(true);
        };
        let (result, ()) = tokio::join!(publishers, broker);
        assert_eq!(result, vec![Ok(()); 16]);
        assert!(checks.is_usable("t") && !checks.is_usable("other"));
        assert_eq!(checks.wait("t", check).await, Ok(()));
        assert_eq!(runs.get(), 1);
    }

    #[tokio::test]
    async fn a_failed_check_fails_all_waiters_and_is_repeated_for_the_next() {
        let panics = || -> TopicCheck { Box::pin(async { panic!("a check panics") }) };
        let fails = || -> TopicCheck { Box::pin(async { Err("no response".to_owned()) }) };
        for (why, first) in [
            ("no response", &fails as &dyn Fn() -> TopicCheck),
            ("the metadata check panicked", &panics),
        ] {
            let (checks, runs) = (TopicChecks::default(), Cell::new(0));
            let check = || -> TopicCheck {
                runs.set(runs.get() + 1);
                let first = (runs.get() == 1).then(first);
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    match first {
                        Some(first) => first.await,
                        None => Ok(()),
                    }
                })
            };
            let result = join_all((0..3).map(|_| checks.wait("t", check))).await;
            assert_eq!(result, vec![Err(why.to_owned()); 3]);
            assert!(!checks.is_usable("t"));
            assert_eq!(checks.wait("t", check).await, Ok(()));
            assert_eq!(runs.get(), 2);
        }
    }

    #[tokio::test]
    async fn an_abandoned_check_is_discarded() {
        let checks = TopicChecks::default();
        let mut gone = Box::pin(checks.wait("t", || Box::pin(pending())));
        assert!(gone.as_mut().now_or_never().is_none(), "it waits");
        drop(gone);
        assert_eq!(checks.wait("t", || Box::pin(async { Ok(()) })).await, Ok(()));
        assert!(checks.is_usable("t"));
    }
}
