//! Files that are written behind the reply: whatever the store does, nothing is lost, and producers
//! are held back before too much waits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admit_artifacts::local::LocalArtifacts;
use admit_artifacts::{Artifacts, ArtifactsError, BoxFuture, File, Line, Markers, Put};
use admit_gate::ingest::{IngestSettings, WriteBehind};
use admit_ledger::DocumentReader as _;
use bytes::Bytes;
use serde_json::Value;

use crate::client::{Client, get};
use crate::ingest::{RUN, World, envelope, gist, patient};

/// A store that can be away.
struct Away {
    store: LocalArtifacts,
    is_down: Arc<AtomicBool>,
}

impl Away {
    fn there(&self) -> Result<(), ArtifactsError> {
        if !self.is_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::ConnectionRefused, "away");
        Err(ArtifactsError::Store { doing: "reach", path: "the store".to_owned(), source })
    }

    /// The same answer for each, when it is away.
    fn each<T>(&self, asked: usize) -> Option<Vec<Result<T, ArtifactsError>>> {
        self.there().err()?;
        Some(
            (0..asked).map(|_| self.there().and_then(|()| Err(ArtifactsError::ReadOnly))).collect(),
        )
    }
}

impl Artifacts for Away {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        match self.each(files.len()) {
            Some(away) => Box::pin(std::future::ready(away)),
            None => self.store.put_if_absent(files),
        }
    }

    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Bytes>, ArtifactsError>> {
        self.store.get(path)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<String>,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<String>, ArtifactsError>> {
        self.store.list(prefix, after, rows_max)
    }

    fn append_lines(
        &self,
        path: &str,
        lines: Vec<Line>,
        markers: Markers,
    ) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        match self.each(lines.len()) {
            Some(away) => Box::pin(std::future::ready(away)),
            None => self.store.append_lines(path, lines, markers),
        }
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        match self.each(files.len()) {
            Some(away) => Box::pin(std::future::ready(away)),
            None => self.store.restore(files),
        }
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.store.sync()
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        match self.there() {
            Ok(()) => self.store.probe(path, bytes),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

async fn behind(documents_max: usize, room_wait: Duration) -> (World, Arc<AtomicBool>) {
    let settings = IngestSettings {
        behind: Some(WriteBehind { documents_max, room_wait }),
        sync_every: Duration::from_millis(10),
        ..patient()
    };
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let world = World::on(settings, |store| Arc::new(Away { store, is_down: down })).await;
    (world, is_down)
}

/// The files of receipts that a delivery was told of, where they would be.
fn receipts(world: &World) -> PathBuf {
    world.folder.path().join("artifacts").join(RUN).join("ig/receipts")
}

fn files(world: &World) -> usize {
    std::fs::read_dir(receipts(world)).map_or(0, Iterator::count)
}

async fn waiting(world: &World) -> u64 {
    let page = Client::connect(world.address).await.ask(get("/metrics")).await;
    let text = page.body;
    let line = text.lines().find(|line| line.starts_with("admit_artifacts_waiting ")).expect("one");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_does_not_wait_for_a_store_that_is_away_and_the_files_come_later() {
    let (world, is_down) = behind(100, Duration::from_secs(5)).await;
    is_down.store(true, Ordering::SeqCst);
    for n in 0..20 {
        assert_eq!(gist(&world.push(&envelope(n)).await), "ADMIT");
    }
    assert_eq!(files(&world), 0);
    let (synced, newest) = world.ledger.synced().await.expect("readable");
    assert!(synced < newest, "what is not there is restored by the next start");
    assert!(waiting(&world).await >= 20);
    while world.ledger.unwritten(0, 10).await.expect("readable").is_empty() {
        tokio::task::yield_now().await;
    }
    is_down.store(false, Ordering::SeqCst);
    loop {
        let (synced, newest) = world.ledger.synced().await.expect("readable");
        if synced == newest {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(files(&world), 20);
    assert_eq!(waiting(&world).await, 0);
    while !world.ledger.unwritten(0, 10).await.expect("readable").is_empty() {
        tokio::task::yield_now().await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_files_behind_hold_producers_back_and_are_written_all_the_same() {
    let (world, is_down) = behind(2, Duration::from_millis(50)).await;
    is_down.store(true, Ordering::SeqCst);
    let mut refused = 0;
    for n in 0..8 {
        let answer = world.push(&envelope(n)).await;
        let said: Value = answer.json();
        match said["decision"].as_str() {
            Some(decision) => assert_eq!(decision, "ADMIT"),
            None => {
                assert_eq!(answer.status, 503, "{said}");
                refused += 1;
            }
        }
    }
    assert!((1..8).contains(&refused), "{refused}");
    is_down.store(false, Ordering::SeqCst);
    while files(&world) < 8 {
        tokio::task::yield_now().await;
    }
    for n in 0..8 {
        // Two may wait; whoever comes while they do is told to send it again, and does.
        let answer = loop {
            let answer = world.push(&envelope(n)).await;
            if answer.status != 503 {
                break answer;
            }
        };
        assert_eq!(gist(&answer), "DUPLICATE DUPLICATE", "every decision stood");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_ends_writes_what_waits_and_gives_up_on_a_store_that_is_away() {
    let (world, _) = behind(100, Duration::from_secs(5)).await;
    for n in 0..20 {
        assert_eq!(gist(&world.push(&envelope(n)).await), "ADMIT");
    }
    let (ledger, receipts) = (Arc::clone(&world.ledger), receipts(&world));
    let folder = world.end_keeping().await;
    assert_eq!(std::fs::read_dir(receipts).expect("a folder").count(), 20);
    let (synced, newest) = ledger.synced().await.expect("readable");
    assert_eq!(synced, newest);
    drop(folder);

    let (world, is_down) = behind(100, Duration::from_secs(5)).await;
    is_down.store(true, Ordering::SeqCst);
    assert_eq!(gist(&world.push(&envelope(1)).await), "ADMIT");
    let ledger = Arc::clone(&world.ledger);
    let folder = world.end_keeping().await;
    let (synced, newest) = ledger.synced().await.expect("readable");
    assert!(synced < newest, "the next start restores it");
    drop(folder);
}
