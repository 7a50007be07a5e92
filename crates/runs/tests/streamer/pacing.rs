//! Pacing, with a paused clock.

use std::sync::Arc;
use std::sync::Mutex;

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_runs::streamer::gate::{BoxFuture, EnvelopeTarget, PushResult};
use bytes::Bytes;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// A gate that records the time of each push.
struct TimingGate {
    began: Instant,
    at: Mutex<Vec<Duration>>,
}

impl EnvelopeTarget for TimingGate {
    fn push(&self, _envelope: Bytes) -> BoxFuture<'_, PushResult> {
        self.at.lock().unwrap().push(self.began.elapsed());
        Box::pin(async { PushResult::Decided(ReceiptDecision::Admit) })
    }

    fn alive(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

/// Push times of the rows of the traffic output, which are 10 ms apart.
async fn push_times(speedup: f64, checkpoint_every: u64) -> Vec<u128> {
    let mut world = World::synthetic(30, 30).traffic_only();
    (world.settings.speedup, world.settings.checkpoint_every) = (speedup, checkpoint_every);
    world.announce().await;
    let gate = Arc::new(TimingGate { began: Instant::now(), at: Mutex::default() });
    let mut streamer = world.streamer_at(Arc::clone(&gate) as Arc<dyn EnvelopeTarget>);
    assert!(streamer.cycle(&CancellationToken::new()).await.unwrap().is_settled());
    let at = gate.at.lock().unwrap();
    let first = at[0];
    at.iter().map(|at| (*at - first).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn rows_keep_their_time_distance_with_any_window() {
    for checkpoint_every in [1, 7, 100] {
        let times = push_times(0.01, checkpoint_every).await;
        let expected: Vec<u128> = (0..30).map(|row| row * 1_000).collect();
        for (time, expected) in times.iter().zip(&expected) {
            assert!(time.abs_diff(*expected) <= 20, "{time}, expected {expected}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_pacing_rows_are_sent_at_once() {
    let times = push_times(0.0, 10).await;
    assert!(times.iter().all(|at| *at < 1_000), "{times:?}");
}
