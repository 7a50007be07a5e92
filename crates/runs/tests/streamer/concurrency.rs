//! Concurrent streamers of one run, and concurrent envelopes in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use admit_runs::streamer::ReadyStatus;
use admit_runs::streamer::gate::{BoxFuture, EnvelopeTarget, PushResult};
use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::world::{FakeGate, World, id, member};

#[tokio::test]
async fn two_streamers_on_one_folder_send_every_row_once() {
    let world = World::synthetic(40, 15);
    world.announce().await;
    let stop = CancellationToken::new();
    let (mut one, mut other) = (world.streamer(), world.streamer());
    let (first, second) = tokio::join!(one.cycle(&stop), other.cycle(&stop));
    let statuses = [first, second].map(|cycle| cycle.unwrap().outcomes[0].status);
    assert!(statuses.contains(&ReadyStatus::Streamed), "{statuses:?}");
    assert_eq!((world.gate.ids().len(), world.gate.duplicates()), (160, 0), "{statuses:?}");
    // The streamer that was deferred finds the run settled.
    assert!(one.cycle(&stop).await.unwrap().is_settled());
    assert!(other.cycle(&stop).await.unwrap().is_settled());
    assert_eq!(world.gate.pushes(), 160);
}

/// A gate that blocks each push until released.
#[derive(Default)]
struct BlockingGate {
    inner: FakeGate,
    arrived: Notify,
    go: Notify,
}

impl EnvelopeTarget for BlockingGate {
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, PushResult> {
        Box::pin(async move {
            self.arrived.notify_one();
            self.go.notified().await;
            self.go.notify_one();
            self.inner.push(envelope).await
        })
    }

    fn alive(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_part_that_changes_while_it_is_streamed_fails_the_run() {
    let world = World::synthetic(400, 300).traffic_only();
    world.announce().await;
    let gate = Arc::new(BlockingGate::default());
    let mut streamer = world.streamer_at(Arc::clone(&gate) as Arc<dyn EnvelopeTarget>);
    let stop = CancellationToken::new();
    let changed = async {
        gate.arrived.notified().await;
        let view = "stream_view/ts_utc/output_id=s3_event_stream_with_fraud_6B";
        let part = |n: u8| world.pack.join(format!("{view}/part-00000{n}.parquet"));
        std::fs::copy(part(0), part(1)).unwrap();
        gate.go.notify_one();
    };
    let (cycle, ()) = tokio::join!(streamer.cycle(&stop), changed);
    let outcome = cycle.unwrap().outcomes.remove(0);
    assert_eq!(outcome.reason.as_deref(), Some("STREAM_FAILED"), "{outcome:?}");
    assert!(outcome.detail.unwrap_or_default().contains("changed"), "the detail has the cause");
    assert_eq!(gate.inner.ids().len(), 300, "earlier rows are admitted");
}

#[tokio::test]
async fn a_run_in_use_is_deferred_and_not_lost() {
    let world = World::golden();
    world.announce().await;
    let stop = CancellationToken::new();
    let gate = Arc::new(BlockingGate::default());
    let mut one = world.streamer_at(Arc::clone(&gate) as Arc<dyn EnvelopeTarget>);
    let mut other = world.streamer();
    let watch = async {
        gate.arrived.notified().await;
        let cycle = other.cycle(&stop).await.unwrap();
        gate.go.notify_one();
        cycle.outcomes[0].status
    };
    let (first, second) = tokio::join!(one.cycle(&stop), watch);
    assert_eq!(second, ReadyStatus::DeferredRunInUse);
    assert_eq!(first.unwrap().outcomes[0].status, ReadyStatus::Streamed);
    assert!(other.cycle(&stop).await.unwrap().is_settled(), "the run is settled");
    assert_eq!(world.gate.pushes(), 0);
    assert_eq!(world.record(&id('a')), ["STREAMED - 12"]);
}

#[tokio::test]
async fn two_streamers_with_separate_checkpoints_admit_the_same_set() {
    let mut world = World::synthetic(40, 15);
    world.announce().await;
    let stop = CancellationToken::new();
    let mut one = world.streamer();
    world.data = "other-data";
    let mut other = world.streamer();
    let (first, second) = tokio::join!(one.cycle(&stop), other.cycle(&stop));
    assert!(first.unwrap().is_settled() && second.unwrap().is_settled());
    assert_eq!(world.gate.ids().len(), 160);
    assert!(world.gate.duplicates() <= 160);
}

#[tokio::test]
async fn rows_of_one_flow_arrive_in_order_however_many_are_on_the_way() {
    let mut world = World::synthetic(60, 25).traffic_only();
    (world.settings.checkpoint_every, world.settings.in_flight) = (30, 8);
    world.announce().await;
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    assert!(world.gate.concurrent_max.load(SeqCst) > 1, "concurrent pushes");
    assert!(world.gate.concurrent_max.load(SeqCst) <= 8, "up to the limit");
    let admitted = world.gate.admitted.lock().unwrap();
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for arrived in world.gate.arrived.lock().unwrap().iter() {
        let body = &admitted[arrived];
        let seq: u64 = member(body, "/payload/event_seq").parse().unwrap();
        let before = last.insert(member(body, "/payload/flow_id"), seq);
        assert!(before.is_none_or(|before| before < seq), "{seq} after {before:?}");
    }
}

#[tokio::test]
async fn outputs_run_one_at_a_time_with_a_concurrency_of_one() {
    let mut world = World::synthetic(20, 20);
    (world.settings.concurrency, world.settings.in_flight) = (1, 1);
    world.announce().await;
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    assert_eq!(world.gate.concurrent_max.load(SeqCst), 1);
    let admitted = world.gate.admitted.lock().unwrap();
    let arrived = world.gate.arrived.lock().unwrap();
    let mut kinds: Vec<String> =
        arrived.iter().map(|id| member(&admitted[id], "/event_type")).collect();
    kinds.dedup();
    assert_eq!(kinds.len(), 4, "one output after the other: {kinds:?}");
}

#[tokio::test]
async fn a_stopped_streamer_resumes_from_its_checkpoint() {
    let world = World::synthetic(40, 15).traffic_only();
    world.announce().await;
    let stop = CancellationToken::new();
    let gate = Arc::new(BlockingGate::default());
    let mut one = world.streamer_at(Arc::clone(&gate) as Arc<dyn EnvelopeTarget>);
    let halt = async {
        gate.arrived.notified().await;
        stop.cancel();
        gate.go.notify_one();
    };
    let (cycle, ()) = tokio::join!(one.cycle(&stop), halt);
    let outcome = &cycle.unwrap().outcomes[0];
    assert_eq!(outcome.status, ReadyStatus::Stopped);
    assert_eq!(world.record(&id('a')), Vec::<String>::new());
    let first = gate.inner.ids();
    assert!(first.len() < 40, "{}", first.len());
    let outcome = world.one().await;
    assert_eq!((outcome.status, outcome.streamed.emitted()), (ReadyStatus::Streamed, 40));
    let both = first.len() + world.gate.ids().len();
    assert!((40..=50).contains(&both), "{both}: at most one window is repeated");
}
