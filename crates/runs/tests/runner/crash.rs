//! A runner that dies between any two of the things it does, and the one that comes after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put};
use admit_bus::{Bus, BusError, BusHealth, SearchResult, Message, OffsetKind, PublishOutcome, StoredMessage, SearchQuery};
use admit_core::{Fault, FaultKind, Millis, ScenarioState};
use admit_ledger::BoxFuture;
use admit_ledger::scenario_runs::{
    RunUpdate, RunUpdateError, OpenRunResult, OpenRunRequest, PublicationState, RunLease, ScenarioRun, ScenarioRunReader,
    ScenarioRuns, TakeLeaseResult,
};
use admit_runs::runner::Runner;
use bytes::Bytes;

use crate::world::{RUN, World};

/// How much of its life a process has left, in things that it does outside itself.
struct Life(AtomicUsize);

impl Life {
    fn spend(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// Anything, until the process is dead.
struct Mortal<T: ?Sized> {
    life: Arc<Life>,
    inner: Arc<T>,
}

fn dead() -> Fault {
    Fault::new(FaultKind::LedgerUnavailable, "the process is dead")
}

fn dead_store() -> ArtifactsError {
    ArtifactsError::ReadOnly
}

type Answer<'a, T> = BoxFuture<'a, Result<T, Fault>>;

impl Mortal<dyn ScenarioRuns> {
    fn then<'a, T: Send + 'a>(&'a self, work: Answer<'a, T>) -> Answer<'a, T> {
        if self.life.spend() { work } else { Box::pin(async { Err(dead()) }) }
    }
}

impl ScenarioRunReader for Mortal<dyn ScenarioRuns> {
    fn scenario_run(&self, run_id: String) -> Answer<'_, Option<ScenarioRun>> {
        self.inner.scenario_run(run_id)
    }

    fn unfinished_runs(&self, after: String, rows_max: usize) -> Answer<'_, Vec<String>> {
        self.inner.unfinished_runs(after, rows_max)
    }

    fn final_runs(&self, after: String, rows_max: usize) -> Answer<'_, Vec<String>> {
        self.inner.final_runs(after, rows_max)
    }
}

impl ScenarioRuns for Mortal<dyn ScenarioRuns> {
    fn open_run(&self, opening: OpenRunRequest) -> Answer<'_, OpenRunResult> {
        self.then(self.inner.open_run(opening))
    }

    fn take_lease(&self, lease: RunLease) -> Answer<'_, TakeLeaseResult> {
        self.then(self.inner.take_lease(lease))
    }

    fn release_lease(&self, name: String, token: String, at: Millis) -> Answer<'_, ()> {
        self.then(self.inner.release_lease(name, token, at))
    }

    fn update_run(&self, update: RunUpdate) -> Answer<'_, Result<(), RunUpdateError>> {
        self.then(self.inner.update_run(update))
    }

    fn note_shown(&self, run_id: String, version: u64) -> Answer<'_, ()> {
        self.then(self.inner.note_shown(run_id, version))
    }
}

impl Artifacts for Mortal<dyn Artifacts> {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        // File by file: a process may die between two of them.
        Box::pin(async move {
            let mut puts = Vec::new();
            for file in files {
                puts.push(match self.life.spend() {
                    true => self.inner.put_if_absent(vec![file]).await.remove(0),
                    false => Err(dead_store()),
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
        if self.life.spend() {
            return self.inner.append_lines(path, lines, markers);
        }
        Box::pin(async move { lines.iter().map(|_| Err(dead_store())).collect() })
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        Box::pin(async move {
            let mut puts = Vec::new();
            for file in files {
                puts.push(match self.life.spend() {
                    true => self.inner.restore(vec![file]).await.remove(0),
                    false => Err(dead_store()),
                });
            }
            puts
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        if self.life.spend() {
            return self.inner.sync();
        }
        Box::pin(async { Err(dead_store()) })
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.inner.probe(path, bytes)
    }
}

impl Bus for Mortal<dyn Bus> {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        if self.life.spend() {
            return self.inner.publish(batch);
        }
        let reason = "the process is dead".to_owned();
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

/// Submits with a runner that dies after so many things; whether it lived.
async fn dies_after(world: &World, things: usize) -> bool {
    let life = Arc::new(Life(AtomicUsize::new(things)));
    let mut parts = world.parts();
    parts.ledger = Arc::new(Mortal { life: life.clone(), inner: parts.ledger });
    parts.artifacts = Arc::new(Mortal { life: life.clone(), inner: parts.artifacts });
    parts.bus = Arc::new(Mortal { life: life.clone(), inner: parts.bus });
    let submitted = Runner::new(parts).submit(world.request()).await;
    // What is only given back does not count.
    submitted.is_ok() && life.spend()
}

#[tokio::test]
async fn a_runner_may_die_anywhere_and_the_next_one_goes_on() {
    let (mut deaths, mut unknown) = (0, 0);
    loop {
        let world = World::new();
        if dies_after(&world, deaths).await {
            break;
        }
        // Nobody gave its lease back.
        world.advance(301);
        assert!(is_looked_after(&world).await, "after {deaths}: somebody must go on");
        let said = world.said().await.len();
        let standing = world.submit().await;
        assert_eq!(standing.run.state, ScenarioState::Ready, "after {deaths}");
        world.check_files().await;
        let states: Vec<_> = standing.run.publications.iter().map(|said| said.state).collect();
        if states == [PublicationState::Unknown] {
            unknown += 1;
            assert_eq!(world.said().await.len(), said, "after {deaths}: nothing is said again");
        } else {
            assert_eq!(states, [PublicationState::Published], "after {deaths}");
            assert_eq!(world.said().await.len(), 1, "after {deaths}");
        }
        let again = world.submit().await;
        assert_eq!(again.run, standing.run, "after {deaths}: nothing is left to do");
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths} places to die");
    assert_eq!(unknown, 2, "only before and after the bus has it");
}

/// Whether a run that has something left to do is among those that are looked after.
async fn is_looked_after(world: &World) -> bool {
    let run = world.ledger.scenario_run(RUN.to_owned()).await.expect("it answers");
    let Some(run) = run else { return true };
    let said = run.publications.iter().any(|said| said.state != PublicationState::InFlight);
    let is_done = run.state == ScenarioState::Ready && said && run.shown == run.version;
    let listed = world.ledger.unfinished_runs(String::new(), 10).await.expect("it answers");
    is_done || listed == [RUN]
}

#[tokio::test]
async fn what_a_dead_runner_left_is_looked_after_without_being_asked() {
    for things in [2, 9, 14, 20] {
        let world = World::new();
        assert!(!dies_after(&world, things).await, "{things}");
        world.advance(301);
        assert_eq!(world.runner().look_after().await.expect("it answers"), 1, "{things}");
        assert_eq!(world.run().await.state, ScenarioState::Ready, "{things}");
        world.check_files().await;
    }
}
