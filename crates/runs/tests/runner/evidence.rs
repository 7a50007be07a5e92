//! Evidence that is late, missing or invalid.

use std::fs;

use admit_artifacts::Artifacts as _;
use admit_core::ScenarioState;
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits, Value};

use crate::world::{MF, PLATFORM_RUN, RUN, World};

fn bundle(gate: &str) -> String {
    let layer = match &gate[..1] {
        "5" => "layer2",
        "6" => "layer3",
        _ => "layer1",
    };
    format!("data/{layer}/{gate}/validation/manifest_fingerprint={MF}")
}

const GATES: [&str; 10] = ["1A", "1B", "2A", "2B", "3A", "3B", "5A", "5B", "6A", "6B"];

#[tokio::test]
async fn evidence_that_arrives_in_time_makes_the_run_ready() {
    let world = World::new();
    let flag = world.pack().join(bundle("3A")).join("_passed.flag");
    let text = fs::read(&flag).expect("a flag");
    fs::remove_file(&flag).expect("removed");
    assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence);
    fs::write(&flag, "").expect("an empty flag");
    world.advance(300);
    assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence);
    fs::write(&flag, text).expect("a flag");
    world.advance(299);
    // Without another submit: the sweep advances the run.
    assert_eq!(world.runner().sweep_unfinished().await.expect("readable"), 1);
    assert_eq!(world.run().await.state, ScenarioState::Ready);
    assert_eq!(
        world.events().await,
        ["PLAN_COMMITTED", "EVIDENCE_WAITING", "READY_COMMITTED", "READY_PUBLISHED"],
        "equal events are recorded once"
    );
    assert_eq!(world.runner().sweep_unfinished().await.expect("readable"), 0);
    world.check_files().await;
}

#[tokio::test]
async fn evidence_that_arrives_too_late_fails_the_run_permanently() {
    let world = World::new();
    let parts = world.pack().join("data/layer3/6B/s1_arrival_entities_6B");
    let moved = world.folder.path().join("aside");
    fs::rename(&parts, &moved).expect("moved away");
    assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence);
    world.advance(600);
    let failed = world.submit().await.run;
    assert_eq!(failed.state, ScenarioState::Failed);
    assert_eq!(failed.reason.as_deref(), Some("EVIDENCE_MISSING_DEADLINE"));
    fs::rename(&moved, &parts).expect("moved back");
    assert_eq!(world.submit().await.run, failed);
    assert!(world.messages().await.is_empty());
    world.check_files().await;
}

#[tokio::test]
async fn contradictory_evidence_of_any_gate_quarantines_the_run() {
    for gate in GATES {
        let world = World::new();
        fs::write(world.pack().join(bundle(gate)).join("report.json"), "{\"ok\":maybe}")
            .expect("a forged report");
        let run = world.submit().await.run;
        assert_eq!(run.state, ScenarioState::Quarantined, "{gate}");
        assert_eq!(run.reason.as_deref(), Some("EVIDENCE_CONFLICT"), "{gate}");
        assert!(run.document("quarantine").is_some(), "{gate}");
        assert!(world.messages().await.is_empty(), "{gate}");
        world.check_files().await;
    }
}

#[tokio::test]
async fn a_run_that_ends_without_ready_has_one_run_cancelled_line() {
    for (kind, state, reason) in
        [("FAIL", "FAILED", "GATE_FAIL"), ("forged", "QUARANTINED", "EVIDENCE_CONFLICT")]
    {
        let world = World::new();
        let bundle = world.pack().join(bundle("2B"));
        match kind {
            "FAIL" => fs::write(bundle.join("_passed.flag"), "{\"status\":\"FAIL\"}"),
            _ => fs::write(bundle.join("report.json"), "{}"),
        }
        .expect("a forged file");
        // Submitted twice, and then swept.
        world.submit().await;
        world.submit().await;
        world.runner().sweep_unfinished().await.expect("readable");
        let log = format!("{PLATFORM_RUN}/obs/governance/events.jsonl");
        let log = world.artifacts.get(&log).await.expect("readable").expect("the log");
        let log = String::from_utf8(log.to_vec()).expect("text");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines.len(), 1, "{log}");
        let line = json::parse(lines[0].as_bytes(), &Limits::default()).expect("json");
        let text = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).expect("a text");
        assert_eq!(text("/event_family"), "RUN_CANCELLED");
        assert_eq!((text("/platform_run_id"), text("/scenario_run_id")), (PLATFORM_RUN, RUN));
        assert_eq!((text("/details/state"), text("/details/reason_code")), (state, reason));
        let id_input = format!(
            "RUN_CANCELLED|{PLATFORM_RUN}|{RUN}|{}|{}",
            text("/source_component"),
            text("/dedupe_key")
        );
        let id = sha256_hex(id_input.as_bytes());
        assert_eq!(text("/event_id"), id, "the formula of the specification");
        let marker = format!("{PLATFORM_RUN}/obs/governance/markers/{id}.json");
        let marker = world.artifacts.get(&marker).await.expect("readable").expect("the marker");
        assert_eq!(marker, format!("{}\n", lines[0]));
    }
}

#[tokio::test]
async fn every_gate_is_required() {
    for gate in GATES {
        let world = World::new();
        fs::remove_dir_all(world.pack().join(bundle(gate))).expect("removed");
        assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence, "{gate}");
    }
}

#[tokio::test]
async fn a_pack_of_another_world_quarantines_the_run() {
    let world = World::new();
    let receipt = world.pack().join("run_receipt.json");
    let text = fs::read_to_string(&receipt).expect("a receipt");
    fs::write(&receipt, text.replace("42", "43")).expect("a receipt");
    let run = world.submit().await.run;
    assert_eq!(run.state, ScenarioState::Quarantined);
    assert_eq!(run.reason.as_deref(), Some("ENGINE_RECEIPT_MISMATCH"));
    for (text, state, reason) in [
        ("[]", ScenarioState::Failed, "ENGINE_RECEIPT_INVALID"),
        ("{\"seed\":42}", ScenarioState::Failed, "ENGINE_RECEIPT_INVALID"),
    ] {
        let world = World::new();
        fs::write(world.pack().join("run_receipt.json"), text).expect("a receipt");
        let run = world.submit().await.run;
        assert_eq!((run.state, run.reason.as_deref()), (state, Some(reason)));
    }
    let world = World::new();
    fs::remove_file(world.pack().join("run_receipt.json")).expect("removed");
    assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence);
    world.advance(600);
    assert_eq!(world.submit().await.run.reason.as_deref(), Some("ENGINE_RECEIPT_MISSING"));
}

#[tokio::test]
async fn a_failed_gate_fails_the_run() {
    let world = World::new();
    let flag = world.pack().join(bundle("2B")).join("_passed.flag");
    fs::write(flag, "{\"status\":\"FAIL\"}").expect("a flag");
    let run = world.submit().await.run;
    assert_eq!((run.state, run.reason.as_deref()), (ScenarioState::Failed, Some("GATE_FAIL")));
}

#[tokio::test]
async fn index_paths_outside_the_pack_are_refused() {
    let world = World::new();
    let index = world.pack().join(bundle("3B")).join("index.json");
    let text = fs::read_to_string(&index).expect("an index");
    fs::write(&index, text.replace("report.json", "../../../../../../secret")).expect("an index");
    let run = world.submit().await.run;
    assert_eq!(run.reason.as_deref(), Some("EVIDENCE_CONFLICT"));
}

#[tokio::test]
async fn the_status_message_names_missing_evidence() {
    let world = World::new();
    fs::remove_file(world.pack().join(bundle("3A")).join("_passed.flag")).expect("removed");
    let waiting = world.submit().await.message;
    assert!(waiting.contains("gate 3A"), "{waiting}");
    world.advance(600);
    let failed = world.submit().await.message;
    assert!(failed.starts_with("FAILED: EVIDENCE_MISSING_DEADLINE (gate 3A"), "{failed}");
    let status = world.runner().status(&world.run().await.run_id).await.expect("readable");
    assert_eq!(status.message, failed, "also in later status replies");
}
