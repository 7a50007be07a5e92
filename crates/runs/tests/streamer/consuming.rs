//! Consuming READY messages: the outcome of each, and that none is lost.

use admit_runs::streamer::checkpoint::Checkpoints as _;
use std::sync::Arc;

use admit_artifacts::Artifacts as _;
use admit_bus::file::{self, FileBus, FileReader};
use admit_bus::{Bus as _, Message};
use admit_core::Millis;
use admit_runs::streamer::control::{Control as _, FileControl};
use admit_runs::streamer::gate::PushResult;
use admit_runs::streamer::{ReadyStatus, Reason};
use tokio_util::sync::CancellationToken;

use crate::world::{FACTS, RUN, World, id};

const TOPIC: &str = "fp.bus.control.v1";

/// Status and reason of a READY with edited facts.
async fn with_facts(edit: impl Fn(String) -> String) -> (ReadyStatus, String) {
    let world = World::golden();
    world.commit_facts(&edit(world.facts())).await;
    world.control.send(world.ready(&id('a')));
    let outcome = world.one().await;
    assert_eq!(world.gate.pushes(), 0, "nothing may be pushed");
    let reason = outcome.reason.unwrap_or_default();
    if outcome.status == ReadyStatus::Failed {
        assert_eq!(world.record(&id('a')), [format!("FAILED {reason} 0")]);
    }
    (outcome.status, reason)
}

#[tokio::test]
async fn other_messages_are_skipped_permanently() {
    let world = World::golden();
    world.control.send("not json");
    world.control.send(world.ready(&id('a')).replace(TOPIC, "fp.bus.other.v1"));
    world.control.send("{\"event_id\":\"an event of the class control\"}");
    let cycle = world.cycle().await;
    assert_eq!((cycle.dropped, cycle.outcomes.len()), (3, 0));
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "3");
}

#[tokio::test]
async fn missing_or_invalid_facts_fail_the_run() {
    let world = World::golden();
    world.control.send(world.ready(&id('a')));
    assert_eq!(world.one().await.reason.as_deref(), Some("RUN_FACTS_INVALID"), "no facts at all");
    for name in [
        "locators",
        "gate_receipts",
        "policy_rev",
        "bundle_hash",
        "plan_ref",
        "record_ref",
        "status_ref",
        "pins",
        "seed",
    ] {
        let edited = |facts: String| facts.replacen(&format!("\"{name}\":"), "\"other\":", 1);
        let found = with_facts(edited).await;
        assert_eq!(found, (ReadyStatus::Failed, "RUN_FACTS_INVALID".to_owned()), "{name}");
    }
    let found = with_facts(|_| "{".to_owned()).await;
    assert_eq!(found.1, "RUN_FACTS_INVALID");
}

#[tokio::test]
async fn facts_that_do_not_match_ready_fail_the_run() {
    let other = |facts: String| {
        let at = facts.find("\"bundle_hash\":\"").expect("a hash") + "\"bundle_hash\":\"".len();
        let digit = if facts[at..].starts_with('0') { "1" } else { "0" };
        format!("{}{digit}{}", &facts[..at], &facts[at + 1..])
    };
    let found = with_facts(other).await;
    assert_eq!(found, (ReadyStatus::Failed, "RUN_FACTS_INVALID".to_owned()));
}

#[tokio::test]
async fn missing_or_differing_ids_fail_the_run_in_the_order_of_the_contract() {
    let run_id = "df5647f07d4f430de9cfde91f3a454b6";
    let platform = format!("\"platform_run_id\":\"{RUN}\"");
    let scenario = format!("\"scenario_run_id\":\"{run_id}\"");
    for (from, to, reason) in [
        (&platform, "\"other\":0", Reason::PlatformRunIdMissing),
        (
            &platform,
            "\"platform_run_id\":\"platform_20250101T000000Z\"",
            Reason::PlatformRunIdMismatch,
        ),
        (&scenario, "\"other\":0", Reason::ScenarioRunIdMissing),
        (&scenario, "\"scenario_run_id\":\"0\"", Reason::ScenarioRunIdMismatch),
    ] {
        let found = with_facts(|facts| facts.replacen(from, to, 1)).await;
        assert_eq!(found, (ReadyStatus::Failed, reason.as_str().to_owned()));
    }
    let scenario = "\"scenario_id\":\"baseline_v1\"";
    let found = with_facts(|facts| facts.replace(scenario, "\"x\":0")).await;
    assert_eq!(found.1, "SCENARIO_ID_MISSING");
}

#[tokio::test]
async fn a_missing_or_ambiguous_pack_location_fails_the_run() {
    let world = World::golden();
    let named = format!("\"engine_run_root\":\"{}\"", world.root());
    world.commit_facts(&world.facts().replace(&named, "\"engine_run_root\":\"/elsewhere\"")).await;
    world.control.send(world.ready(&id('a')));
    assert_eq!(world.one().await.reason.as_deref(), Some("ENGINE_ROOT_MISMATCH"));
    let world = World::golden();
    let named = format!("\"engine_run_root\":\"{}\"", world.root());
    world.commit_facts(&world.facts().replace(&named, "\"x\":0")).await;
    world.control.send(world.ready(&id('a')).replace(&named, "\"x\":0"));
    assert_eq!(world.one().await.reason.as_deref(), Some("ENGINE_ROOT_MISSING"));
}

#[tokio::test]
async fn a_ready_of_another_platform_run_is_skipped_permanently() {
    let mut world = World::golden();
    world.announce().await;
    world.settings.platform_run_id = Some("platform_20260101T000000Z".to_owned());
    let outcome = world.one().await;
    assert_eq!(outcome.status, ReadyStatus::SkippedOutOfScope);
    assert_eq!(outcome.reason.as_deref(), Some("PLATFORM_RUN_SCOPE_MISMATCH"));
    assert_eq!(world.record(&id('a')), Vec::<String>::new(), "not below the run itself");
    let path = "fraud-platform/platform_20260101T000000Z/wsp/ready_runs/";
    let listed = world.artifacts().list(path, None, 10).await.unwrap();
    assert!(listed.iter().any(|path| path.ends_with(".jsonl")), "{listed:?}");
    assert_eq!(world.gate.pushes(), 0);
    assert!(world.cycle().await.outcomes.is_empty(), "it is not processed again");
}

#[tokio::test]
async fn a_message_skipped_for_one_platform_run_is_processed_for_its_own() {
    let mut world = World::golden();
    world.announce().await;
    world.settings.platform_run_id = Some("platform_20260101T000000Z".to_owned());
    assert_eq!(world.one().await.status, ReadyStatus::SkippedOutOfScope);
    // Same folder: both streamers share the bus and the checkpoints.
    world.settings.platform_run_id = Some(RUN.to_owned());
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    world.settings.platform_run_id = None;
    assert_eq!(world.one().await.status, ReadyStatus::SkippedDuplicate, "it is settled");
}

#[tokio::test]
async fn a_recreated_bus_is_read_from_its_beginning() {
    for position in ["1", "77"] {
        let world = World::golden();
        world.checkpoints().move_to(TOPIC, 0, position).unwrap();
        let mut streamer = world.streamer();
        let stop = CancellationToken::new();
        assert!(streamer.cycle(&stop).await.unwrap().outcomes.is_empty(), "no messages yet");
        world.announce().await;
        let cycle = streamer.cycle(&stop).await.unwrap();
        assert_eq!(cycle.outcomes.len(), 1, "the position of the old bus is not used");
        assert_eq!(cycle.outcomes[0].status, ReadyStatus::Streamed);
        assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "1");
    }
}

#[tokio::test]
async fn a_deferred_ready_is_not_recorded_and_streamed_once_the_gate_is_alive() {
    let world = World::golden();
    world.announce().await;
    *world.gate.unhealthy.lock().unwrap() = Some("cannot connect".to_owned());
    let mut streamer = world.streamer();
    let stop = CancellationToken::new();
    for _ in 0..3 {
        let cycle = streamer.cycle(&stop).await.unwrap();
        assert_eq!(cycle.outcomes[0].status, ReadyStatus::DeferredDownstreamNotReady);
        assert_eq!(cycle.outcomes[0].detail.as_deref(), Some("cannot connect"));
        assert!(!cycle.is_settled());
    }
    assert_eq!(world.record(&id('a')), Vec::<String>::new());
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "", "not past it");
    *world.gate.unhealthy.lock().unwrap() = None;
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, ReadyStatus::Streamed);
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_failed_ready_is_retried_without_blocking_others() {
    let mut world = World::golden().traffic_only();
    world.settings.in_flight = 1;
    world.announce().await;
    world.control.send(world.ready(&id('b')));
    world.gate.script.lock().unwrap().push_back(PushResult::Refused { reason: "400".to_owned() });
    let mut streamer = world.streamer();
    let stop = CancellationToken::new();
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, ReadyStatus::Failed, "{cycle:?}");
    assert_eq!(cycle.outcomes[0].reason.as_deref(), Some("IG_PUSH_REJECTED"));
    assert_eq!(
        cycle.outcomes[1].status,
        ReadyStatus::Streamed,
        "a failed run does not block others"
    );
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "", "not past a failed message");
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, ReadyStatus::Waiting, "in backoff");
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, ReadyStatus::Streamed);
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "2");
    assert_eq!(world.record(&id('a')), ["FAILED IG_PUSH_REJECTED 0", "STREAMED - 3"]);
    assert_eq!(world.gate.ids().len(), 3);
}

#[tokio::test]
async fn messages_beyond_the_limit_wait_for_the_next_cycle() {
    let mut world = World::golden();
    world.announce().await;
    for digit in ['b', 'c'] {
        world.control.send(world.ready(&id(digit)));
    }
    world.settings.max_messages = Some(1);
    let mut streamer = world.streamer();
    let stop = CancellationToken::new();
    for (cycle_index, position) in ["1", "2", "3"].into_iter().enumerate() {
        let cycle = streamer.cycle(&stop).await.unwrap();
        let streamed = cycle.outcomes.iter().filter(|o| o.status == ReadyStatus::Streamed).count();
        let waiting = cycle.outcomes.iter().filter(|o| o.status == ReadyStatus::Waiting).count();
        assert_eq!((streamed, waiting), (1, 2 - cycle_index));
        assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), position);
    }
}

#[tokio::test]
async fn messages_are_read_in_pages() {
    let world = World::golden();
    for _ in 0..250 {
        world.control.send("no ready");
    }
    world.announce().await;
    let cycle = world.cycle().await;
    assert_eq!((cycle.dropped, cycle.outcomes.len()), (250, 1));
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "251");
    assert_eq!(*world.control.read_from.lock().unwrap(), ["", "100", "200"]);
}

#[tokio::test]
async fn every_failure_is_recorded_with_its_settings() {
    let mut world = World::golden();
    world.control.send(world.ready(&id('a')));
    for checkpoint_every in [10, 7] {
        world.settings.checkpoint_every = checkpoint_every;
        assert_eq!(world.one().await.status, ReadyStatus::Failed);
    }
    world.commit_facts(&world.facts()).await;
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    let failed = "FAILED RUN_FACTS_INVALID 0";
    assert_eq!(world.record(&id('a')), [failed, failed, "STREAMED - 12"]);
    let path = format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs/{}.jsonl", id('a'));
    let text = std::fs::read_to_string(world.folder.path().join(path)).unwrap();
    let knobs: Vec<bool> =
        text.lines().map(|line| line.contains("\"checkpoint_every\":7")).collect();
    assert_eq!(knobs, [false, true, true]);
}

#[tokio::test]
async fn a_partial_line_in_a_record_is_ignored() {
    let world = World::golden();
    world.announce().await;
    let folder = world.folder.path().join(format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs"));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.jsonl", id('a')));
    std::fs::write(&path, "{\"status\":\"STREAMED\"").unwrap();
    assert_eq!(world.one().await.status, ReadyStatus::Streamed);
    assert_eq!(world.record(&id('a')), ["STREAMED - 12"], "the partial line is removed");
}

#[tokio::test]
async fn references_outside_the_store_are_refused() {
    let world = World::golden();
    world.announce().await;
    for (digit, reference) in
        [('b', "../../../etc/passwd"), ('c', "/etc/passwd"), ('d', "s3://bucket/x.json")]
    {
        world.control.send(world.ready(&id(digit)).replace(FACTS, reference));
    }
    let cycle = world.cycle().await;
    for outcome in &cycle.outcomes[1..] {
        assert_eq!(outcome.reason.as_deref(), Some("RUN_FACTS_INVALID"), "{outcome:?}");
    }
}

#[tokio::test]
async fn the_file_bus_of_a_running_gate_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let reader = FileControl::new(FileReader::new(folder.path()));
    assert_eq!(reader.read(TOPIC, 0, "", 10).await.unwrap(), []);
    let bus = FileBus::open(file::Options::new(folder.path())).unwrap();
    let message = |n: u8| Message {
        topic: Arc::from(TOPIC),
        partition_key: "r".to_owned(),
        dedupe_key: format!("k{n}"),
        payload: format!("{{\"n\":{n}}}").into(),
        at: Millis(1),
    };
    bus.publish(vec![message(0), message(1)]).await;
    let texts = |records: Vec<admit_bus::StoredMessage>| -> Vec<String> {
        records.iter().map(|r| String::from_utf8_lossy(&r.payload).into_owned()).collect()
    };
    let read = texts(reader.read(TOPIC, 0, "1", 10).await.unwrap());
    assert_eq!(read, ["{\"n\":1}"]);
    assert_eq!(reader.read(TOPIC, 0, "2", 10).await.unwrap(), []);
    bus.publish(vec![message(2)]).await;
    let read = texts(reader.read(TOPIC, 0, "2", 10).await.unwrap());
    assert_eq!(read, ["{\"n\":2}"], "a grown log is read again");
    assert!(reader.read(TOPIC, 1, "", 10).await.is_err());
    assert!(reader.read(TOPIC, 0, "x", 10).await.is_err());
}
