//! Test environment of a streamer: a pack, facts, READY messages, and a recording gate.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use admit_artifacts::local::{self, LocalArtifacts};
use admit_artifacts::{Artifacts as _, File};
use admit_bus::{BoxFuture, BusError, OffsetKind, Reference, StoredMessage};
use admit_contracts::ingestion_gate::{ArtifactPaths, ReceiptDecision};
use admit_core::json::{self, Limits, Value};
use admit_core::{Clock, Millis};
use admit_runs::streamer::checkpoint::FileCheckpoints;
use admit_runs::streamer::control::Control;
use admit_runs::streamer::gate::{BoxFuture as GateFuture, EnvelopeTarget, PushResult};
use admit_runs::streamer::pack::store::{Disk, PackStore};
use admit_runs::streamer::progress::StreamProgress;
use admit_runs::streamer::records::ReadyRecords;
use admit_runs::streamer::{Cycle, CycleOutcome, Settings, Streamer, StreamerParts};
use bytes::Bytes;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::synthetic::{self, SyntheticPack, copy};

pub(crate) const RUN: &str = "platform_20260212T085637Z";
pub(crate) const FACTS: &str = "fraud-platform/platform_20260212T085637Z/sr/run_facts_view/1.json";

/// The golden pack.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engine_run")
}

/// A message id of one repeated digit.
pub(crate) fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A clock that advances by a millisecond with each read.
#[derive(Default)]
pub(crate) struct TickingClock(AtomicI64);

impl Clock for TickingClock {
    fn now(&self) -> Millis {
        Millis(1_770_886_597_000 + self.0.fetch_add(1, SeqCst))
    }
}

/// Control bus in memory.
#[derive(Default)]
pub(crate) struct FakeControlBus {
    all: Mutex<Vec<Bytes>>,
    /// Offsets of all reads.
    pub(crate) read_from: Mutex<Vec<String>>,
}

impl FakeControlBus {
    pub(crate) fn send(&self, message: impl Into<Bytes>) {
        self.all.lock().unwrap().push(message.into());
    }
}

impl Control for FakeControlBus {
    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let topic = topic.to_owned();
        if partition > 0 {
            return Box::pin(async move { Err(BusError::NoSuchPartition { topic, partition }) });
        }
        self.read_from.lock().unwrap().push(from.to_owned());
        let first: usize = if from.is_empty() { 0 } else { from.parse().expect("an offset") };
        let all = self.all.lock().unwrap();
        let records = all.iter().enumerate().skip(first).take(rows_max).map(|(line, payload)| {
            StoredMessage {
                reference: Reference {
                    topic: topic.clone(),
                    partition,
                    offset: line.to_string(),
                    offset_kind: OffsetKind::FileLine,
                    published_at: None,
                },
                partition_key: "r".to_owned(),
                dedupe_key: None,
                payload: payload.clone(),
            }
        });
        let records = Ok(records.collect());
        Box::pin(async move { records })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::FileLine
    }
}

/// A gate that admits new events, unless scripted otherwise.
#[derive(Default)]
pub(crate) struct FakeGate {
    /// Bodies by event id.
    pub(crate) admitted: Mutex<BTreeMap<String, Bytes>>,
    /// Event ids in order of arrival, including duplicates.
    pub(crate) arrived: Mutex<Vec<String>>,
    /// Scripted results, one per push.
    pub(crate) script: Mutex<VecDeque<PushResult>>,
    /// Reason of a failing health check, if any.
    pub(crate) unhealthy: Mutex<Option<String>>,
    /// Concurrent pushes now, and their maximum.
    pub(crate) concurrent: AtomicUsize,
    pub(crate) concurrent_max: AtomicUsize,
}

impl FakeGate {
    pub(crate) fn ids(&self) -> Vec<String> {
        self.admitted.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn pushes(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }

    pub(crate) fn duplicates(&self) -> usize {
        self.pushes() - self.admitted.lock().unwrap().len()
    }

    fn decide(&self, body: Bytes) -> PushResult {
        if let Some(scripted) = self.script.lock().unwrap().pop_front() {
            return scripted;
        }
        let id = member(&body, "/event_id");
        self.arrived.lock().unwrap().push(id.clone());
        let previous = self.admitted.lock().unwrap().insert(id, body.clone());
        match previous {
            None => PushResult::Decided(ReceiptDecision::Admit),
            Some(first) if first == body => PushResult::Decided(ReceiptDecision::Duplicate),
            Some(_) => PushResult::Decided(ReceiptDecision::Quarantine),
        }
    }
}

impl EnvelopeTarget for FakeGate {
    fn push(&self, envelope: Bytes) -> GateFuture<'_, PushResult> {
        Box::pin(async move {
            let now = self.concurrent.fetch_add(1, SeqCst) + 1;
            self.concurrent_max.fetch_max(now, SeqCst);
            tokio::task::yield_now().await;
            let pushed = self.decide(envelope);
            self.concurrent.fetch_sub(1, SeqCst);
            pushed
        })
    }

    fn alive(&self) -> GateFuture<'_, Result<(), String>> {
        let unhealthy = self.unhealthy.lock().unwrap().clone();
        Box::pin(async move { unhealthy.map_or(Ok(()), Err) })
    }
}

/// A string or number in a JSON body.
pub(crate) fn member(body: &[u8], pointer: &str) -> String {
    let value = json::parse(body, &Limits::default()).expect("json");
    match value.pointer(pointer) {
        Some(Value::String(text)) => text.to_string(),
        Some(Value::Int(digits)) => digits.to_string(),
        other => panic!("{pointer}: {other:?}"),
    }
}

/// A temporary folder, or a folder of the parent process that is not removed.
pub(crate) enum Folder {
    Owned(TempDir),
    Borrowed(PathBuf),
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Owned(folder) => folder.path(),
            Self::Borrowed(folder) => folder,
        }
    }
}

/// Environment of a streamer, in one folder.
pub(crate) struct World {
    pub(crate) folder: Folder,
    pub(crate) pack: PathBuf,
    pub(crate) gate: Arc<FakeGate>,
    pub(crate) control: Arc<FakeControlBus>,
    pub(crate) settings: Settings,
    /// Folder of checkpoints, below `folder`.
    pub(crate) data: &'static str,
}

impl World {
    /// A copy of the golden pack.
    pub(crate) fn golden() -> Self {
        let world = Self::empty();
        copy(&golden(), &world.pack).expect("copied");
        world
    }

    /// A synthetic pack with this many rows in each output.
    pub(crate) fn synthetic(rows: u64, part_rows: u64) -> Self {
        let world = Self::empty();
        let pack = SyntheticPack { rows, part_rows, group_rows: 7, seed: 3, per_flow: 3 };
        pack.write(&world.pack, &golden()).expect("written");
        world
    }

    /// The environment that another process created in this folder.
    pub(crate) fn inside(folder: &Path) -> Self {
        Self::at(Folder::Borrowed(folder.to_owned()))
    }

    fn empty() -> Self {
        Self::at(Folder::Owned(tempfile::tempdir().expect("a folder")))
    }

    fn at(folder: Folder) -> Self {
        Self {
            pack: folder.path().join("pack"),
            folder,
            gate: Arc::default(),
            control: Arc::default(),
            settings: Settings { speedup: 0.0, ..Settings::default() },
            data: "data",
        }
    }

    /// Restricts the streamer to the traffic output.
    pub(crate) fn traffic_only(mut self) -> Self {
        self.settings.outputs = vec!["s3_event_stream_with_fraud_6B".to_owned()];
        self
    }

    pub(crate) fn root(&self) -> String {
        self.pack.to_string_lossy().into_owned()
    }

    /// Facts as their runner would commit them.
    pub(crate) fn facts(&self) -> String {
        synthetic::facts(RUN, &self.root())
    }

    /// A READY with this message id.
    pub(crate) fn ready(&self, message_id: &str) -> String {
        synthetic::ready(RUN, FACTS, &self.root(), message_id)
    }

    /// Commits facts and sends READY.
    pub(crate) async fn announce(&self) {
        self.commit_facts(&self.facts()).await;
        self.control.send(self.ready(&id('a')));
    }

    pub(crate) async fn commit_facts(&self, facts: &str) {
        let file = File::new(FACTS, facts.to_owned());
        for put in self.artifacts().put_if_absent(vec![file]).await {
            put.expect("put");
        }
    }

    pub(crate) fn artifacts(&self) -> LocalArtifacts {
        let root = self.folder.path().join("artifacts");
        LocalArtifacts::open(local::Options::new(root)).expect("artifacts")
    }

    pub(crate) fn checkpoints(&self) -> FileCheckpoints {
        FileCheckpoints::open(&self.folder.path().join(self.data)).expect("checkpoints")
    }

    pub(crate) fn streamer(&self) -> Streamer {
        self.streamer_at(Arc::clone(&self.gate) as Arc<dyn EnvelopeTarget>)
    }

    pub(crate) fn streamer_at(&self, gate: Arc<dyn EnvelopeTarget>) -> Streamer {
        Streamer::new(StreamerParts {
            settings: Arc::new(self.settings.clone()),
            control: Arc::clone(&self.control) as Arc<dyn Control>,
            records: ReadyRecords::new(
                Arc::new(self.artifacts()),
                ArtifactPaths::local("artifacts"),
            ),
            checkpoints: Arc::new(self.checkpoints()),
            gate,
            packs: Arc::new(|location: &str| {
                Ok(Arc::new(Disk::new(location)) as Arc<dyn PackStore>)
            }),
            sessions: self.folder.path().join(self.data).join("stream"),
            clock: Arc::new(TickingClock::default()),
            chance: Arc::new(|| 0.0),
            progress: StreamProgress::default(),
        })
    }

    /// One cycle of a new streamer.
    pub(crate) async fn cycle(&self) -> Cycle {
        self.streamer().cycle(&CancellationToken::new()).await.expect("a cycle")
    }

    /// The outcome of the only READY, with a new streamer.
    pub(crate) async fn one(&self) -> CycleOutcome {
        let mut outcomes = self.cycle().await.outcomes;
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        outcomes.remove(0)
    }

    /// Statuses and reasons in the record of a message.
    pub(crate) fn record(&self, message_id: &str) -> Vec<String> {
        let path = format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs/{message_id}.jsonl");
        let text = fs::read_to_string(self.folder.path().join(path)).unwrap_or_default();
        let summary = |line: &str| {
            let value = json::parse(line.as_bytes(), &Limits::default()).expect("a line");
            let text = |name| value.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
            let emitted = value.get("emitted").and_then(Value::as_u64).expect("emitted");
            format!("{} {} {emitted}", text("status"), text("reason"))
        };
        text.lines().map(summary).collect()
    }

    /// Kinds of lines in the session log.
    pub(crate) fn session(&self) -> Vec<String> {
        let path = self.folder.path().join(self.data).join(format!("stream/{RUN}/session.jsonl"));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| member(line.as_bytes(), "/kind")).collect()
    }
}
