//! Looks at topics before something is published to them: one at a time for each topic.
//!
//! Many publishers that begin at once would each bring a client of their own, and keep the brokers from
//! answering any of them in time. So whoever comes while a topic is looked at waits for that look.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};

use crate::port::BoxFuture;

/// Says whether a topic is good, or why not.
type Look = BoxFuture<'static, Result<(), String>>;

/// How a topic stands.
enum Standing {
    /// Somebody looks at it. Those who wait hold the look: when all have gone away it is gone too, and
    /// nobody is told later what it had found by then.
    LookedAt(WeakShared<Look>),
    Good,
}

/// Topics that are known to be good, or are being looked at.
#[derive(Default)]
pub(super) struct Preparations(Mutex<HashMap<String, Standing>>);

impl Preparations {
    fn standings(&self) -> MutexGuard<'_, HashMap<String, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the topic is known to be good.
    pub(super) fn has(&self, topic: &str) -> bool {
        matches!(self.standings().get(topic), Some(Standing::Good))
    }

    /// Waits for the look at a topic, which is begun if there is none. What failed is looked at again by
    /// whoever comes next.
    pub(super) async fn of(&self, topic: &str, look: impl FnOnce() -> Look) -> Result<(), String> {
        let Some(ours) = self.joined(topic, look) else { return Ok(()) };
        let told = ours.await;
        if told.is_ok() {
            self.standings().insert(topic.to_owned(), Standing::Good);
        }
        told
    }

    /// The look at a topic; `None` if it is known to be good.
    fn joined(&self, topic: &str, look: impl FnOnce() -> Look) -> Option<Shared<Look>> {
        let mut standings = self.standings();
        let running = match standings.get(topic) {
            Some(Standing::Good) => return None,
            Some(Standing::LookedAt(look)) => look.upgrade(),
            None => None,
        };
        Some(running.unwrap_or_else(|| {
            let new = caught(look()).shared();
            if let Some(weak) = new.downgrade() {
                standings.insert(topic.to_owned(), Standing::LookedAt(weak));
            }
            new
        }))
    }
}

/// A look that panics has failed; a shared one would panic for everybody and for ever.
fn caught(look: Look) -> Look {
    let caught = AssertUnwindSafe(look).catch_unwind();
    Box::pin(caught.map(|told| told.unwrap_or_else(|_| Err("the look at it panicked".to_owned()))))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::{join_all, pending};
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn publishers_that_begin_at_once_look_at_a_topic_once() {
        let (preparations, looks) = (Preparations::default(), Cell::new(0));
        let (answer, answered) = watch::channel(false);
        let look = || -> Look {
            looks.set(looks.get() + 1);
            let mut answered = answered.clone();
            Box::pin(async move {
                answered.wait_for(|answered| *answered).await.map_err(|error| error.to_string())?;
                Ok(())
            })
        };
        let publishers = join_all((0..16).map(|_| preparations.of("t", look)));
        let broker = async {
            tokio::task::yield_now().await;
            assert!(!preparations.has("t"), "nobody has answered");
            answer.send_replace(true);
        };
        let (told, ()) = tokio::join!(publishers, broker);
        assert_eq!(told, vec![Ok(()); 16]);
        assert!(preparations.has("t") && !preparations.has("other"));
        assert_eq!(preparations.of("t", look).await, Ok(()));
        assert_eq!(looks.get(), 1);
    }

    #[tokio::test]
    async fn a_look_that_failed_is_told_to_all_who_waited_and_done_again_for_the_next() {
        let panics = || -> Look { Box::pin(async { panic!("a look panics") }) };
        let fails = || -> Look { Box::pin(async { Err("nobody answers".to_owned()) }) };
        for (why, first) in
            [("nobody answers", &fails as &dyn Fn() -> Look), ("the look at it panicked", &panics)]
        {
            let (preparations, looks) = (Preparations::default(), Cell::new(0));
            let look = || -> Look {
                looks.set(looks.get() + 1);
                let first = (looks.get() == 1).then(first);
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    match first {
                        Some(first) => first.await,
                        None => Ok(()),
                    }
                })
            };
            let told = join_all((0..3).map(|_| preparations.of("t", look))).await;
            assert_eq!(told, vec![Err(why.to_owned()); 3]);
            assert!(!preparations.has("t"));
            assert_eq!(preparations.of("t", look).await, Ok(()));
            assert_eq!(looks.get(), 2);
        }
    }

    #[tokio::test]
    async fn a_look_that_nobody_waits_for_any_more_is_not_believed_later() {
        let preparations = Preparations::default();
        let mut gone = Box::pin(preparations.of("t", || Box::pin(pending())));
        assert!(gone.as_mut().now_or_never().is_none(), "it waits");
        drop(gone);
        assert_eq!(preparations.of("t", || Box::pin(async { Ok(()) })).await, Ok(()));
        assert!(preparations.has("t"));
    }
}
