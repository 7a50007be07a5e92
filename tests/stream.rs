//! The streamer against a real gate: the golden pack, kill -9, and two concurrent streamers.

#[path = "../crates/runs/examples/synthetic_pack/pack.rs"]
pub(crate) mod synthetic;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use admit_artifacts::local::{self, LocalArtifacts};
use admit_artifacts::{Artifacts as _, File};
use admit_bus::file::{self, FileBus, FileReader};
use admit_bus::{Bus as _, Message, PublishOutcome};
use admit_core::Millis;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gate::{self, Gate};
use crate::support::machine::text;
use crate::support::pack::golden;
use crate::support::{TIMEOUT, sql, wait_for};
use synthetic::SyntheticPack;

pub(crate) const RUN: &str = "platform_20260212T085637Z";
pub(crate) const FACTS: &str = "fraud-platform/platform_20260212T085637Z/sr/run_facts_view/1.json";

/// Data folder with the facts and the READY message of a pack.
fn announced(pack: &Path) -> TempDir {
    let data = tempfile::tempdir().unwrap();
    let root = pack.to_str().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let artifacts = local::Options::new(data.path().join("artifacts"));
        let artifacts = LocalArtifacts::open(artifacts).unwrap();
        let facts = File::new(FACTS, synthetic::facts(RUN, root));
        artifacts.put_if_absent(vec![facts]).await.remove(0).unwrap();
        let bus = FileBus::open(file::Options::new(data.path().join("bus"))).unwrap();
        let message_id = "ab".repeat(32);
        let message = Message {
            topic: Arc::from("fp.bus.control.v1"),
            partition_key: "r".to_owned(),
            dedupe_key: message_id.clone(),
            payload: synthetic::ready(RUN, FACTS, root, &message_id).into(),
            at: Millis(1_770_886_597_000),
        };
        let published = bus.publish(vec![message]).await.remove(0);
        assert!(matches!(published, PublishOutcome::Committed(_)), "{published:?}");
    });
    data
}

pub(crate) fn admit_stream(data: &Path, gate: &str, more: &[&str]) -> Command {
    let words = ["stream", "--once", "--json", "--speedup", "0", "--gate", gate, "--data"];
    gate::admit([&words[..], &[text(data)], more].concat())
}

/// Parses the printed output, which has a single message.
fn printed_message(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error} in {text} and {}", String::from_utf8_lossy(&output.stderr))
    });
    value["messages"][0].clone()
}

fn streamed(data: &Path, gate: &Gate, more: &[&str]) -> Value {
    let url = format!("http://{}", gate.address());
    let output = admit_stream(data, &url, more).output().unwrap();
    let message = printed_message(&output);
    assert!(output.status.success(), "{message}: {}", String::from_utf8_lossy(&output.stderr));
    message
}

/// Event ids on the bus, without control and audit messages.
fn on_the_bus(data: &Path) -> Vec<String> {
    let reader = FileReader::new(&data.join("bus"));
    let mut ids = Vec::new();
    for topic in reader.topics().unwrap() {
        if topic.contains("control") || topic.contains("audit") {
            continue;
        }
        for record in reader.records(&topic).unwrap() {
            let envelope: Value = serde_json::from_slice(&record.unwrap().payload).unwrap();
            ids.push(envelope["event_id"].as_str().unwrap().to_owned());
        }
    }
    ids
}

#[test]
fn the_golden_pack_streamed_repeatedly_is_admitted_once() {
    let data = announced(&golden());
    let gate = Gate::on(data.path());
    let first = streamed(data.path(), &gate, &[]);
    assert_eq!(first["status"], "STREAMED", "{first}");
    assert_eq!((first["admitted"].as_u64(), first["quarantined"].as_u64()), (Some(12), Some(0)));
    let receipts = data.path().join(format!("artifacts/fraud-platform/{RUN}/ig/receipts"));
    assert_eq!(fs::read_dir(&receipts).unwrap().count(), 12);
    let replayed = streamed(data.path(), &gate, &["--again", "--from-start"]);
    assert_eq!((&replayed["admitted"], &replayed["duplicate"]), (&json!(0), &json!(12)));
    if sql::is_postgres() {
        sql::execute(data.path(), "DELETE FROM wsp_checkpoint; DELETE FROM wsp_ready_position");
    }
    for file in ["stream.db", "stream.db-wal", "stream.db-shm"] {
        fs::remove_file(data.path().join(file)).unwrap_or_default();
    }
    let again = streamed(data.path(), &gate, &["--again"]);
    assert_eq!((again["admitted"].as_u64(), again["duplicate"].as_u64()), (Some(0), Some(12)));
    let ids = on_the_bus(data.path());
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (12, 12), "every event is on the bus once");
    let log = data.path().join(format!("stream/{RUN}/session.jsonl"));
    assert!(fs::read_to_string(log).unwrap().contains("\"kind\":\"stream_complete\""));
    gate.stop();
}

#[test]
fn an_unreachable_gate_defers_the_run_and_loses_nothing() {
    let data = announced(&golden());
    let output = admit_stream(data.path(), "http://127.0.0.1:9", &[]).output().unwrap();
    let message = printed_message(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message["status"], "DEFERRED_DOWNSTREAM_NOT_READY");
    assert!(message["detail"].as_str().unwrap().contains("cannot connect"), "{message}");
    let gate = Gate::on(data.path());
    assert_eq!(streamed(data.path(), &gate, &[])["admitted"], 12);
    gate.stop();
}

const ROWS: u64 = 300;
const WINDOW: u64 = 20;

/// A pack of four outputs in a separate folder.
fn made_up() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("pack");
    let rows = SyntheticPack { rows: ROWS, part_rows: 120, group_rows: 50, seed: 5, per_flow: 4 };
    rows.write(&pack, &golden()).unwrap();
    (folder, pack)
}

fn started(data: &Path, gate: &Gate) -> Child {
    let url = format!("http://{}", gate.address());
    let mut command = admit_stream(data, &url, &["--checkpoint-every", "20", "--in-flight", "8"]);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
}

#[test]
fn a_killed_streamer_resumes_with_at_most_one_window_of_copies() {
    let (_folder, pack) = made_up();
    let data = announced(&pack);
    let gate = Gate::on(data.path());
    for part in [1, 2] {
        let mut child = started(data.path(), &gate);
        let enough = usize::try_from(ROWS * part).unwrap();
        wait_for("some rows are on the bus", TIMEOUT, || {
            (on_the_bus(data.path()).len() >= enough).then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let message = streamed(data.path(), &gate, &["--checkpoint-every", "20", "--in-flight", "8"]);
    assert_eq!(message["status"], "STREAMED", "{message}");
    assert_eq!(message["emitted"].as_u64(), Some(4 * ROWS));
    assert_eq!(message["quarantined"].as_u64(), Some(0), "{message}");
    let ids = on_the_bus(data.path());
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len() as u64), (distinct.len(), 4 * ROWS));
    // Two crashes, four outputs.
    let copies = message["duplicate"].as_u64().unwrap();
    assert!(copies <= 2 * 4 * WINDOW, "{copies} copies: {message}");
    gate.stop();
}

#[test]
fn two_concurrent_streamers_admit_every_row_once() {
    let (_folder, pack) = made_up();
    let data = announced(&pack);
    let gate = Gate::on(data.path());
    let children = [started(data.path(), &gate), started(data.path(), &gate)];
    let mut statuses: Vec<String> = children
        .into_iter()
        .map(|child| {
            let message = printed_message(&child.wait_with_output().unwrap());
            message["status"].as_str().unwrap_or("nothing left").to_owned()
        })
        .collect();
    statuses.sort_unstable();
    assert!(statuses.contains(&"STREAMED".to_owned()), "{statuses:?}");
    let ids = on_the_bus(data.path());
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len() as u64), (distinct.len(), 4 * ROWS), "{statuses:?}");
    gate.stop();
}

#[test]
fn a_streamer_ignores_sighup() {
    let (_folder, pack) = made_up();
    let data = announced(&pack);
    let gate = Gate::on(data.path());
    let child = started(data.path(), &gate);
    wait_for("some rows are on the bus", TIMEOUT, || {
        (on_the_bus(data.path()).len() > 50).then_some(())
    });
    crate::support::machine::signal(child.id(), "HUP");
    let output = child.wait_with_output().unwrap();
    assert_eq!(printed_message(&output)["status"], "STREAMED");
    assert!(output.status.success(), "{output:?}");
    gate.stop();
}

#[test]
fn a_stopped_streamer_exits_and_the_next_one_resumes() {
    let (_folder, pack) = made_up();
    let data = announced(&pack);
    let gate = Gate::on(data.path());
    let child = started(data.path(), &gate);
    wait_for("some rows are on the bus", TIMEOUT, || {
        (on_the_bus(data.path()).len() > 50).then_some(())
    });
    crate::support::machine::signal(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    let message = printed_message(&output);
    assert!(["STOPPED", "STREAMED"].contains(&message["status"].as_str().unwrap()), "{message}");
    streamed_or_done(data.path(), &gate);
    let ids = on_the_bus(data.path());
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len() as u64), (distinct.len(), 4 * ROWS));
    gate.stop();
}

/// The remaining processes, if any.
fn streamed_or_done(data: &Path, gate: &Gate) {
    let url = format!("http://{}", gate.address());
    let output = admit_stream(data, &url, &[]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_damaged_pack_fails_the_run_with_its_reason_in_the_text_output_too() {
    let folder = tempfile::tempdir().unwrap();
    let pack = folder.path().join("pack");
    synthetic::copy(&golden(), &pack).unwrap();
    fs::write(pack.join("run_receipt.json"), "{").unwrap();
    let data = announced(&pack);
    let gate = Gate::on(data.path());
    let address = format!("http://{}", gate.address());
    let words = ["stream", "--once", "--gate", &address, "--data", text(data.path())];
    let output = gate::admit(words).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("RUN_RECEIPT_UNREADABLE") && out.contains("FAILED"), "{out}");
    assert!(err.contains("1 of 1 READY messages are not done"), "{err}");
    assert!(on_the_bus(data.path()).is_empty());
    gate.stop();
}
