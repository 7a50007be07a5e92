//! Contract suite of scenario runs: one run per key, one leader, write-once facts, no backward
//! transitions.

use std::sync::Arc;

use admit_core::{Millis, ScenarioState};
use admit_ledger::scenario_runs::{
    OpenRunRequest, OpenRunResult, PublicationState, RunEvent, RunLease, RunPublication, RunUpdate,
    RunUpdateError, ScenarioDocument, ScenarioRuns, StateChange, TakeLeaseResult,
};
use futures_util::future::join_all;

/// Storage of a ledger across processes.
pub trait RunsHome {
    /// Opens the ledger like a new process.
    fn open(&self) -> Arc<dyn ScenarioRuns>;

    /// Whether the ledger is for one process at a time, so that no lease survives a start.
    fn is_for_one_process(&self) -> bool;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn RunsHome>) {
    a_key_names_one_run_and_one_intent(&*home()).await;
    one_of_many_runners_leads(&*home()).await;
    an_expired_lease_is_taken_over_and_lost_to_its_holder(&*home()).await;
    a_run_lease_written_by_a_wrong_clock_is_bounded(&*home()).await;
    facts_are_written_once(&*home()).await;
    an_event_is_appended_once(&*home()).await;
    a_run_has_no_backward_transitions(&*home()).await;
    a_publication_is_settled_from_in_flight_only(&*home()).await;
    runs_survive_a_restart(&*home()).await;
    a_run_is_unfinished_until_its_files_are_up_to_date(&*home()).await;
}

const RUN: &str = "df5647f07d4f430de9cfde91f3a454b6";
const TTL: i64 = 300_000;

fn opening(key: &str, run_id: &str, intent: &str, at: i64) -> OpenRunRequest {
    OpenRunRequest {
        run_equivalence_key: key.to_owned(),
        run_id: run_id.to_owned(),
        intent_fingerprint: intent.to_owned(),
        platform_run_id: "platform_20260212T085637Z".to_owned(),
        request: "{}".to_owned(),
        at: Millis(at),
    }
}

fn lease(token: &str, at: i64) -> RunLease {
    RunLease {
        name: RUN.to_owned(),
        owner: format!("owner of {token}"),
        token: token.to_owned(),
        at: Millis(at),
        ttl_ms: TTL,
    }
}

fn keeping(token: &str, at: i64) -> RunUpdate {
    RunUpdate {
        run_id: RUN.to_owned(),
        lease: RUN.to_owned(),
        token: token.to_owned(),
        at: Millis(at),
        ttl_ms: TTL,
        documents: Vec::new(),
        events: Vec::new(),
        turn: None,
        publication: None,
        acknowledged: None,
    }
}

fn turned(token: &str, at: i64, to: ScenarioState) -> RunUpdate {
    RunUpdate { turn: Some(StateChange { to, reason: None }), ..keeping(token, at) }
}

fn document(text: &str) -> ScenarioDocument {
    let path = format!("r/sr/run_plan/{RUN}.json");
    ScenarioDocument { kind: "run_plan".to_owned(), path, text: text.to_owned() }
}

/// Ledger with one run led by `first`.
async fn led(home: &dyn RunsHome) -> Arc<dyn ScenarioRuns> {
    let ledger = home.open();
    ledger.open_run(opening("key", RUN, "intent", 1)).await.expect("the ledger answers");
    let taken = ledger.take_lease(lease("first", 2)).await.expect("the ledger answers");
    assert_eq!(taken, TakeLeaseResult::Taken);
    ledger
}

async fn a_key_names_one_run_and_one_intent(home: &dyn RunsHome) {
    let ledger = home.open();
    let open = async |opening| ledger.open_run(opening).await.expect("the ledger answers");
    assert_eq!(open(opening("key", RUN, "intent", 1)).await, OpenRunResult::New);
    assert_eq!(open(opening("key", RUN, "intent", 2)).await, OpenRunResult::Known);
    let collision = OpenRunResult::Collision { intent_fingerprint: "intent".to_owned() };
    assert_eq!(open(opening("key", RUN, "other", 3)).await, collision);
    assert_eq!(open(opening("key 2", "other run", "other", 4)).await, OpenRunResult::New);
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    assert_eq!((run.state, run.opened_at), (ScenarioState::Open, Millis(1)));
    assert_eq!((run.run_equivalence_key.as_str(), run.version), ("key", 1));
    assert_eq!(ledger.scenario_run("unknown".to_owned()).await.expect("it answers"), None);
}

async fn one_of_many_runners_leads(home: &dyn RunsHome) {
    let ledger = home.open();
    ledger.open_run(opening("key", RUN, "intent", 1)).await.expect("the ledger answers");
    let tokens: Vec<String> = (0..16).map(|n| format!("token {n}")).collect();
    let taken = join_all(tokens.iter().map(|token| ledger.take_lease(lease(token, 5)))).await;
    let winners =
        taken.iter().filter(|answer| matches!(answer, Ok(TakeLeaseResult::Taken))).count();
    assert_eq!(winners, 1, "{taken:?}");
    let until = Millis(5 + TTL);
    for answer in taken {
        let answer = answer.expect("the ledger answers");
        let is_held =
            matches!(&answer, TakeLeaseResult::HeldBy { until: held, .. } if *held == until);
        assert!(answer == TakeLeaseResult::Taken || is_held, "{answer:?}");
    }
}

async fn an_expired_lease_is_taken_over_and_lost_to_its_holder(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let take = async |token, at| ledger.take_lease(lease(token, at)).await.expect("it answers");
    assert!(matches!(take("second", 2 + TTL - 1).await, TakeLeaseResult::HeldBy { .. }));
    assert_eq!(take("first", 3).await, TakeLeaseResult::Taken, "one's own lease is renewed");
    let kept = ledger.update_run(keeping("first", 10)).await.expect("it answers");
    assert_eq!(kept, Ok(()));
    assert!(
        matches!(take("second", 10 + TTL - 1).await, TakeLeaseResult::HeldBy { .. }),
        "keeping renews"
    );
    assert_eq!(take("second", 10 + TTL).await, TakeLeaseResult::Taken);
    let late = turned("first", 11 + TTL, ScenarioState::Planned);
    assert_eq!(ledger.update_run(late).await.expect("it answers"), Err(RunUpdateError::LeaseLost));
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    assert_eq!((run.state, run.version), (ScenarioState::Open, 1), "nothing was kept");
    ledger
        .release_lease(RUN.to_owned(), "first".to_owned(), Millis(12 + TTL))
        .await
        .expect("answers");
    assert!(
        matches!(take("third", 13 + TTL).await, TakeLeaseResult::HeldBy { .. }),
        "not theirs to give"
    );
    ledger
        .release_lease(RUN.to_owned(), "second".to_owned(), Millis(14 + TTL))
        .await
        .expect("answers");
    assert_eq!(take("third", 15 + TTL).await, TakeLeaseResult::Taken);
}

async fn a_run_lease_written_by_a_wrong_clock_is_bounded(home: &dyn RunsHome) {
    const WEEKS: i64 = 30 * 86_400_000;
    let ledger = led(home).await;
    let take = async |token, at| ledger.take_lease(lease(token, at)).await.expect("it answers");
    assert_eq!(take("first", WEEKS).await, TakeLeaseResult::Taken);
    assert_eq!(take("second", 5).await, TakeLeaseResult::Taken, "the clock is right again");
    assert!(matches!(take("first", 6).await, TakeLeaseResult::HeldBy { .. }));
}

async fn facts_are_written_once(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let keep = async |text: &str| {
        let keeping = RunUpdate {
            documents: vec![document(text)],
            ..turned("first", 3, ScenarioState::Planned)
        };
        ledger.update_run(keeping).await.expect("the ledger answers")
    };
    assert_eq!(keep("one").await, Ok(()));
    assert_eq!(keep("one").await, Ok(()), "the same again is fine");
    let drift = RunUpdateError::Drift { kind: "run_plan".to_owned() };
    let with_event = RunUpdate {
        documents: vec![document("two")],
        events: vec![RunEvent { event_id: "e".to_owned(), line: "{}".to_owned() }],
        ..keeping("first", 4)
    };
    assert_eq!(ledger.update_run(with_event).await.expect("it answers"), Err(drift));
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    assert_eq!(run.document("run_plan").map(|d| d.text.as_str()), Some("one"));
    assert!(run.events.is_empty(), "all of it or none");
}

async fn an_event_is_appended_once(home: &dyn RunsHome) {
    let ledger = led(home).await;
    for (id, line) in [("a", "1"), ("b", "2"), ("a", "3")] {
        let event = RunEvent { event_id: id.to_owned(), line: line.to_owned() };
        let keeping = RunUpdate { events: vec![event], ..keeping("first", 3) };
        assert_eq!(ledger.update_run(keeping).await.expect("it answers"), Ok(()));
    }
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    let lines: Vec<&str> = run.events.iter().map(|event| event.line.as_str()).collect();
    assert_eq!(lines, ["1", "2"]);
    assert_eq!(run.version, 3, "what changes nothing is no change");
}

async fn a_run_has_no_backward_transitions(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let turn = async |at, to| ledger.update_run(turned("first", at, to)).await.expect("it answers");
    assert_eq!(turn(3, ScenarioState::Planned).await, Ok(()));
    assert_eq!(turn(4, ScenarioState::Ready).await, Ok(()));
    for to in [ScenarioState::Open, ScenarioState::Planned, ScenarioState::Failed] {
        assert!(matches!(turn(5, to).await, Err(RunUpdateError::Illegal(_))), "{to}");
    }
    assert_eq!(turn(6, ScenarioState::Ready).await, Ok(()), "staying is no turn");
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    assert_eq!((run.state, run.turned_at), (ScenarioState::Ready, Millis(4)));
}

async fn a_publication_is_settled_from_in_flight_only(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let set_publication = async |attempt, state, at| {
        let publication = RunPublication {
            message_id: "m".to_owned(),
            kind: "READY".to_owned(),
            attempt,
            state,
            evidence: Some(format!("at {at}")),
            at: Millis(at),
        };
        let keeping = RunUpdate { publication: Some(publication), ..keeping("first", at) };
        ledger.update_run(keeping).await.expect("it answers")
    };
    assert_eq!(set_publication(1, PublicationState::InFlight, 3).await, Ok(()));
    assert_eq!(
        set_publication(1, PublicationState::InFlight, 3).await,
        Err(RunUpdateError::AttemptTaken)
    );
    assert_eq!(set_publication(1, PublicationState::Unknown, 4).await, Ok(()));
    assert_eq!(
        set_publication(1, PublicationState::Published, 5).await,
        Ok(()),
        "and changes nothing"
    );
    assert_eq!(set_publication(2, PublicationState::InFlight, 6).await, Ok(()));
    assert_eq!(set_publication(2, PublicationState::Published, 7).await, Ok(()));
    let run = ledger.scenario_run(RUN.to_owned()).await.expect("it answers").expect("the run");
    let states: Vec<_> = run.publications.iter().map(|one| (one.attempt, one.state)).collect();
    assert_eq!(states, [(1, PublicationState::Unknown), (2, PublicationState::Published)]);
    assert_eq!(run.publications[0].evidence.as_deref(), Some("at 4"));
}

async fn runs_survive_a_restart(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let keeping = RunUpdate {
        documents: vec![document("one")],
        ..turned("first", 3, ScenarioState::Planned)
    };
    assert_eq!(ledger.update_run(keeping).await.expect("it answers"), Ok(()));
    let before = ledger.scenario_run(RUN.to_owned()).await.expect("it answers");
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.scenario_run(RUN.to_owned()).await.expect("it answers"), before);
    let taking = ledger.take_lease(lease("second", 4)).await.expect("it answers");
    if home.is_for_one_process() {
        assert_eq!(taking, TakeLeaseResult::Taken, "the previous holder is gone");
    } else {
        let held = matches!(taking, TakeLeaseResult::HeldBy { .. });
        assert!(held, "a lease outlives its process until it expires");
    }
}

async fn a_run_is_unfinished_until_its_files_are_up_to_date(home: &dyn RunsHome) {
    let ledger = led(home).await;
    let open = async || ledger.unfinished_runs(String::new(), 10).await.expect("it answers");
    assert_eq!(open().await, [RUN]);
    assert!(ledger.final_runs(String::new(), 10).await.expect("it answers").is_empty());
    for to in [ScenarioState::Planned, ScenarioState::Ready] {
        assert_eq!(ledger.update_run(turned("first", 3, to)).await.expect("it answers"), Ok(()));
    }
    assert_eq!(open().await, [RUN], "its files do not show it yet");
    ledger.note_shown(RUN.to_owned(), 2).await.expect("it answers");
    assert_eq!(open().await, [RUN], "they show an old version");
    ledger.note_shown(RUN.to_owned(), 3).await.expect("it answers");
    assert!(open().await.is_empty());
    assert_eq!(ledger.final_runs(String::new(), 10).await.expect("it answers"), [RUN]);
    assert!(ledger.final_runs(RUN.to_owned(), 10).await.expect("it answers").is_empty());
    assert!(ledger.unfinished_runs(RUN.to_owned(), 10).await.expect("it answers").is_empty());
}
