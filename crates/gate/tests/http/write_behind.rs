//! Write-behind of artifact files: no file is lost when the store is unavailable, and producers are refused
//! when the queue is full.

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
use crate::ingest::{IngestServer, RUN, envelope, outcome, patient_settings};

/// Artifact store that can be made unavailable.
struct UnavailableStore {
    store: LocalArtifacts,
    is_down: Arc<AtomicBool>,
}

impl UnavailableStore {
    fn check(&self) -> Result<(), ArtifactsError> {
        if !self.is_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::ConnectionRefused, "unavailable");
        Err(ArtifactsError::Store { doing: "reach", path: "the store".to_owned(), source })
    }

    /// Returns `count` errors if the store is unavailable.
    fn errors<T>(&self, count: usize) -> Option<Vec<Result<T, ArtifactsError>>> {
        self.check().err()?;
        Some(
            (0..count).map(|_| self.check().and_then(|()| Err(ArtifactsError::ReadOnly))).collect(),
        )
    }
}

impl Artifacts for UnavailableStore {
    fn put_if_absent(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<Put, ArtifactsError>>> {
        match self.errors(files.len()) {
            Some(errors) => Box::pin(std::future::ready(errors)),
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
        match self.errors(lines.len()) {
            Some(errors) => Box::pin(std::future::ready(errors)),
            None => self.store.append_lines(path, lines, markers),
        }
    }

    fn restore(&self, files: Vec<File>) -> BoxFuture<'_, Vec<Result<(), ArtifactsError>>> {
        match self.errors(files.len()) {
            Some(errors) => Box::pin(std::future::ready(errors)),
            None => self.store.restore(files),
        }
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        self.store.sync()
    }

    fn probe(&self, path: &str, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactsError>> {
        match self.check() {
            Ok(()) => self.store.probe(path, bytes),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

async fn start(documents_max: usize, room_wait: Duration) -> (IngestServer, Arc<AtomicBool>) {
    let settings = IngestSettings {
        write_behind: Some(WriteBehind { documents_max, room_wait }),
        sync_every: Duration::from_millis(10),
        ..patient_settings()
    };
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let server =
        IngestServer::on(settings, |store| Arc::new(UnavailableStore { store, is_down: down }))
            .await;
    (server, is_down)
}

/// Returns the folder of the receipt files.
fn receipts(server: &IngestServer) -> PathBuf {
    server.folder.path().join("artifacts").join(RUN).join("ig/receipts")
}

fn files(server: &IngestServer) -> usize {
    std::fs::read_dir(receipts(server)).map_or(0, Iterator::count)
}

async fn waiting(server: &IngestServer) -> u64 {
    let page = Client::connect(server.address).await.request(get("/metrics")).await;
    let text = page.body;
    let line = text.lines().find(|line| line.starts_with("admit_artifacts_waiting ")).expect("one");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_do_not_wait_for_an_unavailable_store_and_its_files_are_written_later() {
    let (server, is_down) = start(100, Duration::from_secs(5)).await;
    is_down.store(true, Ordering::SeqCst);
    for n in 0..20 {
        assert_eq!(outcome(&server.push(&envelope(n)).await), "ADMIT");
    }
    assert_eq!(files(&server), 0);
    let (synced, newest) = server.ledger.synced().await.expect("readable");
    assert!(synced < newest, "the next start restores missing files");
    assert!(waiting(&server).await >= 20);
    while server.ledger.unwritten(0, 10).await.expect("readable").is_empty() {
        tokio::task::yield_now().await;
    }
    is_down.store(false, Ordering::SeqCst);
    loop {
        let (synced, newest) = server.ledger.synced().await.expect("readable");
        if synced == newest {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(files(&server), 20);
    assert_eq!(waiting(&server).await, 0);
    while !server.ledger.unwritten(0, 10).await.expect("readable").is_empty() {
        tokio::task::yield_now().await;
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_are_refused_while_too_many_files_wait_and_no_file_is_lost() {
    let (server, is_down) = start(2, Duration::from_millis(50)).await;
    is_down.store(true, Ordering::SeqCst);
    let mut refused = 0;
    for n in 0..8 {
        let response = server.push(&envelope(n)).await;
        let reply: Value = response.json();
        match reply["decision"].as_str() {
            Some(decision) => assert_eq!(decision, "ADMIT"),
            None => {
                assert_eq!(response.status, 503, "{reply}");
                refused += 1;
            }
        }
    }
    assert!((1..8).contains(&refused), "{refused}");
    is_down.store(false, Ordering::SeqCst);
    while files(&server) < 8 {
        tokio::task::yield_now().await;
    }
    for n in 0..8 {
        // Two may wait; others get 503 and are sent again.
        let response = loop {
            let response = server.push(&envelope(n)).await;
            if response.status != 503 {
                break response;
            }
        };
        assert_eq!(outcome(&response), "DUPLICATE DUPLICATE", "every decision is unchanged");
    }
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_writes_waiting_files_and_gives_up_on_an_unavailable_store() {
    let (server, _) = start(100, Duration::from_secs(5)).await;
    for n in 0..20 {
        assert_eq!(outcome(&server.push(&envelope(n)).await), "ADMIT");
    }
    let (ledger, receipts) = (Arc::clone(&server.ledger), receipts(&server));
    let folder = server.end_keeping().await;
    assert_eq!(std::fs::read_dir(receipts).expect("a folder").count(), 20);
    let (synced, newest) = ledger.synced().await.expect("readable");
    assert_eq!(synced, newest);
    drop(folder);

    let (server, is_down) = start(100, Duration::from_secs(5)).await;
    is_down.store(true, Ordering::SeqCst);
    assert_eq!(outcome(&server.push(&envelope(1)).await), "ADMIT");
    let ledger = Arc::clone(&server.ledger);
    let folder = server.end_keeping().await;
    let (synced, newest) = ledger.synced().await.expect("readable");
    assert!(synced < newest, "the next start restores it");
    drop(folder);
}
