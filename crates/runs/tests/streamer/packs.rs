//! Invalid, damaged and incomplete packs: nothing of them is streamed.

use std::fs;
use std::path::Path;

use admit_core::Millis;
use admit_runs::streamer::checkpoint::{CheckpointReason, Checkpoints as _, Cursor};
use admit_runs::streamer::identity::{
    WorldPins, checkpoint_pack_key, fallback_pack_key, oracle_pack_id,
};
use admit_runs::streamer::progress::Counts;
use admit_runs::streamer::{CycleOutcome, ReadyStatus, Settings};

use crate::synthetic::{Cells, write_part};
use crate::world::{RUN, World, id, member};

const VIEW: &str = "stream_view/ts_utc/output_id=arrival_events_5B";
const MF: &str = "c8fd43cd60ce0ede0c63d2ceb4610f167c9b107e1d59b9b8c7d7b8d0028b05c8";
const PH: &str = "56d45126eaabedd083a1d8428a763e0278c89efec5023cfd6cf3cab7fc8dd2d7";

/// Streams the golden pack after `damage` and expects a failure without pushes. Returns the reason.
async fn failure_reason(damage: impl FnOnce(&Path, &mut World)) -> String {
    let outcome = stream_damaged(damage).await;
    assert_eq!(outcome.status, ReadyStatus::Failed, "{outcome:?}");
    outcome.reason.unwrap_or_default()
}

async fn stream_damaged(damage: impl FnOnce(&Path, &mut World)) -> CycleOutcome {
    let mut world = World::golden();
    let pack = world.pack.clone();
    damage(&pack, &mut world);
    world.announce().await;
    let outcome = world.one().await;
    if outcome.status == ReadyStatus::Failed {
        assert_eq!(world.gate.pushes(), 0, "nothing may be pushed: {outcome:?}");
    }
    outcome
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[tokio::test]
async fn a_missing_damaged_or_incomplete_receipt_is_refused() {
    let receipt = |pack: &Path| pack.join("run_receipt.json");
    assert_eq!(
        failure_reason(|pack, _| fs::remove_file(receipt(pack)).unwrap()).await,
        "RUN_RECEIPT_UNREADABLE"
    );
    assert_eq!(
        failure_reason(|pack, _| fs::write(receipt(pack), "{\"run_id\"").unwrap()).await,
        "RUN_RECEIPT_UNREADABLE"
    );
    for name in ["manifest_fingerprint", "parameter_hash", "seed", "run_id"] {
        let damage = |pack: &Path, _: &mut World| edit(&receipt(pack), name, "other");
        assert_eq!(failure_reason(damage).await, "WORLD_KEY_MISSING", "{name}");
    }
}

#[tokio::test]
async fn a_pack_with_other_pins_than_the_facts_is_refused() {
    for (from, to) in [(MF, &"a".repeat(64)), (PH, &"b".repeat(64)), ("42", &"43".to_owned())] {
        let damage = |pack: &Path, _: &mut World| edit(&pack.join("run_receipt.json"), from, to);
        assert_eq!(failure_reason(damage).await, "WORLD_KEY_MISMATCH", "{from}");
    }
}

#[tokio::test]
async fn a_ready_of_another_world_than_its_facts_is_refused() {
    for (from, to) in [(MF, "a".repeat(64)), (PH, "b".repeat(64)), ("baseline_v1", "x".to_owned())]
    {
        let world = World::golden();
        world.commit_facts(&world.facts()).await;
        world.control.send(world.ready(&id('a')).replace(from, &to));
        let outcome = world.one().await;
        assert_eq!(outcome.reason.as_deref(), Some("WORLD_KEY_MISMATCH"), "{from}");
        assert_eq!(world.gate.pushes(), 0);
    }
}

/// A manifest with the given id, or the correct one.
fn manifest(seed: u64, id: Option<&str>) -> String {
    let world = WorldPins {
        manifest_fingerprint: MF.to_owned(),
        parameter_hash: PH.to_owned(),
        seed: 42,
        scenario_id: "baseline_v1".to_owned(),
    };
    let correct = oracle_pack_id(&world, "rel-9", "cat", "map");
    format!(
        "{{\"oracle_pack_id\":\"{}\",\"engine_release\":\"rel-9\",\"catalogue_digest\":\"cat\",\
         \"gate_map_digest\":\"map\",\"world_key\":{{\"manifest_fingerprint\":\"{MF}\",\
         \"parameter_hash\":\"{PH}\",\"scenario_id\":\"baseline_v1\",\"seed\":{seed}}}}}",
        id.unwrap_or(&correct)
    )
}

#[tokio::test]
async fn a_manifest_must_match_the_world_and_its_own_id() {
    let write = |text: String| {
        move |pack: &Path, _: &mut World| {
            fs::write(pack.join("_oracle_pack_manifest.json"), text).unwrap();
        }
    };
    assert_eq!(failure_reason(write(manifest(43, None))).await, "WORLD_KEY_MISMATCH");
    assert_eq!(failure_reason(write(manifest(42, Some(&id('a'))))).await, "PACK_MANIFEST_INVALID");
    assert_eq!(failure_reason(write(manifest(42, Some("short")))).await, "PACK_MANIFEST_INVALID");
    assert_eq!(failure_reason(write("[".to_owned())).await, "PACK_MANIFEST_INVALID");
}

#[tokio::test]
async fn pack_and_release_of_the_manifest_are_in_every_envelope() {
    let world = World::golden();
    fs::write(world.pack.join("_oracle_pack_manifest.json"), manifest(42, None)).unwrap();
    world.announce().await;
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    let admitted = world.gate.admitted.lock().unwrap();
    for body in admitted.values() {
        assert_eq!(member(body, "/span_id"), "rel-9");
        assert_eq!(member(body, "/trace_id").len(), 64);
    }
}

#[tokio::test]
async fn dev_and_prod_require_a_manifest_and_a_seal() {
    for profile in ["dev", "prod"] {
        let set = |world: &mut World| profile.clone_into(&mut world.settings.profile);
        assert_eq!(failure_reason(|_, world| set(world)).await, "PACK_MANIFEST_MISSING");
        let write = |pack: &Path| {
            fs::write(pack.join("_oracle_pack_manifest.json"), manifest(42, None)).unwrap();
        };
        let unsealed = failure_reason(|pack, world| {
            set(world);
            write(pack);
        });
        assert_eq!(unsealed.await, "PACK_NOT_SEALED");
        let sealed = stream_damaged(|pack, world| {
            set(world);
            write(pack);
            fs::write(pack.join("_SEALED.json"), "{}").unwrap();
        });
        assert_eq!(sealed.await.status, ReadyStatus::Streamed);
    }
}

#[tokio::test]
async fn outputs_of_a_failed_gate_are_not_streamed() {
    let flag = format!("data/layer2/5B/validation/manifest_fingerprint={MF}/_passed.flag");
    let gone = failure_reason(|pack, _| fs::remove_file(pack.join(&flag)).unwrap());
    assert_eq!(gone.await, "GATE_PASS_MISSING");
    let world = World::golden();
    world.commit_facts(&world.facts().replace("PASS", "FAIL")).await;
    world.control.send(world.ready(&id('a')));
    assert_eq!(world.one().await.reason.as_deref(), Some("GATE_PASS_MISSING"));
}

#[tokio::test]
async fn outputs_must_be_in_the_catalogue_and_include_traffic() {
    let only = |id: &str| {
        let id = id.to_owned();
        move |_: &Path, world: &mut World| world.settings.outputs = vec![id]
    };
    assert_eq!(failure_reason(only("arrival_events_5B")).await, "NO_TRAFFIC_OUTPUTS");
    assert_eq!(failure_reason(only("s9_mystery")).await, "UNKNOWN_OUTPUT_ID");
    let baseline = failure_reason(|_, world| "baseline".clone_into(&mut world.settings.mode));
    assert_eq!(baseline.await, "NO_TRAFFIC_OUTPUTS", "the run has no baseline traffic");
    let alone = stream_damaged(only("s3_event_stream_with_fraud_6B")).await;
    assert_eq!((alone.streamed.outputs.len(), alone.streamed.emitted()), (1, 3));
}

#[tokio::test]
async fn a_producer_that_is_not_allowed_streams_nothing() {
    let other = failure_reason(|_, world| "svc:other".clone_into(&mut world.settings.producer));
    assert_eq!(other.await, "PRODUCER_NOT_ALLOWED");
}

#[tokio::test]
async fn a_view_must_be_complete_sorted_and_of_its_output() {
    let view = |pack: &Path| pack.join(VIEW);
    let gone = failure_reason(|pack, _| fs::remove_dir_all(view(pack)).unwrap());
    assert_eq!(gone.await, "STREAM_VIEW_MISSING");
    let gone = failure_reason(|pack, _| {
        fs::remove_file(view(pack).join("_stream_view_manifest.json")).unwrap();
    });
    assert_eq!(gone.await, "STREAM_VIEW_MISSING");
    let empty =
        failure_reason(|pack, _| fs::remove_file(view(pack).join("part-000000.parquet")).unwrap());
    assert_eq!(empty.await, "STREAM_VIEW_EMPTY");
    let receipt = |text: &'static str| {
        failure_reason(move |pack, _| {
            fs::write(view(pack).join("_stream_sort_receipt.json"), text).unwrap();
        })
    };
    assert_eq!(receipt("{\"status\":\"FAILED\"}").await, "STREAM_VIEW_RECEIPT_BAD");
    assert_eq!(receipt("").await, "STREAM_VIEW_RECEIPT_BAD");
    let other = receipt("{\"status\":\"OK\",\"stream_view_id\":\"other\"}");
    assert_eq!(other.await, "STREAM_VIEW_ID_MISMATCH");
    let other = failure_reason(|pack, _| {
        let path = view(pack).join("_stream_view_manifest.json");
        edit(&path, "arrival_events_5B", "arrival_events_6B");
    });
    assert_eq!(other.await, "STREAM_VIEW_OUTPUT_MISMATCH");
}

#[tokio::test]
async fn a_damaged_part_is_detected_before_the_first_push() {
    let part = |pack: &Path| pack.join(VIEW).join("part-000000.parquet");
    for cut in [0, 3, 100, 2_000] {
        let outcome = stream_damaged(|pack, _| {
            let bytes = fs::read(part(pack)).unwrap();
            fs::write(part(pack), &bytes[..cut]).unwrap();
        });
        let outcome = outcome.await;
        assert_eq!(outcome.reason.as_deref(), Some("STREAM_FAILED"), "cut at {cut}");
        let detail = outcome.detail.unwrap();
        assert!(detail.contains("part-000000.parquet"), "{detail}");
    }
}

#[tokio::test]
async fn damage_inside_a_page_fails_only_the_run() {
    for at in (4..1_200).step_by(97) {
        let world = World::golden().traffic_only();
        let view = "stream_view/ts_utc/output_id=s3_event_stream_with_fraud_6B/part-000000.parquet";
        let path = world.pack.join(view);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 0xff;
        fs::write(&path, bytes).unwrap();
        world.announce().await;
        let outcome = world.one().await;
        assert!(
            matches!(outcome.status, ReadyStatus::Failed | ReadyStatus::Streamed),
            "{at}: {outcome:?}"
        );
    }
}

/// Streams a part with these columns instead of the golden traffic.
async fn with_rows(columns: Vec<(&'static str, Cells)>) -> CycleOutcome {
    let world = World::golden().traffic_only();
    let view = "stream_view/ts_utc/output_id=s3_event_stream_with_fraud_6B/part-000000.parquet";
    write_part(&world.pack.join(view), [columns]).unwrap();
    world.announce().await;
    world.one().await
}

fn text(text: &str) -> Cells {
    Cells::Text(vec![text.to_owned()])
}

fn row() -> Vec<(&'static str, Cells)> {
    vec![
        ("flow_id", Cells::Int(vec![1])),
        ("event_seq", Cells::Int(vec![0])),
        ("ts_utc", text("2026-01-01T00:00:00Z")),
        ("seed", Cells::Int(vec![42])),
        ("manifest_fingerprint", text(MF)),
        ("parameter_hash", text(PH)),
        ("scenario_id", text("baseline_v1")),
    ]
}

#[tokio::test]
async fn a_row_of_another_world_is_refused() {
    assert_eq!(with_rows(row()).await.status, ReadyStatus::Streamed);
    for (name, cells) in [
        ("seed", Cells::Int(vec![43])),
        ("manifest_fingerprint", text(&"a".repeat(64))),
        ("parameter_hash", text(&"a".repeat(64))),
        ("scenario_id", text("other")),
    ] {
        let mut changed = row();
        changed.iter_mut().find(|(column, _)| *column == name).unwrap().1 = cells;
        let outcome = with_rows(changed).await;
        assert_eq!(outcome.reason.as_deref(), Some("WORLD_KEY_MISMATCH"), "{name}");
        let detail = outcome.detail.unwrap();
        assert!(detail.contains("part-000000.parquet: row 0"), "{detail}");
    }
}

#[tokio::test]
async fn a_row_without_primary_key_or_time_is_refused() {
    for (name, reason) in [
        ("flow_id", "PRIMARY_KEY_MISSING"),
        ("seed", "PRIMARY_KEY_MISSING"),
        ("ts_utc", "STREAM_FAILED"),
    ] {
        let lacking = row().into_iter().filter(|(column, _)| *column != name).collect();
        assert_eq!(with_rows(lacking).await.reason.as_deref(), Some(reason), "{name}");
    }
    let mut late = row();
    late[2].1 = text("yesterday");
    assert_eq!(with_rows(late).await.reason.as_deref(), Some("STREAM_FAILED"));
}

/// Streams two rows of each output, changes every checkpoint, and streams everything.
async fn resumed_from(
    last_file: &str,
    last_row_index: u64,
    last_ts_utc: &str,
) -> (World, CycleOutcome) {
    let mut world = World::golden();
    world.settings.max_events_per_output = Some(2);
    world.announce().await;
    world.one().await;
    let pack_key = fallback_pack_key(&world.root());
    let key = checkpoint_pack_key(&pack_key, RUN, "df5647f07d4f430de9cfde91f3a454b6");
    let checkpoints = world.checkpoints();
    for output in &Settings::default().catalogue.of_mode("fraud") {
        let previous = checkpoints.load(&key, &output.output_id).unwrap().unwrap();
        checkpoints.forget(&key, &output.output_id).unwrap();
        let last_ts_utc = if last_ts_utc.is_empty() { &previous.last_ts_utc } else { last_ts_utc };
        let cursor = Cursor {
            last_file: last_file.to_owned(),
            last_row_index,
            last_ts_utc: last_ts_utc.to_owned(),
            counts: Counts { admitted: 99, ..Counts::default() },
        };
        let reason = CheckpointReason::PeriodicFlush;
        checkpoints.save(&key, &output.output_id, &cursor, reason, Millis(1)).unwrap();
    }
    (world.settings.max_events_per_output, world.settings.again) = (None, true);
    let outcome = world.one().await;
    (world, outcome)
}

#[tokio::test]
async fn a_checkpoint_of_another_pack_skips_no_row() {
    let other = "1999-01-01T00:00:00.000000Z";
    for (file, row, ts) in [
        ("part-000099.parquet", 0, ""),
        ("part-000000.parquet", 3, ""),
        ("part-000000.parquet", 1, other),
    ] {
        let (world, outcome) = resumed_from(file, row, ts).await;
        assert_eq!(outcome.status, ReadyStatus::Streamed, "{outcome:?}");
        assert_eq!((world.gate.ids().len(), world.gate.duplicates()), (12, 8), "{file} {row} {ts}");
        let counts = outcome.streamed.counts();
        assert_eq!((counts.admitted, counts.duplicates), (4, 8), "its counts are dropped too");
    }
    let (world, outcome) = resumed_from("part-000000.parquet", 1, "").await;
    assert_eq!(
        (world.gate.duplicates(), outcome.streamed.emitted()),
        (0, 12),
        "a matching checkpoint is used"
    );
}
