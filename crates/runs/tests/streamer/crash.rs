//! Killed anywhere, started again: the same set is admitted, and no more than one window twice.
//!
//! A child process streams to a gate that keeps what it admits in a file, and that kills the process
//! at one push or another: before it admits, or after it has and before its answer is heard.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_runs::streamer::Status;
use admit_runs::streamer::gate::{BoxFuture, Gate, PushResult};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::world::{World, member};

const ROWS: u64 = 11;
const WINDOW: u64 = 4;
/// Tells the child where everything is, and when to die.
const CHILD: &str = "STREAMER_CRASH_CHILD";

/// A gate in a file, one event id a line, that may kill its process.
struct FileGate {
    path: PathBuf,
    pushes: AtomicUsize,
    die: Option<(usize, bool)>,
}

impl FileGate {
    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Gate for FileGate {
    fn push(&self, envelope: Bytes) -> BoxFuture<'_, PushResult> {
        let push = self.pushes.fetch_add(1, SeqCst) + 1;
        if self.die == Some((push, false)) {
            std::process::abort();
        }
        let id = member(&envelope, "/event_id");
        let is_known = Self::lines(&self.path).contains(&id);
        let mut file = OpenOptions::new().append(true).create(true).open(&self.path).unwrap();
        writeln!(file, "{id}").unwrap();
        if self.die == Some((push, true)) {
            std::process::abort();
        }
        let decision = if is_known { ReceiptDecision::Duplicate } else { ReceiptDecision::Admit };
        Box::pin(async move { PushResult::Decided(decision) })
    }

    fn alive(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}

async fn stream(world: &World, folder: &Path, die: Option<(usize, bool)>) -> Status {
    let path = folder.join("admitted");
    let gate = Arc::new(FileGate { path, pushes: AtomicUsize::new(0), die });
    let cycle = world.streamer_at(gate).cycle(&CancellationToken::new()).await.unwrap();
    cycle.outcomes[0].status
}

fn prepared(mut world: World) -> World {
    world.settings.checkpoint_every = WINDOW;
    world.settings.in_flight = 2;
    world.traffic_only()
}

#[test]
fn killed_at_any_push_it_admits_the_same_and_repeats_at_most_a_window() {
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
            assert!(!child.success(), "the child must die at push {push}");
            // READY and facts are this process's; checkpoints, records and admissions are the child's.
            let ended = runtime.block_on(stream(&world, folder, None));
            assert_eq!(ended, Status::Streamed, "push {push}, after {is_after}");
            let lines = FileGate::lines(&folder.join("admitted"));
            let set: BTreeSet<&String> = lines.iter().collect();
            assert_eq!(set.len() as u64, ROWS, "push {push}, after {is_after}");
            let twice = (lines.len() - set.len()) as u64;
            assert!(twice <= WINDOW, "{twice} twice, push {push}, after {is_after}");
        }
    }
}

/// Not a test of its own: what the child process runs.
#[test]
fn child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = told.splitn(3, ' ').collect();
    let die = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let folder = Path::new(words[2]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = prepared(World::inside(folder));
    world.control.send(world.ready(&crate::world::id('a')));
    runtime.block_on(stream(&world, folder, Some(die)));
}
