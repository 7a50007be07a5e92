//! Re-emitting messages of runs.

use admit_core::json::Value;
use admit_ledger::scenario_runs::PublicationState;
use admit_runs::runner::reason::RefusalCode;
use admit_runs::runner::{ReemitRequest, Runner};
use admit_testkit::faulty_bus::MessageFault;

use crate::world::{PLATFORM_RUN, RUN, World, refusal};

fn request(body: &str) -> ReemitRequest {
    ReemitRequest::read(body.as_bytes(), "svc:operator").expect("a request")
}

fn kinds(messages: &[Value<'_>]) -> Vec<(String, String)> {
    let text = |value: &Value<'_>, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned()
    };
    messages
        .iter()
        .map(|message| (text(message, "/attributes/kind"), text(message, "/message_id")))
        .collect()
}

#[tokio::test]
async fn a_reemitted_ready_has_its_original_message_id() {
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    for body in ["", r#"{"reemit_kind":"READY_ONLY","reason":"lost"}"#, r#"{"reemit_kind":"BOTH"}"#]
    {
        let again = runner.reemit(RUN, &request(body)).await.expect("published");
        assert_eq!(again.kind, "READY_REEMIT");
    }
    let messages = kinds(&world.messages().await);
    let words: Vec<&str> = messages.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(words, ["READY", "READY_REEMIT", "READY_REEMIT", "READY_REEMIT"]);
    assert!(messages.iter().all(|(_, id)| *id == messages[0].1), "{messages:?}");
    assert_eq!(world.events().await.len(), 6, "each is in the record");
    world.check_files().await;
}

#[tokio::test]
async fn a_dry_run_returns_the_message_id_and_publishes_nothing() {
    let world = World::new();
    let before = world.submit().await.run;
    let dry = world.runner().reemit(RUN, &request(r#"{"dry_run":true}"#)).await.expect("readable");
    assert!(dry.is_dry_run);
    assert_eq!(kinds(&world.messages().await)[0].1, dry.message_id);
    assert_eq!(world.run().await, before);
}

#[tokio::test]
async fn only_existing_messages_can_be_reemitted() {
    let world = World::new();
    let runner = world.runner();
    assert_eq!(refusal(runner.reemit(RUN, &request("")).await), RefusalCode::RunNotFound);
    world.submit().await;
    let terminal = request(r#"{"reemit_kind":"TERMINAL_ONLY"}"#);
    let refused = runner.reemit(RUN, &terminal).await;
    assert_eq!(refusal(refused), RefusalCode::ReemitTerminalOnlyMismatch);
    let facts = format!("artifacts/{PLATFORM_RUN}/sr/run_facts_view/{RUN}.json");
    let facts = world.folder.path().join(facts);
    std::fs::remove_file(&facts).expect("removed");
    runner.reemit(RUN, &request("")).await.expect("the ledger has them");
    assert!(facts.exists(), "lost facts are restored before publishing");

    let world = World::new();
    let runner = world.runner();
    runner.submit(world.request_with(r#""output_ids":["x"]"#)).await.expect("readable");
    let refused = runner.reemit(RUN, &request("")).await;
    assert_eq!(refusal(refused), RefusalCode::ReemitReadyOnlyMismatch);
    let ended = runner.reemit(RUN, &terminal).await.expect("published");
    let again = runner.reemit(RUN, &request(r#"{"reemit_kind":"BOTH"}"#)).await.expect("published");
    assert_eq!((ended.kind, &ended.message_id), ("TERMINAL_REEMIT", &again.message_id));
    assert_eq!(world.messages().await.len(), 2);
}

#[tokio::test]
async fn a_reemit_requires_an_actor_and_is_rate_limited() {
    assert!(ReemitRequest::read(b"", " ").is_err());
    assert!(ReemitRequest::read(b"{\"reemit_kind\":\"ALL\"}", "a").is_err());
    assert!(ReemitRequest::read(b"{\"kind\":\"BOTH\"}", "a").is_err());
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    for _ in 0..10 {
        runner.reemit(RUN, &request("")).await.expect("published");
    }
    assert_eq!(refusal(runner.reemit(RUN, &request("")).await), RefusalCode::ReemitRateLimit);
    world.advance(3_601);
    runner.reemit(RUN, &request("")).await.expect("published");
}

#[tokio::test]
async fn a_run_of_another_platform_run_requires_an_allowed_reason() {
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    let elsewhere = |reason: &str| {
        request(&format!(r#"{{"emit_platform_run_id":"platform_20270101T000000Z"{reason}}}"#))
    };
    let refused = runner.reemit(RUN, &elsewhere("")).await;
    assert_eq!(refusal(refused), RefusalCode::CrossRunOverrideRequired);
    let wrong = elsewhere(r#","cross_run_override":{"reason_code":"because"}"#);
    assert_eq!(refusal(runner.reemit(RUN, &wrong).await), RefusalCode::CrossRunReasonNotAllowed);
    let right = elsewhere(r#","cross_run_override":{"reason_code":"incident_recovery"}"#);
    runner.reemit(RUN, &right).await.expect("published");
    let mut parts = world.parts();
    parts.settings.reemit_same_platform_run_only = false;
    Runner::new(parts).reemit(RUN, &elsewhere("")).await.expect("published");
}

#[tokio::test]
async fn an_unknown_outcome_is_resolved_by_a_reemit() {
    let world = World::new();
    world.bus.next([Some(MessageFault::AcceptThenCut), Some(MessageFault::AcceptThenCut)]);
    world.submit().await;
    let runner = world.runner();
    assert_eq!(refusal(runner.reemit(RUN, &request("")).await), RefusalCode::ReemitFailed);
    runner.reemit(RUN, &request("")).await.expect("published");
    let run = world.run().await;
    let states: Vec<_> = run.publications.iter().map(|attempt| attempt.state).collect();
    use PublicationState::{Published, Unknown};
    assert_eq!(states, [Unknown, Unknown, Published]);
    let messages = kinds(&world.messages().await);
    assert!(messages.iter().all(|(_, id)| *id == messages[0].1), "consumers can deduplicate");
    world.check_files().await;
}
