//! Looks at topics before something is published to them: one at a time for each topic.
//!
//! Many publishers that begin at once would each bring a client of their own, and keep the brokers from
//! answering any of them in time. So whoever comes while a topic is looked at waits for that look.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::Shared;

use crate::port::BoxFuture;

/// Says whether a topic is good, or why not.
type Look = BoxFuture<'static, Result<(), String>>;

/// Topics that are known to be good, or are being looked at.
#[derive(Default)]
pub(super) struct Preparations(Mutex<HashMap<String, Shared<Look>>>);

impl Preparations {
    fn looks(&self) -> MutexGuard<'_, HashMap<String, Shared<Look>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the topic is known to be good.
    pub(super) fn has(&self, topic: &str) -> bool {
        self.looks().get(topic).and_then(Shared::peek).is_some_and(Result::is_ok)
    }

    /// Waits for the look at a topic, which is begun if there is none. What failed is looked at again by
    /// whoever comes next.
    pub(super) async fn of(&self, topic: &str, look: impl FnOnce() -> Look) -> Result<(), String> {
        let ours = self.looks().entry(topic.to_owned()).or_insert_with(|| look().shared()).clone();
        let told = ours.clone().await;
        if told.is_err() {
            let mut looks = self.looks();
            if looks.get(topic).is_some_and(|latest| latest.ptr_eq(&ours)) {
                looks.remove(topic);
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
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
        let (preparations, looks) = (Preparations::default(), Cell::new(0));
        let look = || -> Look {
            looks.set(looks.get() + 1);
            let told = if looks.get() == 1 { Err("nobody answers".to_owned()) } else { Ok(()) };
            Box::pin(async move {
                tokio::task::yield_now().await;
                told
            })
        };
        let told = join_all((0..3).map(|_| preparations.of("t", look))).await;
        assert_eq!(told, vec![Err("nobody answers".to_owned()); 3]);
        assert!(!preparations.has("t"));
        assert_eq!(preparations.of("t", look).await, Ok(()));
        assert_eq!(looks.get(), 2);
    }
}
