//! Artifacts and packs in a bucket of a real server: the whole chain, and an outage of the store.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use admit_artifacts::s3::{Access, Options, S3Artifacts, S3Keys, S3Location};
use admit_artifacts::{Artifacts as _, File};
use admit_core::{Clock, Millis};
use admit_testkit::proxy::{Faults, Proxy};
use admit_testkit::servers::{Moto, S3Access, Seaweed};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::support::gate::{Gate, Launch, admit};
use crate::support::http::HttpResponse;
use crate::support::ingest::{RUN, envelope, push, read_decision};
use crate::support::machine::text;
use crate::support::pack::{READY_MESSAGE, golden, request};
use crate::support::{TIMEOUT, wait_for};

const RUN_ID: &str = "df5647f07d4f430de9cfde91f3a454b6";

struct FrozenTime;

impl Clock for FrozenTime {
    fn now(&self) -> Millis {
        Millis(1_771_524_842_000)
    }
}

/// Server with a bucket for artifacts and packs, and a folder for everything else.
struct World {
    runtime: Runtime,
    store: S3Artifacts,
    packs: S3Artifacts,
    data: tempfile::TempDir,
    address: SocketAddr,
    _server: Seaweed,
}

impl World {
    fn new() -> Option<Self> {
        let server = Seaweed::start(S3Access::KeyHolders)?;
        server.bucket("platform");
        let open = |place: &str| {
            let access = Access {
                endpoint: Some(server.endpoint()),
                path_style: true,
                keys: Some(S3Keys::new(Seaweed::ACCESS_KEY, Seaweed::SECRET_KEY)),
                ..Access::default()
            };
            let place = S3Location::parse(place).unwrap();
            S3Artifacts::open(Options { access, ..Options::new(place, Arc::new(FrozenTime)) })
                .unwrap()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (store, packs) = (open("s3://platform/prod"), open("s3://platform/packs"));
        let (data, address) = (tempfile::tempdir().unwrap(), server.address());
        Some(Self { runtime, store, packs, data, address, _server: server })
    }

    /// Environment of the gate and of the commands.
    fn variables(&self, server: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("ADMIT_ARTIFACTS__URL", "s3://platform/prod".to_owned()),
            ("ADMIT_ARTIFACTS__S3__ENDPOINT", format!("http://{server}")),
            ("ADMIT_ARTIFACTS__S3__PATH_STYLE", "true".to_owned()),
            ("ADMIT_ARTIFACTS__S3__REQUEST_TIMEOUT_MS", "5000".to_owned()),
            ("AWS_ACCESS_KEY_ID", Seaweed::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", Seaweed::SECRET_KEY.to_owned()),
            ("PLATFORM_RUN_ID", RUN.to_owned()),
        ]
    }

    fn gate(&self, server: SocketAddr) -> Gate {
        let launch = self
            .variables(server)
            .into_iter()
            .fold(Launch::on(self.data.path()), |launch, (name, value)| {
                launch.variable(name, &value)
            });
        launch.variable("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "200").start()
    }

    /// Output of a command that must succeed.
    fn admit(&self, words: &[&str]) -> Value {
        let words = [words, &["--json", "--data", text(self.data.path())]].concat();
        let mut command = admit(&words);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                command.env_remove(name);
            }
        }
        let output = command.envs(self.variables(self.address)).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {stdout}{errors}");
        for printed in [&stdout, &errors] {
            assert!(!printed.contains(Seaweed::SECRET_KEY), "{printed}");
        }
        let mut values = serde_json::Deserializer::from_str(&stdout).into_iter();
        values.next().and_then(Result::ok).unwrap_or_else(|| panic!("JSON, not {stdout}"))
    }

    fn list(&self, prefix: &str) -> Vec<String> {
        self.runtime.block_on(self.store.list(prefix, None, 1_000)).unwrap()
    }

    fn read(&self, path: &str) -> Option<String> {
        let bytes = self.runtime.block_on(self.store.get(path)).unwrap()?;
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Uploads a pack into the bucket.
    fn upload(&self, folder: &Path, name: &str) {
        let mut files = Vec::new();
        collect(folder, name, &mut files);
        for put in self.runtime.block_on(self.packs.put_if_absent(files)) {
            put.unwrap();
        }
    }
}

fn collect(folder: &Path, name: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => collect(&entry.path(), &name, files),
            false => files.push(File::new(name, fs::read(entry.path()).unwrap())),
        }
    }
}

fn close(gate: &Gate) -> HttpResponse {
    let path = format!("/v1/runs/{RUN}/close");
    let headers = [("content-type", "application/json")];
    gate.client().send("POST", &path, &headers, b"{}").expect("response from the gate")
}

#[test]
fn the_golden_pack_is_streamed_from_one_bucket_into_a_closed_run_in_another() {
    let Some(world) = World::new() else { return };
    world.upload(&golden(), "golden");
    let gate = world.gate(world.address);
    let file = world.data.path().join("request.json");
    fs::write(&file, request("s3://platform/packs/golden").to_string()).unwrap();
    let (listen, url) = (gate.address().to_string(), format!("http://{}", gate.address()));
    let submit = ["runs", "submit", "--request", text(&file), "--listen", &listen];
    let stdout = world.admit(&submit);
    assert_eq!(stdout["message"], READY_MESSAGE);
    assert_eq!((&stdout["run_id"], &stdout["state"]), (&json!(RUN_ID), &json!("READY")));
    let facts =
        world.read(stdout["facts_view_ref"].as_str().unwrap()).expect("facts in the bucket");
    assert!(facts.contains("s3://platform/packs/golden"), "{facts}");

    for (admitted, copies) in [(12, 0), (0, 12)] {
        let stream = ["stream", "--once", "--again", "--speedup", "0", "--gate", &url];
        let streamed = world.admit(&stream);
        let streamed = &streamed["messages"][0];
        assert_eq!(streamed["status"], "STREAMED", "{streamed}");
        assert_eq!(
            (&streamed["admitted"], &streamed["duplicate"]),
            (&json!(admitted), &json!(copies))
        );
        for name in ["stream.db", "stream.db-wal", "stream.db-shm"] {
            // The checkpoints are lost; the ledger still has every row.
            drop(fs::remove_file(world.data.path().join(name)));
        }
    }
    let report = gate.client().get(&format!("/v1/runs/{RUN}/report"));
    assert_eq!(
        (&report["ingress"]["admit"], &report["ingress"]["duplicate"]),
        (&json!(12), &json!(12))
    );
    let closed = close(&gate);
    assert_eq!(closed.status, 200, "{}", closed.json());
    assert_eq!(world.list(&format!("{RUN}/ig/receipts/")).len(), 24);
    assert!(world.read(&format!("{RUN}/obs/run_closure.json")).is_some());
    let log = world.read(&format!("{RUN}/obs/governance/events.jsonl")).expect("a log");
    assert!(log.contains("RUN_ENDED"), "{log}");
    let listed = world.list(&format!("{RUN}/obs/governance/events.jsonl"));
    assert_eq!(listed.len(), 1, "the file itself is there for those who read the bucket");
    let verified = world.admit(&["verify"]);
    assert_eq!(verified["disagreements"], json!([]), "{verified}");
    let printed = format!("{}{}", gate.stdout(), gate.stderr());
    assert!(!printed.contains(Seaweed::SECRET_KEY));
    gate.stop();
}

#[test]
fn closing_waits_until_an_unavailable_store_has_all_receipts() {
    let Some(world) = World::new() else { return };
    let between = Proxy::to(world.address, Faults::default(), 1).unwrap();
    let gate = world.gate(between.address());
    assert_eq!(read_decision(&push(&mut gate.client(), &envelope(1))).0, "ADMIT");
    wait_for("the first receipt", TIMEOUT, || {
        (world.list(&format!("{RUN}/ig/receipts/")).len() == 1).then_some(())
    });
    between.set_faults(Faults { cut_one_in: 1, ..Faults::default() });
    between.cut_all();
    for n in 2..12 {
        assert_eq!(
            read_decision(&push(&mut gate.client(), &envelope(n))).0,
            "ADMIT",
            "it is not waited for"
        );
    }
    let refused = close(&gate);
    assert!(refused.status >= 500, "what cannot be looked at is not closed: {}", refused.json());
    assert_eq!(world.list(&format!("{RUN}/ig/receipts/")).len(), 1);
    between.set_faults(Faults::default());
    let closed = wait_for("the run is closed", TIMEOUT, || {
        let answer = close(&gate);
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(closed.json()["counts"]["admit"].as_u64().unwrap_or(11), 11, "{}", closed.json());
    assert_eq!(world.list(&format!("{RUN}/ig/receipts/")).len(), 11);
    gate.stop();
}

#[test]
fn receipts_missing_in_the_bucket_after_a_kill_are_uploaded_at_the_next_start() {
    let Some(world) = World::new() else { return };
    let between = Proxy::to(world.address, Faults::default(), 1).unwrap();
    let gate = world.gate(between.address());
    between.set_faults(Faults { cut_one_in: 1, ..Faults::default() });
    between.cut_all();
    for n in 1..6 {
        assert_eq!(read_decision(&push(&mut gate.client(), &envelope(n))).0, "ADMIT");
    }
    gate.kill();
    assert_eq!(world.list(&format!("{RUN}/ig/receipts/")), [""; 0]);
    let gate = world.gate(world.address);
    assert_eq!(world.list(&format!("{RUN}/ig/receipts/")).len(), 5, "before the doors open");
    assert_eq!(close(&gate).status, 200);
    gate.stop();
}

#[test]
fn an_unusable_bucket_fails_the_start_with_its_reason() {
    let Some(server) = Moto::start() else { return };
    const SECRET: &str = "suite-secret-key-that-is-never-logged";
    let keys = [("AWS_ACCESS_KEY_ID", "suite-access-key"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let no_metadata = [("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")];
    for (endpoint, variables, stdout) in [
        (&*server.endpoint(), &keys[..], "NoSuchBucket"),
        ("http://127.0.0.1:9", &keys[..], "Connection refused"),
        (&*server.endpoint(), &no_metadata[..], "set AWS_ACCESS_KEY_ID"),
    ] {
        let data = tempfile::tempdir().unwrap();
        let launch = Launch::on(data.path())
            .variable("ADMIT_ARTIFACTS__URL", "s3://nowhere")
            .variable("ADMIT_ARTIFACTS__S3__ENDPOINT", endpoint)
            .variable("ADMIT_ARTIFACTS__S3__PATH_STYLE", "true");
        let with =
            |launch: Launch, (name, value): &(&'static str, &str)| launch.variable(name, value);
        let ended = variables.iter().fold(launch, with).start_expecting_exit();
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(
            ended.stderr.contains(stdout) && ended.stderr.contains("bucket"),
            "{}",
            ended.stderr
        );
        assert!(!ended.stderr.contains(SECRET), "{}", ended.stderr);
    }
}
