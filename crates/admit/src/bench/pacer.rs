//! Open-loop pacing: sends at a fixed rate, independent of replies.
//!
//! Send slots are evenly spaced, and the next free connection takes each. The timers of the runtime have
//! a resolution of a millisecond: at some ten thousand events per second they would release a dozen at
//! once, and the measured latency would be the queueing of that burst.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Interval of releasing due slots. A thread sleeps about twice as long as requested.
const RELEASE_INTERVAL: Duration = Duration::from_micros(50);

/// A slot that is taken later than this after its due time is late.
const LATE: Duration = Duration::from_micros(200);

/// A send schedule, and the thread that releases its slots until this is dropped.
pub(super) struct Pacer {
    schedule: Arc<SendSchedule>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    /// A schedule with `rate` slots per second.
    pub(super) fn new(rate: f64) -> io::Result<Self> {
        let schedule = Arc::new(SendSchedule::new(rate));
        let released = schedule.clone();
        let thread =
            thread::Builder::new().name("pacer".to_owned()).spawn(move || released.release())?;
        Ok(Self { schedule, thread: Some(thread) })
    }

    /// Starts the schedule, and returns it.
    pub(super) fn start(&self) -> Arc<SendSchedule> {
        self.schedule.started_at.get_or_init(Instant::now);
        self.schedule.clone()
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.schedule.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

/// Evenly spaced send slots of one load.
pub(super) struct SendSchedule {
    started_at: OnceLock<Instant>,
    interval: Duration,
    taken: AtomicU64,
    /// One permit per slot that is due and not taken.
    due: Semaphore,
    is_over: AtomicBool,
}

impl SendSchedule {
    fn new(rate: f64) -> Self {
        Self {
            started_at: OnceLock::new(),
            interval: Duration::from_secs_f64(1.0 / rate.max(1.0)),
            taken: AtomicU64::new(0),
            due: Semaphore::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits for the next slot, and returns the time from which its latency counts. For a late slot that
    /// is its due time, so that lateness counts as latency (no coordinated omission).
    pub(super) async fn next(&self) -> Instant {
        let started_at = *self.started_at.get_or_init(Instant::now);
        let slot = self.taken.fetch_add(1, Ordering::Relaxed);
        self.due.acquire().await.expect("the semaphore is never closed").forget();
        sent_at(started_at + offset(self.interval, slot + 1), Instant::now())
    }

    /// Releases slots as they become due.
    fn release(&self) {
        let mut released = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if let Some(started_at) = self.started_at.get() {
                let due = started_at.elapsed().as_nanos() / self.interval.as_nanos().max(1);
                let due = usize::try_from(due).unwrap_or(usize::MAX);
                self.due.add_permits(due - released);
                released = due;
            }
            thread::sleep(RELEASE_INTERVAL);
        }
    }
}

/// Time from which the latency of a slot counts that was due at `due` and is taken at `now`.
fn sent_at(due: Instant, now: Instant) -> Instant {
    if now > due + LATE { due } else { now }
}

/// Offset of slot number `slots` from the start.
#[expect(clippy::cast_precision_loss, reason = "a few million slots")]
fn offset(interval: Duration, slots: u64) -> Duration {
    interval.mul_f64(slots as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_of_a_late_slot_counts_from_its_due_time() {
        let due = Instant::now();
        for micros in [0, 1, 200] {
            let now = due + Duration::from_micros(micros);
            assert_eq!(sent_at(due, now), now);
        }
        assert_eq!(sent_at(due, due + Duration::from_micros(201)), due);
        assert_eq!(sent_at(due, due + Duration::from_secs(1)), due);
    }

    #[tokio::test]
    async fn no_slot_is_released_before_it_is_due() {
        let pacer = Pacer::new(2_000.0).unwrap();
        let schedule = pacer.start();
        let started_at = *schedule.started_at.get().unwrap();
        for slot in 1..=100 {
            schedule.next().await;
            assert!(
                started_at.elapsed() >= offset(schedule.interval, slot),
                "slot {slot} was released early"
            );
        }
    }
}
