//! A load at a steady rate, whatever the answers do.
//!
//! Turns come at even distances, and whichever connection is free takes the next one. The runtime's own
//! timers have steps of a millisecond: at some ten thousand events a second they would send a dozen at
//! once and then none, and what was measured would be the queue of that dozen.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How often it is looked which turns are due. A thread sleeps about twice as long as it asks for.
const STEP: Duration = Duration::from_micros(50);

/// Turns, and the thread that calls them until it is dropped.
pub(super) struct Pace {
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

impl Pace {
    /// So many turns a second from now on.
    pub(super) fn start(rate: f64) -> io::Result<Self> {
        let turns = Arc::new(Turns {
            started: Instant::now(),
            every: Duration::from_secs_f64(1.0 / rate.max(1.0)),
            taken: AtomicU64::new(0),
            due: Semaphore::new(0),
            is_over: AtomicBool::new(false),
        });
        let called = turns.clone();
        let thread = thread::Builder::new().name("pace".to_owned()).spawn(move || called.call())?;
        Ok(Self { turns, thread: Some(thread) })
    }

    pub(super) fn turns(&self) -> Arc<Turns> {
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
    started: Instant,
    every: Duration,
    taken: AtomicU64,
    /// One permit for each turn that is due and not taken.
    due: Semaphore,
    is_over: AtomicBool,
}

impl Turns {
    /// Waits for the next turn and returns when it began. One that came while every connection was waiting
    /// for an answer began when it was due, so that lateness counts as latency; a step that is coarse
    /// does not count.
    pub(super) async fn next(&self) -> Instant {
        let turn = self.taken.fetch_add(1, Ordering::Relaxed);
        let due = self.started + self.every.mul_f64(count(turn));
        let is_late = Instant::now() > due;
        self.due.acquire().await.expect("nobody closes it").forget();
        if is_late { due } else { Instant::now() }
    }

    /// Calls turns as they become due.
    fn call(&self) {
        let mut called = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            let due = self.started.elapsed().as_nanos() / self.every.as_nanos().max(1);
            let due = usize::try_from(due).unwrap_or(usize::MAX);
            self.due.add_permits(due - called);
            called = due;
            thread::sleep(STEP);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few million turns")]
fn count(turns: u64) -> f64 {
    turns as f64
}
