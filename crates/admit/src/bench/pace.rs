//! A load at a steady rate, whatever the answers do.
//!
//! Turns come at even distances, and whichever connection is free takes the next one. The runtime's own
//! timers have steps of a millisecond: at some ten thousand events a second they would send a dozen at
//! once and then none, and what was measured would be the queue of that dozen.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often it is looked which turns are due. A thread sleeps about twice as long as it asks for.
const STEP: Duration = Duration::from_micros(50);

/// A turn that is taken so much after it was due is late.
const LATE: Duration = Duration::from_micros(200);

/// Turns, and the thread that calls them until it is dropped.
pub(super) struct Pace {
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

impl Pace {
    /// So many turns a second, once they have begun.
    pub(super) fn new(rate: f64) -> io::Result<Self> {
        let turns = Arc::new(Turns::new(rate));
        let called = turns.clone();
        let thread = thread::Builder::new().name("pace".to_owned()).spawn(move || called.call())?;
        Ok(Self { turns, thread: Some(thread) })
    }

    /// Begins, and returns the turns.
    pub(super) fn begin(&self) -> Arc<Turns> {
        self.turns.begun.get_or_init(Instant::now);
        self.turns.clone()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.turns.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does nothing that could panic.
            thread.join().unwrap_or_default();
        }
    }
}

/// The turns of one load.
pub(super) struct Turns {
    begun: OnceLock<Instant>,
    every: Duration,
    taken: AtomicU64,
    /// One permit for each turn that is due and not taken.
    due: Semaphore,
    is_over: AtomicBool,
}

impl Turns {
    fn new(rate: f64) -> Self {
        Self {
            begun: OnceLock::new(),
            every: Duration::from_secs_f64(1.0 / rate.max(1.0)),
            taken: AtomicU64::new(0),
            due: Semaphore::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits for the next turn and returns when it began. A late one began when it was due, whatever kept
    /// it, so that lateness counts as latency; only that steps are coarse does not count.
    pub(super) async fn next(&self) -> Instant {
        let begun = *self.begun.get_or_init(Instant::now);
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        self.due.acquire().await.expect("nobody closes it").forget();
        sent_at(begun + after(self.every, turn + 1), Instant::now())
    }

    /// Calls turns as they become due.
    fn call(&self) {
        let mut called = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if let Some(begun) = self.begun.get() {
                let due = begun.elapsed().as_nanos() / self.every.as_nanos().max(1);
                let due = usize::try_from(due).unwrap_or(usize::MAX);
                self.due.add_permits(due - called);
                called = due;
            }
            thread::sleep(STEP);
        }
    }
}

/// From when on a turn counts that was due then and taken now.
fn sent_at(due: Instant, now: Instant) -> Instant {
    if now > due + LATE { due } else { now }
}

/// How long after the beginning so many turns are over.
#[expect(clippy::cast_precision_loss, reason = "a few million turns")]
fn after(every: Duration, turns: u64) -> Duration {
    every.mul_f64(turns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_counts_from_when_it_was_due() {
        let due = Instant::now();
        for micros in [0, 1, 200] {
            let now = due + Duration::from_micros(micros);
            assert_eq!(sent_at(due, now), now);
        }
        assert_eq!(sent_at(due, due + Duration::from_micros(201)), due);
        assert_eq!(sent_at(due, due + Duration::from_secs(1)), due);
    }

    #[tokio::test]
    async fn no_turn_comes_before_it_is_due() {
        let pace = Pace::new(2_000.0).unwrap();
        let turns = pace.begin();
        let begun = *turns.begun.get().unwrap();
        for turn in 1..=100 {
            turns.next().await;
            assert!(begun.elapsed() >= after(turns.every, turn), "turn {turn} came early");
        }
    }
}
