//! Test environment of a runner: pack, ledger, artifacts, bus and clock, in a temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_artifacts::{Artifacts, path};
use admit_bus::Bus;
use admit_bus::file::{self, FileBus};
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_core::json::{self, Limits, Value};
use admit_core::{Clock, Millis};
use admit_ledger::scenario_runs::{ScenarioRun, ScenarioRuns};
use admit_ledger::sqlite::{Options, SqliteLedger};
use admit_runs::catalogue::SHIPPED;
use admit_runs::runner::active::ActiveRun;
use admit_runs::runner::gate_map::GateMap;
use admit_runs::runner::reason::{RefusalCode, RunnerError};
use admit_runs::runner::request::RunRequest;
use admit_runs::runner::{CONTROL_TOPIC, RunStatus, Runner, RunnerParts, Settings};
use admit_runs::streamer::OpenPack;
use admit_runs::streamer::pack::store::{Disk, PackStore};
use admit_testkit::clock::ManualClock;
use admit_testkit::faulty_bus::FaultyBus;
use tempfile::TempDir;

pub(crate) const PLATFORM_RUN: &str = "platform_20260212T085637Z";
pub(crate) const MF: &str = "c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8";
pub(crate) const PH: &str = "56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7";
/// Run id of [`World::request`].
pub(crate) const RUN: &str = "df5647f07d4f430de9cfde91f3a454b6";

/// Environment that outlives a runner.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) ledger: Arc<SqliteLedger>,
    pub(crate) artifacts: Arc<LocalArtifacts>,
    pub(crate) bus: Arc<FaultyBus>,
    pub(crate) clock: Arc<ManualClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engine_run");
        copy(&fixture, &at("pack"));
        let now = Millis(1_770_886_600_000);
        let ledger = SqliteLedger::open(Options::new(at("data"), now)).expect("the ledger opens");
        let artifacts = LocalArtifacts::open(local::Options::new(at("artifacts")));
        let bus = FileBus::open(file::Options::new(at("bus"))).expect("the bus opens");
        Self {
            ledger: Arc::new(ledger),
            artifacts: Arc::new(artifacts.expect("the artifacts open")),
            bus: Arc::new(FaultyBus::over(Arc::new(bus))),
            clock: Arc::new(ManualClock::at(now)),
            folder,
        }
    }

    /// A runner in this environment.
    pub(crate) fn runner(&self) -> Runner {
        Runner::new(self.parts())
    }

    pub(crate) fn parts(&self) -> RunnerParts {
        let ledger: Arc<dyn ScenarioRuns> = self.ledger.clone();
        let packs: Arc<OpenPack> =
            Arc::new(|root: &str| Ok(Arc::new(Disk::new(root)) as Arc<dyn PackStore>));
        RunnerParts {
            ledger,
            artifacts: self.artifacts.clone(),
            paths: ArtifactPaths::top(),
            bus: self.bus.clone(),
            packs,
            active: ActiveRun::new(Some(PLATFORM_RUN.to_owned()), self.folder.path().join("none")),
            clock: self.clock.clone(),
            settings: Settings::new(GateMap::parse(SHIPPED).expect("the shipped catalogue")),
        }
    }

    pub(crate) fn pack(&self) -> PathBuf {
        self.folder.path().join("pack")
    }

    /// The golden request, for the pack of this environment.
    pub(crate) fn request(&self) -> RunRequest {
        RunRequest::read(self.request_text().as_bytes()).expect("a request")
    }

    pub(crate) fn request_text(&self) -> String {
        format!(
            r#"{{"run_equivalence_key":"parity_demo_1","manifest_fingerprint":"{MF}",
            "parameter_hash":"{PH}","seed":42,"scenario":{{"scenario_id":"baseline_v1"}},
            "window":{{"window_start_utc":"2026-01-01T00:00:00Z",
            "window_end_utc":"2026-01-02T00:00:00Z","window_tz":"UTC"}},
            "engine_run_root":"{}"}}"#,
            self.pack().display()
        )
    }

    pub(crate) fn request_with(&self, members: &str) -> RunRequest {
        let text = self.request_text().replacen('{', &format!("{{{members},"), 1);
        RunRequest::read(text.as_bytes()).expect("a request")
    }

    pub(crate) async fn submit(&self) -> RunStatus {
        self.runner().submit(self.request()).await.expect("submitted")
    }

    pub(crate) async fn run(&self) -> ScenarioRun {
        use admit_ledger::scenario_runs::ScenarioRunReader as _;
        self.ledger.scenario_run(RUN.to_owned()).await.expect("readable").expect("the run")
    }

    /// All messages on the control bus.
    pub(crate) async fn messages(&self) -> Vec<Value<'static>> {
        let read = self.bus.read(CONTROL_TOPIC, 0, "", 1_000).await.expect("readable");
        let parse =
            |payload: &[u8]| json::parse(payload, &Limits::default()).map(Value::into_owned);
        read.iter().map(|record| parse(&record.payload).expect("json")).collect()
    }

    /// A file of the run, parsed.
    pub(crate) async fn file(&self, kind: &str) -> Value<'static> {
        let path = format!("{PLATFORM_RUN}/sr/{kind}/{RUN}.json");
        let bytes = self.artifacts.get(&path).await.expect("readable").expect("the file");
        json::parse(&bytes, &Limits::default()).expect("json").into_owned()
    }

    /// Checks that the files of the run match the ledger.
    pub(crate) async fn check_files(&self) {
        let run = self.run().await;
        for document in &run.documents {
            assert!(path::check(&document.path).is_ok());
            let bytes = self.artifacts.get(&document.path).await.expect("readable");
            let expected = format!("{}\n", document.text);
            assert_eq!(bytes.as_deref(), Some(expected.as_bytes()), "{}", document.kind);
        }
        let status = self.file("run_status").await;
        assert_eq!(status.get("state").and_then(Value::as_str), Some(run.state.word()));
        let record = format!("{PLATFORM_RUN}/sr/run_record/{RUN}.jsonl");
        let record = self.artifacts.get(&record).await.expect("readable").expect("the record");
        let lines: Vec<&str> = run.events.iter().map(|event| event.line.as_str()).collect();
        assert_eq!(String::from_utf8_lossy(&record), format!("{}\n", lines.join("\n")));
        let index = self.file("run_record_index").await;
        let ids: Vec<&str> = run.events.iter().map(|event| event.event_id.as_str()).collect();
        assert_eq!(index.get("event_ids"), Some(&ids.into()));
        assert_eq!(run.shown, run.version);
    }

    /// The kinds of events in the record.
    pub(crate) async fn events(&self) -> Vec<String> {
        let kind = |line: &str| {
            let line = json::parse(line.as_bytes(), &Limits::default()).expect("json");
            line.get("event_kind").and_then(Value::as_str).expect("a kind").to_owned()
        };
        self.run().await.events.iter().map(|event| kind(&event.line)).collect()
    }

    pub(crate) fn advance(&self, seconds: i64) -> Millis {
        self.clock.advance(seconds * 1_000);
        self.clock.now()
    }
}

pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, RunnerError>) -> RefusalCode {
    match result {
        Err(RunnerError::Refused(refused)) => refused.code,
        other => panic!("a refusal, got {other:?}"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
