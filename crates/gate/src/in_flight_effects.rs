//! Effects in flight: wakes waiters when an outcome is committed, without polling the ledger.
//!
//! A waiter subscribes first and reads second; the performer commits first and notifies second. So the
//! waiter either reads the outcome or is notified. Effects of other gates on a shared ledger send no
//! notification here; for them a waiter polls.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_core::Seq;
use admit_ledger::Ledger;
use tokio::sync::watch;
use tokio::time::sleep;

/// Poll interval for effects that another gate may have completed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Effects that have waiters.
#[derive(Debug, Default)]
pub(crate) struct InFlightEffects(Mutex<HashMap<Seq, watch::Sender<()>>>);

/// Subscription to the end of one effect.
pub(crate) struct EffectWaiter<'w> {
    effects: &'w InFlightEffects,
    seq: Seq,
    sender_closed: watch::Receiver<()>,
}

impl InFlightEffects {
    /// Subscribes to the effect of the admission at `seq`.
    pub(crate) fn subscribe(&self, seq: Seq) -> EffectWaiter<'_> {
        let sender_closed = self.lock().entry(seq).or_default().subscribe();
        EffectWaiter { effects: self, seq, sender_closed }
    }

    /// Wakes all waiters of an effect whose outcome is committed.
    pub(crate) fn notify_ended(&self, seq: Seq) {
        drop(self.lock().remove(&seq));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Seq, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EffectWaiter<'_> {
    /// Waits until the effect has ended.
    pub(crate) async fn wait(&mut self) {
        // No value is ever sent; dropping the sender is the notification.
        while self.sender_closed.changed().await.is_ok() {}
    }

    /// Waits until the effect has ended, in this gate or another one on the same ledger.
    pub(crate) async fn wait_on_any_gate(&mut self, ledger: &dyn Ledger) {
        if ledger.lease().is_none() {
            return self.wait().await;
        }
        let seq = self.seq;
        loop {
            tokio::select! {
                () = self.wait() => return,
                () = sleep(POLL_INTERVAL) => {}
            }
            // A read that fails is retried at the next poll.
            if let Ok(effect) = ledger.effect(seq).await
                && !effect.is_some_and(|effect| effect.state.is_in_work())
            {
                return;
            }
        }
    }
}

impl Drop for EffectWaiter<'_> {
    fn drop(&mut self) {
        let mut effects = self.effects.lock();
        if effects.get(&self.seq).is_some_and(|sender| sender.receiver_count() <= 1) {
            effects.remove(&self.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_waiter_is_woken_and_its_entry_is_removed() {
        let effects = InFlightEffects::default();
        let (mut a, mut b) = (effects.subscribe(Seq(1)), effects.subscribe(Seq(1)));
        let other = effects.subscribe(Seq(2));
        effects.notify_ended(Seq(1));
        a.wait().await;
        b.wait().await;
        drop((a, b, other));
        assert!(effects.lock().is_empty());
    }
}
