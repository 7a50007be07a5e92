//! Submitting runs, once and again.

use std::path::{Path, PathBuf};

use admit_artifacts::Artifacts as _;
use admit_core::ScenarioState;
use admit_core::json::Value;
use admit_ledger::scenario_runs::PublicationState;
use admit_runs::runner::identity;
use admit_runs::runner::reason::RefusalCode;
use admit_runs::streamer::facts::Facts;
use admit_runs::streamer::ready::Ready;
use admit_testkit::faulty_bus::MessageFault;

use crate::world::{PLATFORM_RUN, RUN, World, refusal};

fn text<'v>(value: &'v Value<'_>, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}"))
}

#[tokio::test]
async fn the_golden_pack_becomes_ready_with_all_documents() {
    let world = World::new();
    let status = world.submit().await;
    assert_eq!(status.run.run_id, RUN);
    assert_eq!(status.run.state, ScenarioState::Ready);
    world.check_files().await;
    let plan = world.file("run_plan").await;
    assert_eq!(plan.get("required_gates").and_then(Value::as_array).map(<[_]>::len), Some(10));
    assert_eq!(plan.get("intended_outputs").and_then(Value::as_array).map(<[_]>::len), Some(4));
    let facts = world.file("run_facts_view").await;
    assert_eq!(text(&facts, "/pins/scenario_run_id"), RUN);
    let signal = world.file("ready_signal").await;
    assert_eq!(facts.get("provenance"), signal.get("provenance"), "the same provenance");
    assert_eq!(text(&facts, "/environment"), text(&signal, "/environment"));
    let receipts = facts.get("gate_receipts").and_then(Value::as_array).expect("receipts");
    assert!(receipts.iter().all(|receipt| text(receipt, "/status") == "PASS"));
    let signal = world.file("ready_signal").await;
    let wanted = identity::ready_message_id(PLATFORM_RUN, RUN, text(&facts, "/bundle_hash"));
    assert_eq!(text(&signal, "/message_id"), wanted);
    assert_eq!(world.events().await, ["PLAN_COMMITTED", "READY_COMMITTED", "READY_PUBLISHED"]);
    let governance = format!("{PLATFORM_RUN}/obs/governance/events.jsonl");
    let governance = world.artifacts.get(&governance).await.expect("readable").expect("a log");
    assert_eq!(governance.iter().filter(|byte| **byte == b'\n').count(), 1);
    let outputs = format!("{PLATFORM_RUN}/sr/instance_receipts/");
    assert_eq!(world.artifacts.list(&outputs, None, 10).await.expect("readable").len(), 4);
}

#[tokio::test]
async fn a_published_ready_is_readable_by_the_streamer() {
    let world = World::new();
    world.submit().await;
    let messages = world.messages().await;
    assert_eq!(messages.len(), 1);
    assert_eq!(text(&messages[0], "/attributes/kind"), "READY");
    assert_eq!(text(&messages[0], "/partition_key"), RUN);
    let mut message = Vec::new();
    admit_core::json::write(&messages[0], &mut message);
    let ready = Ready::read("fp.bus.control.v1", &message).expect("a READY");
    let facts = world.artifacts.get(&ready.facts_view_ref).await.expect("readable");
    let facts = Facts::read(&facts.expect("the facts")).expect("facts");
    assert_eq!(facts.ids(&ready).expect("ids"), (PLATFORM_RUN.to_owned(), RUN.to_owned()));
    facts.same_world(&ready).expect("one world");
    assert_eq!(facts.engine_root(&ready).expect("a root"), world.pack().display().to_string());
}

#[tokio::test]
async fn a_ready_run_is_returned_and_never_changes_its_state() {
    let world = World::new();
    let first = world.submit().await;
    for seconds in [0, 299, 301, 100_000] {
        world.advance(seconds);
        let again = world.submit().await;
        assert_eq!(again.run, first.run, "after {seconds} s");
    }
    assert_eq!(world.messages().await.len(), 1);
    // Not even if the pack is deleted.
    std::fs::remove_dir_all(world.pack()).expect("removed");
    assert_eq!(world.submit().await.run, first.run);
    world.check_files().await;
}

#[tokio::test]
async fn a_ready_run_cannot_be_submitted_with_other_outputs() {
    let world = World::new();
    let first = world.submit().await;
    let other = world.request_with(r#""output_ids":["arrival_events_5B"]"#);
    assert_eq!(refusal(world.runner().submit(other).await), RefusalCode::PlanDrift);
    assert_eq!(world.run().await, first.run, "nothing was changed");
    let plan = world.file("run_plan").await;
    let planned = plan.get("intended_outputs").and_then(Value::as_array).expect("outputs");
    let planned: Vec<String> =
        planned.iter().rev().map(|output| format!("{:?}", output.as_str().unwrap())).collect();
    let same = world.request_with(&format!("\"output_ids\":[{}]", planned.join(",")));
    assert_eq!(world.runner().submit(same).await.expect("the same outputs").run, first.run);
}

/// All files below a folder with their content, sorted.
fn files(folder: &Path) -> Vec<(Vec<u8>, PathBuf)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found.into_iter().map(|path| (std::fs::read(&path).expect("a file"), path)).collect()
}

/// Folder of the runner's files.
fn sr(world: &World) -> PathBuf {
    world.folder.path().join("artifacts").join(PLATFORM_RUN).join("sr")
}

#[tokio::test]
async fn lost_files_of_a_final_run_are_restored_by_the_periodic_check() {
    for (forged, state) in [(false, ScenarioState::Ready), (true, ScenarioState::Quarantined)] {
        let world = World::new();
        if forged {
            let bundle =
                format!("data/layer1/1A/validation/manifest_fingerprint={}", crate::world::MF);
            let report = world.pack().join(bundle).join("report.json");
            std::fs::write(report, "{}").expect("a forged report");
        }
        assert_eq!(world.submit().await.run.state, state);
        let (sr, run) = (sr(&world), world.run().await);
        let before = files(&sr);
        let restore = async || world.runner().restore_lost_files().await.expect("readable");
        assert_eq!(restore().await, 0, "nothing is lost");
        for (_, path) in &before {
            std::fs::remove_file(path).expect("removed");
            assert_eq!(restore().await, 1, "{}", path.display());
            assert_eq!(files(&sr), before, "{}", path.display());
        }
        std::fs::remove_dir_all(&sr).expect("removed");
        assert_eq!((restore().await, files(&sr)), (1, before), "all of them");
        assert_eq!(world.run().await, run, "the run itself does not change");
    }
}

#[tokio::test]
async fn the_periodic_check_leaves_a_file_with_other_content_alone() {
    let world = World::new();
    world.submit().await;
    let facts = sr(&world).join("run_facts_view").join(format!("{RUN}.json"));
    std::fs::write(&facts, "{}").expect("forged");
    std::fs::remove_file(sr(&world).join("run_plan").join(format!("{RUN}.json"))).expect("removed");
    assert_eq!(world.runner().restore_lost_files().await.expect("readable"), 1);
    assert_eq!(std::fs::read(&facts).expect("a file"), b"{}", "it is evidence");
}

#[tokio::test]
async fn lost_files_of_a_ready_run_are_restored_by_the_next_submit() {
    let world = World::new();
    world.submit().await;
    let sr = sr(&world);
    let before = files(&sr);
    assert!(before.len() >= 9, "plan, facts, signal, status, record, index, receipts");
    for (_, path) in &before {
        std::fs::remove_file(path).expect("removed");
        world.submit().await;
        assert_eq!(files(&sr), before, "{}", path.display());
    }
    assert_eq!(world.messages().await.len(), 1, "READY is not published again");
}

#[tokio::test]
async fn a_key_of_another_intent_is_a_collision() {
    let world = World::new();
    world.submit().await;
    let other = world.request_text().replace("\"seed\":42", "\"seed\":43");
    let other = admit_runs::runner::request::RunRequest::read(other.as_bytes()).expect("a request");
    let refused = world.runner().submit(other).await;
    assert_eq!(refusal(refused), RefusalCode::EquivKeyCollision);
    assert_eq!(world.run().await.state, ScenarioState::Ready);
}

#[tokio::test]
async fn a_submit_with_another_plan_is_drift() {
    let world = World::new();
    let flag = world.pack().join("data/layer3/6B/validation");
    let moved = world.folder.path().join("aside");
    std::fs::rename(&flag, &moved).expect("moved away");
    assert_eq!(world.submit().await.run.state, ScenarioState::WaitingEvidence);
    let other = world.request_with(r#""output_ids":["arrival_events_5B"]"#);
    assert_eq!(refusal(world.runner().submit(other).await), RefusalCode::PlanDrift);
    let other = world.request_text().replace("/pack", "/other");
    let other = admit_runs::runner::request::RunRequest::read(other.as_bytes()).expect("a request");
    assert_eq!(refusal(world.runner().submit(other).await), RefusalCode::PlanDrift);
    std::fs::rename(&moved, &flag).expect("moved back");
    assert_eq!(world.submit().await.run.state, ScenarioState::Ready);
}

/// Checks each immutable file and its code of drift.
#[tokio::test]
async fn a_file_with_other_content_is_drift_and_is_not_overwritten() {
    for (kind, drift) in [
        ("run_plan", RefusalCode::PlanDrift),
        ("run_facts_view", RefusalCode::FactsViewDrift),
        ("ready_signal", RefusalCode::ReadySignalDrift),
    ] {
        let world = World::new();
        let path = format!("{PLATFORM_RUN}/sr/{kind}/{RUN}.json");
        let forged = admit_artifacts::File::new(&*path, "{}");
        world.artifacts.put_if_absent(vec![forged]).await.remove(0).expect("written");
        assert_eq!(refusal(world.runner().submit(world.request()).await), drift, "{kind}");
        assert!(world.messages().await.is_empty(), "{kind}: nothing is published");
        let stored = world.artifacts.get(&path).await.expect("readable");
        assert_eq!(stored.as_deref(), Some(&b"{}"[..]));
    }
}

#[tokio::test]
async fn stored_facts_do_not_change_with_the_pack() {
    let world = World::new();
    // The facts are committed, but their file cannot be written.
    let path = format!("{PLATFORM_RUN}/sr/run_facts_view/{RUN}.json");
    let forged = admit_artifacts::File::new(&*path, "{}");
    world.artifacts.put_if_absent(vec![forged]).await.remove(0).expect("written");
    refusal(world.runner().submit(world.request()).await);
    std::fs::remove_file(world.folder.path().join("artifacts").join(&path)).expect("removed");
    let part = "data/layer2/5B/arrival_events/seed=42";
    let part = world.pack().join(part).join(format!("manifest_fingerprint={}", crate::world::MF));
    std::fs::write(part.join("scenario_id=baseline_v1/part-001.parquet"), "more").expect("a file");
    let drifted = refusal(world.runner().submit(world.request()).await);
    assert!(
        matches!(drifted, RefusalCode::FactsViewDrift | RefusalCode::ArtifactDrift),
        "{drifted}"
    );
    world.advance(601);
    let late = world.submit().await;
    assert_eq!(late.run.state, ScenarioState::Quarantined);
    assert_eq!(late.run.reason.as_deref(), Some("EVIDENCE_CONFLICT"));
}

#[tokio::test]
async fn a_publication_that_certainly_failed_is_retried_by_the_next_submit() {
    let world = World::new();
    world.bus.next([Some(MessageFault::Refuse)]);
    let status = world.submit().await;
    assert_eq!(status.run.state, ScenarioState::Ready, "the status stays");
    assert_eq!(world.events().await.last().map(String::as_str), Some("READY_PUBLISH_FAILED"));
    let status = world.submit().await;
    let states: Vec<_> = status.run.publications.iter().map(|attempt| attempt.state).collect();
    assert_eq!(states, [PublicationState::NotWritten, PublicationState::Published]);
    assert_eq!(world.messages().await.len(), 1);
    world.check_files().await;
}

#[tokio::test]
async fn a_publication_with_an_unknown_outcome_is_never_repeated_automatically() {
    for trouble in [MessageFault::AcceptThenCut, MessageFault::LandLater] {
        let world = World::new();
        world.bus.next([Some(trouble)]);
        let status = world.submit().await;
        assert!(
            status.message.contains("outcome of publishing READY is unknown"),
            "{}",
            status.message
        );
        world.advance(100_000);
        let again = world.submit().await;
        let states: Vec<_> = again.run.publications.iter().map(|attempt| attempt.state).collect();
        assert_eq!(states, [PublicationState::Unknown]);
        let published = if trouble == MessageFault::AcceptThenCut { 1 } else { 0 };
        assert_eq!(world.messages().await.len(), published);
    }
}

#[tokio::test]
async fn a_run_that_cannot_be_planned_fails_with_the_reason() {
    for (members, reason) in [
        (r#""output_ids":["nothing"]"#, "UNKNOWN_OUTPUT_ID"),
        (r#""requested_strategy":"FORCE_INVOKE""#, "ENGINE_INVOCATION_INVALID"),
    ] {
        let world = World::new();
        let run = world.runner().submit(world.request_with(members)).await.expect("readable").run;
        assert_eq!(run.state, ScenarioState::Failed);
        assert_eq!(run.reason.as_deref(), Some(reason));
        assert!(world.messages().await.is_empty());
    }
    let world = World::new();
    let without = world.request_text();
    let without = without.split_once(",\n            \"engine_run_root\"").expect("a root").0;
    let without = format!("{without}}}");
    let request = admit_runs::runner::request::RunRequest::read(without.as_bytes());
    let run = world.runner().submit(request.expect("a request")).await.expect("readable").run;
    assert_eq!(run.reason.as_deref(), Some("ENGINE_ROOT_MISSING"));
}
