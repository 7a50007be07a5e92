//! Streaming the golden pack: identities, envelopes, records.

use admit_contracts::ingestion_gate::envelope;
use admit_core::json::{self, Form, Limits, Value};
use admit_runs::streamer::ReadyStatus;

use crate::world::{World, id, member};

const TRAFFIC: &str = "s3_event_stream_with_fraud_6B";

#[tokio::test]
async fn the_golden_pack_becomes_the_golden_envelope() {
    let world = World::golden();
    world.announce().await;
    let outcome = world.one().await;
    assert_eq!(outcome.status, ReadyStatus::Streamed, "{outcome:?}");
    let vectors = include_bytes!("../fixtures/vectors.json");
    let vectors = json::parse(vectors, &Limits::default()).unwrap();
    let golden = vectors.get("envelope").and_then(Value::as_object).unwrap();
    let admitted = world.gate.admitted.lock().unwrap();
    let body = &admitted[&member(include_bytes!("../fixtures/vectors.json"), "/event_id")];
    let envelope = json::parse(body, &Limits::default()).unwrap();
    for (name, value) in golden {
        let canonical = |value: &Value<'_>| json::canonical(value, Form::Ascii).unwrap();
        match name {
            // Specific to the run and the pack; the vector has other values.
            "scenario_run_id" | "trace_id" => {}
            _ => assert_eq!(envelope.get(name).map(canonical), Some(canonical(value)), "{name}"),
        }
    }
}

#[tokio::test]
async fn every_envelope_is_canonical_and_valid() {
    let world = World::golden();
    world.announce().await;
    world.one().await;
    let admitted = world.gate.admitted.lock().unwrap();
    assert_eq!(admitted.len(), 12, "4 outputs of 3 rows");
    for body in admitted.values() {
        let value = json::parse(body, &Limits::default()).unwrap();
        assert_eq!(&json::canonical(&value, Form::Ascii).unwrap()[..], &body[..]);
        let object = value.as_object().unwrap();
        assert_eq!(envelope::violations(object), Vec::<String>::new());
        for pin in envelope::PINS {
            assert!(envelope::is_sound(object, pin), "{pin}");
        }
        assert_eq!(
            member(body, "/run_id"),
            "c25a2675fbfbacd952b13bb594880e92",
            "the id of the engine run"
        );
        assert_eq!(member(body, "/schema_version"), "v1");
    }
}

#[tokio::test]
async fn a_streamed_run_is_recorded_once_and_never_streamed_again() {
    let world = World::golden();
    world.announce().await;
    let outcome = world.one().await;
    assert_eq!((outcome.streamed.emitted(), outcome.streamed.counts().admitted), (12, 12));
    assert_eq!(outcome.streamed.outputs[0].output_id, TRAFFIC, "traffic first");
    assert_eq!(world.record(&id('a')), ["STREAMED - 12"]);
    world.control.send(world.ready(&id('a')));
    let again = world.cycle().await;
    assert!(again.outcomes.iter().all(|o| o.status == ReadyStatus::SkippedDuplicate), "{again:?}");
    assert_eq!((world.gate.pushes(), world.record(&id('a')).len()), (12, 1));
    let session = world.session();
    for kind in [
        "ready_received",
        "engine_world_selected",
        "stream_start",
        "checkpoint_saved",
        "stream_complete",
        "engine_world_streamed",
    ] {
        assert!(session.iter().any(|logged| logged == kind), "{kind} in {session:?}");
    }
}

#[tokio::test]
async fn a_replay_without_checkpoints_sends_only_duplicates() {
    let mut world = World::golden();
    world.announce().await;
    world.one().await;
    let first = world.gate.ids();
    (world.data, world.settings.again) = ("other-data", true);
    let outcome = world.one().await;
    assert_eq!((outcome.streamed.counts().duplicates, outcome.streamed.emitted()), (12, 12));
    assert_eq!(world.gate.ids(), first);
}

#[tokio::test]
async fn a_replay_from_the_start_sends_every_row_and_keeps_the_checkpoints() {
    let mut world = World::golden();
    world.announce().await;
    world.one().await;
    (world.settings.again, world.settings.from_start) = (true, true);
    world.settings.max_events_per_output = Some(2);
    let outcome = world.one().await;
    assert_eq!((outcome.streamed.counts().duplicates, outcome.streamed.emitted()), (8, 8));
    (world.settings.from_start, world.settings.max_events_per_output) = (false, None);
    let outcome = world.one().await;
    assert_eq!(
        (outcome.streamed.emitted(), world.gate.pushes()),
        (12, 20),
        "nothing is left to send"
    );
}

#[tokio::test]
async fn the_row_limit_counts_from_the_first_row_also_after_a_restart() {
    let mut world = World::golden();
    world.announce().await;
    world.settings.max_events_per_output = Some(2);
    let outcome = world.one().await;
    assert!(outcome.streamed.outputs.iter().all(|output| output.is_capped && output.rows == 2));
    assert_eq!(world.record(&id('a')), ["STREAMED - 8"], "a limited run counts as streamed");
    world.settings.again = true;
    let outcome = world.one().await;
    assert_eq!((outcome.streamed.emitted(), world.gate.pushes()), (8, 8), "nothing more is sent");
    world.settings.max_events_per_output = Some(3);
    let outcome = world.one().await;
    assert_eq!(
        (outcome.streamed.emitted(), world.gate.pushes()),
        (12, 12),
        "the third row of each output"
    );
    assert_eq!(world.gate.duplicates(), 0);
}

#[tokio::test]
async fn quarantined_rows_are_counted_separately() {
    use admit_contracts::ingestion_gate::ReceiptDecision;
    use admit_runs::streamer::gate::PushResult;
    let world = World::golden();
    world.announce().await;
    let quarantine = PushResult::Decided(ReceiptDecision::Quarantine);
    world.gate.script.lock().unwrap().extend(vec![quarantine; 5]);
    let counts = world.one().await.streamed.counts();
    assert_eq!((counts.admitted, counts.duplicates, counts.quarantined), (7, 0, 5));
}
