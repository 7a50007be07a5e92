//! Retention: what is older than the operator wants to keep goes, a little at a time.

use std::time::Duration;

use admit_core::{Clock, Fault, Horizon, Millis};

use super::BoxFuture;

/// How long to wait when there is nothing to remove. Longer makes larger, cheaper removals.
pub const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Removes what is too old. Does nothing in a ledger that was opened without an age.
///
/// Bodies go first, of every door. Then, only of events that carry the producer's wall time, the
/// admission, its sightings and its key, once it is older than the age and
/// [a margin](admit_core::KEY_MARGIN). Everything else about an event without a wall time stays.
pub trait Retention: Send + Sync {
    /// How far back this ledger remembers. Contracts hold it and refuse what is outside.
    fn horizon(&self) -> Horizon;

    /// Removes one slice of what is too old at `now`: a bounded piece of work in a commit that
    /// others share. Where it stopped is part of that commit, so a restart goes on from there.
    fn sweep(&self, now: Millis) -> BoxFuture<'_, Result<Swept, Fault>>;
}

/// What one sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Raw bodies.
    pub bodies: u64,
    /// Keys; an event under one of them would be admitted again, were it not outside.
    pub keys: u64,
    /// Admissions with their facts.
    pub admissions: u64,
    /// Sightings of them.
    pub sightings: u64,
    /// `true` when there is more to remove at once.
    pub more: bool,
}

/// Sweeps for as long as it is polled: slice after slice while there is something to remove, then
/// again after [`SWEEP_EVERY`]. A fault is logged and waited out. In a ledger that keeps everything
/// it returns at once.
pub async fn keep_swept(ledger: &dyn Retention, clock: &dyn Clock) {
    if ledger.horizon().age().is_none() {
        return;
    }
    loop {
        match ledger.sweep(clock.now()).await {
            Ok(Swept { more: true, .. }) => {}
            Ok(_) => tokio::time::sleep(SWEEP_EVERY).await,
            Err(fault) => {
                tracing::warn!(%fault, "what is too old could not be removed, trying again later");
                tokio::time::sleep(SWEEP_EVERY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use admit_core::Age;
    use tokio::sync::Notify;

    use super::*;

    /// Has three slices to remove, and tells when it was asked for a fourth.
    struct Three {
        age: Option<Age>,
        asked: AtomicU32,
        swept: Notify,
    }

    impl Three {
        fn keeping(age: Option<Age>) -> Self {
            Self { age, asked: AtomicU32::new(0), swept: Notify::new() }
        }
    }

    impl Retention for Three {
        fn horizon(&self) -> Horizon {
            Horizon::new(self.age, None)
        }

        fn sweep(&self, _: Millis) -> BoxFuture<'_, Result<Swept, Fault>> {
            let more = self.asked.fetch_add(1, Ordering::SeqCst) < 3;
            if !more {
                self.swept.notify_one();
            }
            Box::pin(async move { Ok(Swept { more, ..Swept::default() }) })
        }
    }

    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Millis {
            Millis(0)
        }
    }

    #[tokio::test]
    async fn it_sweeps_slice_after_slice_and_then_waits() {
        let ledger = Three::keeping(Some(Age::from_secs(1)));
        tokio::select! {
            () = keep_swept(&ledger, &Stopped) => panic!("it goes on for ever"),
            () = ledger.swept.notified() => {}
        }
        assert_eq!(ledger.asked.load(Ordering::SeqCst), 4);
        keep_swept(&Three::keeping(None), &Stopped).await;
    }
}
