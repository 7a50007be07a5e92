//! Concurrent runners of one run.

use std::sync::Arc;

use admit_core::ScenarioState;
use admit_ledger::scenario_runs::{PublicationState, RunLease, ScenarioRuns as _, TakeLeaseResult};
use futures_util::future::join_all;

use crate::world::{RUN, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_concurrent_runners_one_holds_the_lease_and_ready_is_published_once() {
    let world = World::new();
    let submits = (0..8).map(|_| {
        let (runner, request) = (Arc::new(world.runner()), world.request());
        let tasks = tokio_util::task::TaskTracker::new();
        tasks.spawn(async move { runner.submit(request).await })
    });
    let mut advanced = 0;
    for status in join_all(submits).await {
        let status = status.expect("no panic").expect("submitted");
        assert_eq!(status.run.run_id, RUN);
        advanced += usize::from(!status.message.starts_with("Lease held by another runner"));
    }
    assert!(advanced >= 1, "one runner held the lease");
    let run = world.submit().await.run;
    assert_eq!(run.state, ScenarioState::Ready);
    let states: Vec<_> = run.publications.iter().map(|attempt| attempt.state).collect();
    assert_eq!(states, [PublicationState::Published]);
    assert_eq!(world.messages().await.len(), 1);
    world.check_files().await;
}

#[tokio::test]
async fn a_submit_without_the_lease_returns_the_state_of_the_run() {
    let world = World::new();
    std::fs::remove_file(world.pack().join("run_receipt.json")).expect("removed");
    world.submit().await;
    let lease = RunLease {
        name: RUN.to_owned(),
        owner: "another runner".to_owned(),
        token: "theirs".to_owned(),
        at: world.advance(1),
        ttl_ms: 300_000,
    };
    let taken = world.ledger.take_lease(lease).await.expect("leased");
    assert_eq!(taken, TakeLeaseResult::Taken);
    let status = world.submit().await;
    assert!(status.message.starts_with("Lease held by another runner"), "{}", status.message);
    assert_eq!(status.run.state, ScenarioState::WaitingEvidence);
    world.advance(300);
    let status = world.submit().await;
    assert!(!status.message.starts_with("Lease"), "it expired: {}", status.message);
}
