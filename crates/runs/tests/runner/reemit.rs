//! Saying it again.

use admit_core::json::Value;
use admit_ledger::scenario_runs::PublicationState;
use admit_runs::runner::reason::Refusal;
use admit_runs::runner::{Reemit, Runner};
use admit_testkit::faulty_bus::Trouble;

use crate::world::{PLATFORM_RUN, RUN, World, refusal};

fn asked(body: &str) -> Reemit {
    Reemit::read(body.as_bytes(), "svc:operator").expect("a request")
}

fn kinds(said: &[Value<'_>]) -> Vec<(String, String)> {
    let text = |value: &Value<'_>, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned()
    };
    said.iter().map(|one| (text(one, "/attributes/kind"), text(one, "/message_id"))).collect()
}

#[tokio::test]
async fn ready_said_again_has_the_message_id_it_always_had() {
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    for body in ["", r#"{"reemit_kind":"READY_ONLY","reason":"lost"}"#, r#"{"reemit_kind":"BOTH"}"#]
    {
        let again = runner.reemit(RUN, &asked(body)).await.expect("it is said");
        assert_eq!(again.kind, "READY_REEMIT");
    }
    let said = kinds(&world.said().await);
    let words: Vec<&str> = said.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(words, ["READY", "READY_REEMIT", "READY_REEMIT", "READY_REEMIT"]);
    assert!(said.iter().all(|(_, id)| *id == said[0].1), "{said:?}");
    assert_eq!(world.events().await.len(), 6, "each is in the record");
    world.check_files().await;
}

#[tokio::test]
async fn a_dry_run_says_what_it_would_say_and_nothing_else() {
    let world = World::new();
    let before = world.submit().await.run;
    let dry = world.runner().reemit(RUN, &asked(r#"{"dry_run":true}"#)).await.expect("it answers");
    assert!(dry.is_dry_run);
    assert_eq!(kinds(&world.said().await)[0].1, dry.message_id);
    assert_eq!(world.run().await, before);
}

#[tokio::test]
async fn only_what_is_there_can_be_said_again() {
    let world = World::new();
    let runner = world.runner();
    assert_eq!(refusal(runner.reemit(RUN, &asked("")).await), Refusal::RunNotFound);
    world.submit().await;
    let terminal = asked(r#"{"reemit_kind":"TERMINAL_ONLY"}"#);
    let refused = runner.reemit(RUN, &terminal).await;
    assert_eq!(refusal(refused), Refusal::ReemitTerminalOnlyMismatch);
    let facts = format!("artifacts/{PLATFORM_RUN}/sr/run_facts_view/{RUN}.json");
    let facts = world.folder.path().join(facts);
    std::fs::remove_file(&facts).expect("they go");
    runner.reemit(RUN, &asked("")).await.expect("the ledger has them");
    assert!(facts.exists(), "nothing is said of facts that are not there");

    let world = World::new();
    let runner = world.runner();
    runner.submit(world.request_with(r#""output_ids":["x"]"#)).await.expect("it answers");
    let refused = runner.reemit(RUN, &asked("")).await;
    assert_eq!(refusal(refused), Refusal::ReemitReadyOnlyMismatch);
    let ended = runner.reemit(RUN, &terminal).await.expect("it is said");
    let again = runner.reemit(RUN, &asked(r#"{"reemit_kind":"BOTH"}"#)).await.expect("it is said");
    assert_eq!((ended.kind, &ended.message_id), ("TERMINAL_REEMIT", &again.message_id));
    assert_eq!(world.said().await.len(), 2);
}

#[tokio::test]
async fn nobody_says_it_again_without_a_name_or_without_end() {
    assert!(Reemit::read(b"", " ").is_err());
    assert!(Reemit::read(b"{\"reemit_kind\":\"ALL\"}", "a").is_err());
    assert!(Reemit::read(b"{\"kind\":\"BOTH\"}", "a").is_err());
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    for _ in 0..10 {
        runner.reemit(RUN, &asked("")).await.expect("it is said");
    }
    assert_eq!(refusal(runner.reemit(RUN, &asked("")).await), Refusal::ReemitRateLimit);
    world.advance(3_601);
    runner.reemit(RUN, &asked("")).await.expect("it is said");
}

#[tokio::test]
async fn a_run_of_another_platform_run_needs_a_reason_that_is_allowed() {
    let world = World::new();
    world.submit().await;
    let runner = world.runner();
    let elsewhere = |reason: &str| {
        asked(&format!(r#"{{"emit_platform_run_id":"platform_20270101T000000Z"{reason}}}"#))
    };
    let refused = runner.reemit(RUN, &elsewhere("")).await;
    assert_eq!(refusal(refused), Refusal::CrossRunOverrideRequired);
    let wrong = elsewhere(r#","cross_run_override":{"reason_code":"because"}"#);
    assert_eq!(refusal(runner.reemit(RUN, &wrong).await), Refusal::CrossRunReasonNotAllowed);
    let right = elsewhere(r#","cross_run_override":{"reason_code":"incident_recovery"}"#);
    runner.reemit(RUN, &right).await.expect("it is said");
    let mut parts = world.parts();
    parts.settings.reemit_same_platform_run_only = false;
    Runner::new(parts).reemit(RUN, &elsewhere("")).await.expect("it is said");
}

#[tokio::test]
async fn an_outcome_nobody_knows_is_settled_by_saying_it_again() {
    let world = World::new();
    world.bus.next([Some(Trouble::AcceptThenCut), Some(Trouble::AcceptThenCut)]);
    world.submit().await;
    let runner = world.runner();
    assert_eq!(refusal(runner.reemit(RUN, &asked("")).await), Refusal::ReemitFailed);
    runner.reemit(RUN, &asked("")).await.expect("it is said");
    let run = world.run().await;
    let states: Vec<_> = run.publications.iter().map(|said| said.state).collect();
    use PublicationState::{Published, Unknown};
    assert_eq!(states, [Unknown, Unknown, Published]);
    let said = kinds(&world.said().await);
    assert!(said.iter().all(|(_, id)| *id == said[0].1), "whoever reads knows the copies");
    world.check_files().await;
}
