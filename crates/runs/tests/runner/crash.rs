//! Crash tests: a runner stops before any of its write operations, and another one resumes the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put};
use admit_bus::{
    Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchQuery, SearchResult,
    StoredMessage,
};
use admit_core::{Fault, FaultKind, Millis, ScenarioState};
use admit_ledger::BoxFuture;
use admit_ledger::scenario_runs::{
    OpenRunRequest, OpenRunResult, PublicationState, RunLease, RunUpdate, RunUpdateError,
    ScenarioRun, ScenarioRunReader, ScenarioRuns, TakeLeaseResult,
};
use admit_runs::runner::Runner;
use bytes::Bytes;

use crate::world::{RUN, World};

/// Number of write operations until the simulated crash.
struct OperationBudget(AtomicUsize);

impl OperationBudget {
    fn spend(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// Port that fails after the simulated crash.
struct CrashingPort<T: ?Sized> {
    budget: Arc<OperationBudget>,
    inner: Arc<T>,
}

fn crashed() -> Fault {
    Fault::new(FaultKind::LedgerUnavailable, "simulated crash")
}

fn crashed_store() -> ArtifactsError {
    ArtifactsError::ReadOnly
}

type PortFuture<'a, T> = BoxFuture<'a, Result<T, Fault>>;

impl CrashingPort<dyn ScenarioRuns> {
    fn if_alive<'a, T: Send + 'a>(&'a self, work: PortFuture<'a, T>) -> PortFuture<'a, T> {
        if self.budget.spend() { work } else { Box::pin(async { Err(crashed()) }) }
    }
}

impl ScenarioRunReader for CrashingPort<dyn ScenarioRuns> {
    fn scenario_run(&self, run_id: String) -> PortFuture<'_, Option<ScenarioRun>> {
        self.inner.scenario_run(run_id)
    }

    fn unfinished_runs(&self, after: String, rows_max: usize) -> PortFuture<'_, Vec<String>> {
        self.inner.unfinished_runs(after, rows_max)
    }

    fn final_runs(&self, after: String, rows_max: usize) -> PortFuture<'_, Vec<String>> {
        self.inner.final_runs(after, rows_max)
    }
}

impl ScenarioRuns for CrashingPort<dyn ScenarioRuns> {
    fn open_run(&self, opening: OpenRunRequest) -> PortFuture<'_, OpenRunResult> {
        self.if_alive(self.inner.open_run(opening))
    }

    fn take_lease(&self, lease: RunLease) -> PortFuture<'_, TakeLeaseResult> {
        self.if_alive(self.inner.take_lease(lease))
    }

    fn release_lease(&self, name: String, token: String, at: Millis) -> PortFuture<'_, ()> {
        self.if_alive(self.inner.release_lease(name, token, at))
    }

    fn update_run(&self, update: RunUpdate) -> PortFuture<'_, Result<(), RunUpdateError>> {
        self.if_alive(self.inner.update_run(update))
    }

    fn note_shown(&self, run_id: String, version: u64) -> PortFuture<'_, ()> {
        self.if_alive(self.inner.note_shown(run_id, version))
    }
}

impl Artifacts for CrashingPort<dyn Artifacts> {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        // File by file: a crash may happen between two of them.
        Box::pin(async move {
            let mut puts = Vec::new();
            for file in files {
                puts.push(match self.budget.spend() {
                    true => self.inner.put_if_absent(vec![file]).await.remove(0),
                    false => Err(crashed_store()),
                });
            }
            puts
        })
    }

    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        self.inner.get(path)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        self.inner.list(prefix, after, rows_max)
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        if self.budget.spend() {
            return self.inner.append_lines(path, lines, markers);
        }
        Box::pin(async move { lines.iter().map(|_| Err(crashed_store())).collect() })
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(async move {
            let mut puts = Vec::new();
            for file in files {
                puts.push(match self.budget.spend() {
                    true => self.inner.restore(vec![file]).await.remove(0),
                    false => Err(crashed_store()),
                });
            }
            puts
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        if self.budget.spend() {
            return self.inner.sync();
        }
        Box::pin(async { Err(crashed_store()) })
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.inner.probe(path, bytes)
    }
}

impl Bus for CrashingPort<dyn Bus> {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        if self.budget.spend() {
            return self.inner.publish(batch);
        }
        let reason = "simulated crash".to_owned();
        Box::pin(async move {
            batch.iter().map(|_| PublishOutcome::Unknown { reason: reason.clone() }).collect()
        })
    }

    fn find(&self, sought: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        self.inner.find(sought)
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        self.inner.read(topic, partition, from, rows_max)
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        self.inner.health(topics)
    }

    fn offset_kind(&self) -> OffsetKind {
        self.inner.offset_kind()
    }

    fn delivery_timeout(&self) -> std::time::Duration {
        self.inner.delivery_timeout()
    }
}

/// Submits with a runner that crashes after `operations` writes. Returns whether it finished before.
async fn submit_until_crash(world: &World, operations: usize) -> bool {
    let budget = Arc::new(OperationBudget(AtomicUsize::new(operations)));
    let mut parts = world.parts();
    parts.ledger = Arc::new(CrashingPort { budget: budget.clone(), inner: parts.ledger });
    parts.artifacts = Arc::new(CrashingPort { budget: budget.clone(), inner: parts.artifacts });
    parts.bus = Arc::new(CrashingPort { budget: budget.clone(), inner: parts.bus });
    let submitted = Runner::new(parts).submit(world.request()).await;
    // A failed release of the lease does not fail the submit, but counts as a crash.
    submitted.is_ok() && budget.spend()
}

#[tokio::test]
async fn a_runner_may_crash_anywhere_and_the_next_one_resumes() {
    let (mut crashes, mut unknown) = (0, 0);
    loop {
        let world = World::new();
        if submit_until_crash(&world, crashes).await {
            break;
        }
        // The lease was not released; let it expire.
        world.advance(301);
        assert!(is_swept(&world).await, "after {crashes}: the sweep must find the run");
        let published = world.messages().await.len();
        let status = world.submit().await;
        assert_eq!(status.run.state, ScenarioState::Ready, "after {crashes}");
        world.check_files().await;
        let states: Vec<_> = status.run.publications.iter().map(|attempt| attempt.state).collect();
        if states == [PublicationState::Unknown] {
            unknown += 1;
            assert_eq!(world.messages().await.len(), published, "after {crashes}: not repeated");
        } else {
            assert_eq!(states, [PublicationState::Published], "after {crashes}");
            assert_eq!(world.messages().await.len(), 1, "after {crashes}");
        }
        let again = world.submit().await;
        assert_eq!(again.run, status.run, "after {crashes}: nothing is left to do");
        crashes += 1;
    }
    assert!(crashes > 20, "{crashes} crash points");
    assert_eq!(unknown, 2, "only before and after the bus has the message");
}

/// Whether the run is either done or listed as unfinished.
async fn is_swept(world: &World) -> bool {
    let run = world.ledger.scenario_run(RUN.to_owned()).await.expect("readable");
    let Some(run) = run else { return true };
    let is_published =
        run.publications.iter().any(|attempt| attempt.state != PublicationState::InFlight);
    let is_done = run.state == ScenarioState::Ready && is_published && run.shown == run.version;
    let listed = world.ledger.unfinished_runs(String::new(), 10).await.expect("readable");
    is_done || listed == [RUN]
}

#[tokio::test]
async fn the_sweep_resumes_the_run_of_a_crashed_runner() {
    for operations in [2, 9, 14, 20] {
        let world = World::new();
        assert!(!submit_until_crash(&world, operations).await, "{operations}");
        world.advance(301);
        assert_eq!(world.runner().sweep_unfinished().await.expect("readable"), 1, "{operations}");
        assert_eq!(world.run().await.state, ScenarioState::Ready, "{operations}");
        world.check_files().await;
    }
}
