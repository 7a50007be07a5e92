//! READY messages: what becomes of each, and that none is ever lost.

use admit_runs::streamer::checkpoint::Checkpoints as _;
use std::sync::Arc;

use admit_artifacts::Artifacts as _;
use admit_bus::file::{self, FileBus, FileReader};
use admit_bus::{Bus as _, Message};
use admit_core::Millis;
use admit_runs::streamer::control::{Control as _, FileControl};
use admit_runs::streamer::gate::PushResult;
use admit_runs::streamer::{Reason, Status};
use tokio_util::sync::CancellationToken;

use crate::world::{FACTS, RUN, World, id};

const TOPIC: &str = "fp.bus.control.v1";

/// The status and reason of the only READY, with these facts.
async fn with_facts(edit: impl Fn(String) -> String) -> (Status, String) {
    let world = World::golden();
    world.commit_facts(&edit(world.facts())).await;
    world.control.send(world.ready(&id('a')));
    let outcome = world.one().await;
    assert_eq!(world.gate.pushes(), 0, "nothing may leave");
    let reason = outcome.reason.unwrap_or_default();
    if outcome.status == Status::Failed {
        assert_eq!(world.record(&id('a')), [format!("FAILED {reason} 0")]);
    }
    (outcome.status, reason)
}

#[tokio::test]
async fn messages_that_are_no_ready_are_passed_over_for_good() {
    let world = World::golden();
    world.control.send("not json");
    world.control.send(world.ready(&id('a')).replace(TOPIC, "fp.bus.other.v1"));
    world.control.send("{\"event_id\":\"an event of the class control\"}");
    let cycle = world.cycle().await;
    assert_eq!((cycle.dropped, cycle.outcomes.len()), (3, 0));
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "3");
}

#[tokio::test]
async fn facts_that_are_missing_or_bad_fail_the_run() {
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
        assert_eq!(found, (Status::Failed, "RUN_FACTS_INVALID".to_owned()), "{name}");
    }
    let found = with_facts(|_| "{".to_owned()).await;
    assert_eq!(found.1, "RUN_FACTS_INVALID");
}

#[tokio::test]
async fn facts_that_ready_was_not_said_for_fail_the_run() {
    let other = |facts: String| {
        let at = facts.find("\"bundle_hash\":\"").expect("a hash") + "\"bundle_hash\":\"".len();
        let digit = if facts[at..].starts_with('0') { "1" } else { "0" };
        format!("{}{digit}{}", &facts[..at], &facts[at + 1..])
    };
    let found = with_facts(other).await;
    assert_eq!(found, (Status::Failed, "RUN_FACTS_INVALID".to_owned()));
}

#[tokio::test]
async fn ids_that_are_missing_or_differ_fail_the_run_in_the_order_of_the_contract() {
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
        assert_eq!(found, (Status::Failed, reason.as_str().to_owned()));
    }
    let scenario = "\"scenario_id\":\"baseline_v1\"";
    let found = with_facts(|facts| facts.replace(scenario, "\"x\":0")).await;
    assert_eq!(found.1, "SCENARIO_ID_MISSING");
}

#[tokio::test]
async fn nobody_naming_a_pack_or_two_naming_different_ones_fails_the_run() {
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
async fn a_ready_of_another_platform_run_is_skipped_for_good_under_this_one() {
    let mut world = World::golden();
    world.announce().await;
    world.settings.platform_run_id = Some("platform_20260101T000000Z".to_owned());
    let outcome = world.one().await;
    assert_eq!(outcome.status, Status::SkippedOutOfScope);
    assert_eq!(outcome.reason.as_deref(), Some("PLATFORM_RUN_SCOPE_MISMATCH"));
    assert_eq!(world.record(&id('a')), Vec::<String>::new(), "not below the run itself");
    let path = "fraud-platform/platform_20260101T000000Z/wsp/ready_runs/";
    let listed = world.artifacts().list(path, None, 10).await.unwrap();
    assert!(listed.iter().any(|path| path.ends_with(".jsonl")), "{listed:?}");
    assert_eq!(world.gate.pushes(), 0);
    assert!(world.cycle().await.outcomes.is_empty(), "it is not looked at again");
}

#[tokio::test]
async fn what_one_runs_streamer_skips_another_runs_streamer_still_finds() {
    let mut world = World::golden();
    world.announce().await;
    world.settings.platform_run_id = Some("platform_20260101T000000Z".to_owned());
    assert_eq!(world.one().await.status, Status::SkippedOutOfScope);
    // In the same folder: they share the bus and the checkpoints, and take turns.
    world.settings.platform_run_id = Some(RUN.to_owned());
    assert_eq!(world.one().await.status, Status::Streamed);
    world.settings.platform_run_id = None;
    assert_eq!(world.one().await.status, Status::SkippedDuplicate, "one for all finds it done");
}

#[tokio::test]
async fn a_bus_that_was_made_anew_is_read_from_its_beginning() {
    for position in ["1", "77"] {
        let world = World::golden();
        world.checkpoints().move_to(TOPIC, 0, position).unwrap();
        let mut streamer = world.streamer();
        let stop = CancellationToken::new();
        assert!(streamer.cycle(&stop).await.unwrap().outcomes.is_empty(), "there is nothing yet");
        world.announce().await;
        let cycle = streamer.cycle(&stop).await.unwrap();
        assert_eq!(cycle.outcomes.len(), 1, "not passed over by a position of another bus");
        assert_eq!(cycle.outcomes[0].status, Status::Streamed);
        assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "1");
    }
}

#[tokio::test]
async fn a_deferred_ready_is_not_recorded_and_streamed_when_the_gate_is_there() {
    let world = World::golden();
    world.announce().await;
    *world.gate.unwell.lock().unwrap() = Some("cannot connect".to_owned());
    let mut streamer = world.streamer();
    let stop = CancellationToken::new();
    for _ in 0..3 {
        let cycle = streamer.cycle(&stop).await.unwrap();
        assert_eq!(cycle.outcomes[0].status, Status::DeferredDownstreamNotReady);
        assert_eq!(cycle.outcomes[0].detail.as_deref(), Some("cannot connect"));
        assert!(!cycle.is_settled());
    }
    assert_eq!(world.record(&id('a')), Vec::<String>::new());
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "", "never past it");
    *world.gate.unwell.lock().unwrap() = None;
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, Status::Streamed);
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_failed_ready_is_tried_again_and_the_others_do_not_wait_for_it() {
    let mut world = World::golden().traffic_only();
    world.settings.in_flight = 1;
    world.announce().await;
    world.control.send(world.ready(&id('b')));
    world.gate.script.lock().unwrap().push_back(PushResult::Refused { reason: "400".to_owned() });
    let mut streamer = world.streamer();
    let stop = CancellationToken::new();
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, Status::Failed, "{cycle:?}");
    assert_eq!(cycle.outcomes[0].reason.as_deref(), Some("IG_PUSH_REJECTED"));
    assert_eq!(cycle.outcomes[1].status, Status::Streamed, "one bad run does not stop the others");
    assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), "", "never past a failed one");
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, Status::Waiting, "not at once");
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let cycle = streamer.cycle(&stop).await.unwrap();
    assert_eq!(cycle.outcomes[0].status, Status::Streamed);
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
    for (round, position) in ["1", "2", "3"].into_iter().enumerate() {
        let cycle = streamer.cycle(&stop).await.unwrap();
        let streamed = cycle.outcomes.iter().filter(|o| o.status == Status::Streamed).count();
        let waiting = cycle.outcomes.iter().filter(|o| o.status == Status::Waiting).count();
        assert_eq!((streamed, waiting), (1, 2 - round));
        assert_eq!(world.checkpoints().position(TOPIC, 0).unwrap(), position);
    }
}

#[tokio::test]
async fn more_messages_than_a_page_are_all_found() {
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
async fn every_failure_is_recorded_with_the_knobs_it_ran_with() {
    let mut world = World::golden();
    world.control.send(world.ready(&id('a')));
    for checkpoint_every in [10, 7] {
        world.settings.checkpoint_every = checkpoint_every;
        assert_eq!(world.one().await.status, Status::Failed);
    }
    world.commit_facts(&world.facts()).await;
    assert_eq!(world.one().await.status, Status::Streamed);
    let failed = "FAILED RUN_FACTS_INVALID 0";
    assert_eq!(world.record(&id('a')), [failed, failed, "STREAMED - 12"]);
    let path = format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs/{}.jsonl", id('a'));
    let text = std::fs::read_to_string(world.folder.path().join(path)).unwrap();
    let knobs: Vec<bool> =
        text.lines().map(|line| line.contains("\"checkpoint_every\":7")).collect();
    assert_eq!(knobs, [false, true, true]);
}

#[tokio::test]
async fn half_a_line_in_a_record_proves_nothing() {
    let world = World::golden();
    world.announce().await;
    let folder = world.folder.path().join(format!("artifacts/fraud-platform/{RUN}/wsp/ready_runs"));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{}.jsonl", id('a')));
    std::fs::write(&path, "{\"status\":\"STREAMED\"").unwrap();
    assert_eq!(world.one().await.status, Status::Streamed);
    assert_eq!(world.record(&id('a')), ["STREAMED - 12"], "the half line is gone");
}

#[tokio::test]
async fn a_reference_that_leads_out_of_the_store_is_no_facts() {
    let world = World::golden();
    world.announce().await;
    for (digit, place) in
        [('b', "../../../etc/passwd"), ('c', "/etc/passwd"), ('d', "s3://bucket/x.json")]
    {
        world.control.send(world.ready(&id(digit)).replace(FACTS, place));
    }
    let cycle = world.cycle().await;
    for outcome in &cycle.outcomes[1..] {
        assert_eq!(outcome.reason.as_deref(), Some("RUN_FACTS_INVALID"), "{outcome:?}");
    }
}

#[tokio::test]
async fn the_bus_of_a_running_gate_is_read_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let beside = FileControl::new(FileReader::new(folder.path()));
    assert_eq!(beside.read(TOPIC, 0, "", 10).await.unwrap(), []);
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
    let read = texts(beside.read(TOPIC, 0, "1", 10).await.unwrap());
    assert_eq!(read, ["{\"n\":1}"]);
    assert_eq!(beside.read(TOPIC, 0, "2", 10).await.unwrap(), []);
    bus.publish(vec![message(2)]).await;
    let read = texts(beside.read(TOPIC, 0, "2", 10).await.unwrap());
    assert_eq!(read, ["{\"n\":2}"], "what was empty is looked at again when it grows");
    assert!(beside.read(TOPIC, 1, "", 10).await.is_err());
    assert!(beside.read(TOPIC, 0, "x", 10).await.is_err());
}
