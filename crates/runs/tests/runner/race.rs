//! Two runners, one run.

use std::sync::Arc;

use admit_core::ScenarioState;
use admit_ledger::scenario_runs::{PublicationState, RunLease, ScenarioRuns as _, TakeLeaseResult};
use futures_util::future::join_all;

use crate::world::{RUN, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_runners_at_once_one_leads_and_ready_is_said_once() {
    let world = World::new();
    let submits = (0..8).map(|_| {
        let (runner, request) = (Arc::new(world.runner()), world.request());
        let tasks = tokio_util::task::TaskTracker::new();
        tasks.spawn(async move { runner.submit(request).await })
    });
    let mut led = 0;
    for standing in join_all(submits).await {
        let standing = standing.expect("it ends").expect("the runner answers");
        assert_eq!(standing.run.run_id, RUN);
        led += usize::from(!standing.message.starts_with("Lease held by another runner"));
    }
    assert!(led >= 1, "somebody led");
    let run = world.submit().await.run;
    assert_eq!(run.state, ScenarioState::Ready);
    let states: Vec<_> = run.publications.iter().map(|said| said.state).collect();
    assert_eq!(states, [PublicationState::Published]);
    assert_eq!(world.said().await.len(), 1);
    world.check_files().await;
}

#[tokio::test]
async fn whoever_does_not_lead_is_told_how_the_run_stands() {
    let world = World::new();
    std::fs::remove_file(world.pack().join("run_receipt.json")).expect("it goes");
    world.submit().await;
    let lease = RunLease {
        name: RUN.to_owned(),
        owner: "somebody".to_owned(),
        token: "theirs".to_owned(),
        at: world.advance(1),
        ttl_ms: 300_000,
    };
    let taken = world.ledger.take_lease(lease).await.expect("it answers");
    assert_eq!(taken, TakeLeaseResult::Taken);
    let standing = world.submit().await;
    assert!(standing.message.starts_with("Lease held by another runner"), "{}", standing.message);
    assert_eq!(standing.run.state, ScenarioState::WaitingEvidence);
    world.advance(300);
    let standing = world.submit().await;
    assert!(!standing.message.starts_with("Lease"), "it expired: {}", standing.message);
}
