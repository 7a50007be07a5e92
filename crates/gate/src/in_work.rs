//! Who waits for the outcome of an effect, without asking the ledger again and again.
//!
//! A waiter watches first and reads second; whoever ends the work commits first and tells second.
//! So either the waiter reads the outcome, or it is told. What another gate performs is not told
//! here: where several share a ledger, a waiter looks now and then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_core::Seq;
use admit_ledger::Ledger;
use tokio::sync::watch;
use tokio::time::sleep;

/// How often a waiter looks whether another gate has ended the work.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The effects somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct InWork(Mutex<HashMap<Seq, watch::Sender<()>>>);

/// A watch on one effect.
pub(crate) struct Watch<'w> {
    in_work: &'w InWork,
    seq: Seq,
    told: watch::Receiver<()>,
}

impl InWork {
    /// Watches the effect of the admission at `seq`.
    pub(crate) fn watch(&self, seq: Seq) -> Watch<'_> {
        let told = self.lock().entry(seq).or_default().subscribe();
        Watch { in_work: self, seq, told }
    }

    /// Tells everybody who watches that the work has ended and its outcome is committed.
    pub(crate) fn ended(&self, seq: Seq) {
        drop(self.lock().remove(&seq));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Seq, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch<'_> {
    /// Resolves once the work has ended.
    pub(crate) async fn ended(&mut self) {
        // Nothing is ever sent; the sender going away is the message.
        while self.told.changed().await.is_ok() {}
    }

    /// Resolves once the work has ended, here or in another gate on the same ledger.
    pub(crate) async fn ended_anywhere(&mut self, ledger: &dyn Ledger) {
        if ledger.lease().is_none() {
            return self.ended().await;
        }
        let seq = self.seq;
        loop {
            tokio::select! {
                () = self.ended() => return,
                () = sleep(LOOK_EVERY) => {}
            }
            // A ledger that cannot answer just now may be able to at the next look.
            if let Ok(effect) = ledger.effect(seq).await
                && !effect.is_some_and(|effect| effect.state.is_in_work())
            {
                return;
            }
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut watched = self.in_work.lock();
        if watched.get(&self.seq).is_some_and(|sender| sender.receiver_count() <= 1) {
            watched.remove(&self.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_watcher_is_told_and_nothing_is_left_behind() {
        let in_work = InWork::default();
        let (mut a, mut b) = (in_work.watch(Seq(1)), in_work.watch(Seq(1)));
        let other = in_work.watch(Seq(2));
        in_work.ended(Seq(1));
        a.ended().await;
        b.ended().await;
        drop((a, b, other));
        assert!(in_work.lock().is_empty());
    }
}
