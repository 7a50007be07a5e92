//! Crash tests: after a crash at any push and a restart, the same set is admitted, and at most one window
//! is sent twice.
//!
//! A child process streams to a gate that stores admissions in a file. The gate aborts the process at a
//! certain push: before admitting, or after admitting and before replying.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_runs::streamer::ReadyStatus;
use admit_runs::streamer::gate::{BoxFuture, EnvelopeTarget, PushResult};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::world::{World, member};

const ROWS: u64 = 11;
const WINDOW: u64 = 4;
/// Environment variable of the child: the push to crash at, and the folder.
const CHILD: &str = "STREAMER_CRASH_CHILD";

/// A gate that stores event ids in a file, one per line, and may abort its process.
struct FileGate {
    path: PathBuf,
    pushes: AtomicUsize,
    crash_at: Option<(usize, bool)>,
}

impl FileGate {
    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl EnvelopeTarget for FileGate {
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, PushResult> {
        let push = self.pushes.fetch_add(1, SeqCst) + 1;
        if self.crash_at == Some((push, false)) {
            std::process::abort();
        }
        let id = member(&envelope, "/event_id");
        let is_known = Self::lines(&self.path).contains(&id);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path).unwrap();
        writeln!(file, "{id}").unwrap();
        if self.crash_at == Some((push, true)) {
            std::process::abort();
        }
        let decision = if is_known { ReceiptDecision::Duplicate } else { ReceiptDecision::Admit };
        Box::pin(async move { PushResult::Decided(decision) })
    }

    fn alive(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

async fn stream(world: &World, folder: &Path, crash_at: Option<(usize, bool)>) -> ReadyStatus {
    let path = folder.join("admitted");
    let gate = Arc::new(FileGate { path, pushes: AtomicUsize::new(0), crash_at });
    let cycle = world.streamer_at(gate).cycle(&CancellationToken::new()).await.unwrap();
    cycle.outcomes[0].status
}

fn prepared(mut world: World) -> World {
    world.settings.checkpoint_every = WINDOW;
    world.settings.in_flight = 2;
    world.traffic_only()
}

#[test]
fn a_crash_at_any_push_loses_nothing_and_repeats_at_most_one_window() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for is_after in [false, true] {
        for push in 1..=usize::try_from(ROWS).unwrap() {
            let world = prepared(World::synthetic(ROWS, 7));
            runtime.block_on(world.announce());
            let folder = world.folder.path();
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "crash::child", "--nocapture"])
                .env(CHILD, format!("{push} {is_after} {}", folder.display()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert!(!child.success(), "the child must crash at push {push}");
            // READY and facts are from this process; checkpoints, records and admissions from the child.
            let ended = runtime.block_on(stream(&world, folder, None));
            assert_eq!(ended, ReadyStatus::Streamed, "push {push}, after {is_after}");
            let lines = FileGate::lines(&folder.join("admitted"));
            let set: BTreeSet<&String> = lines.iter().collect();
            assert_eq!(set.len() as u64, ROWS, "push {push}, after {is_after}");
            let repeated = (lines.len() - set.len()) as u64;
            assert!(repeated <= WINDOW, "{repeated} repeated, push {push}, after {is_after}");
        }
    }
}

/// Not a test: entry point of the child process.
#[test]
fn child() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = arguments.splitn(3, ' ').collect();
    let crash_at = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let folder = Path::new(words[2]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = prepared(World::inside(folder));
    world.control.send(world.ready(&crate::world::id('a')));
    runtime.block_on(stream(&world, folder, Some(crash_at)));
}
