//! Contract suite of the effects port.

use admit_core::effect::{
    Attribution, Effect, EffectLogEntry, EffectState, Evidence, IllegalStep, Outcome,
    ReconcileOutcome, Step, StoredReply,
};
use admit_core::json::Object;
use admit_core::{Entry, InitialState, Intent, Millis, Seq};
use admit_ledger::{AdvanceError, EffectFilter, Ledger};
use futures_util::future::join_all;

use crate::event::{DOOR, ProjectionFailure, entry, event, poisoned};
use crate::ledger_suite::{Home, many, one};

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    an_effect_is_created_with_a_fresh_admission_only(&*home()).await;
    an_attempt_begins_once_under_concurrency(&*home()).await;
    the_first_reply_is_kept(&*home()).await;
    late_evidence_is_kept_and_changes_nothing(&*home()).await;
    operators_are_recorded(&*home()).await;
    after_a_crash_in_flight_is_ambiguous_and_intended_resumes(&*home()).await;
    a_withheld_effect_waits_for_an_operator(&*home()).await;
    effects_are_listed_by_state_in_order(&*home()).await;
}

/// Event with an effect.
pub fn causing(name: &str, is_withheld: bool) -> Entry {
    let plan = Object::from_iter([("do", name.to_owned().into())]);
    let starts = if is_withheld { InitialState::Withheld } else { InitialState::Intended };
    let effect = Some(Intent { kind: "test", plan, starts });
    Entry::Event(admit_core::Event { effect, ..event(name, "a") })
}

fn evidence(text: &str) -> Evidence {
    Evidence::of(&Object::from_iter([("note", text.to_owned().into())]))
}

fn by(why: &str) -> Attribution {
    Attribution { who: "operator".to_owned(), why: Some(why.to_owned()) }
}

fn reply(body: &'static str) -> Option<StoredReply> {
    Some(StoredReply { status: 200, body: body.into() })
}

fn settle(attempt: u32, outcome: Outcome, body: &'static str) -> Step {
    Step::Settle { attempt, outcome, evidence: evidence(body), reply: reply(body) }
}

async fn admitted(ledger: &dyn Ledger, name: &str) -> Seq {
    one(ledger, causing(name, false)).await.seq().expect("kept")
}

async fn take(ledger: &dyn Ledger, seq: Seq, step: Step) -> Effect {
    ledger.advance(seq, step, Millis(2_000)).await.expect("a legal step")
}

async fn refuse(ledger: &dyn Ledger, seq: Seq, step: Step) -> IllegalStep {
    match ledger.advance(seq, step, Millis(2_000)).await {
        Err(AdvanceError::Illegal(illegal)) => illegal,
        other => panic!("an illegal step was answered {other:?}"),
    }
}

async fn effect(ledger: &dyn Ledger, seq: Seq) -> Effect {
    ledger.effect(seq).await.expect("readable").expect("there is one")
}

async fn history(ledger: &dyn Ledger, seq: Seq) -> Vec<EffectLogEntry> {
    ledger.history(seq).await.expect("readable")
}

fn words(history: &[EffectLogEntry]) -> Vec<String> {
    history.iter().map(|passage| format!("{} {}", passage.attempt, passage.what)).collect()
}

async fn an_effect_is_created_with_a_fresh_admission_only(home: &dyn Home) {
    let ledger = home.open();
    let seq = admitted(&*ledger, "k").await;
    let born = effect(&*ledger, seq).await;
    assert_eq!((born.state.word(), born.state.attempt()), ("intended", 1));
    assert_eq!((born.kind.as_str(), &born.plan[..]), ("test", &br#"{"do":"k"}"#[..]));
    assert_eq!(born.reply, None);
    assert_eq!(words(&history(&*ledger, seq).await), ["1 intended"]);

    let copies = many(&*ledger, vec![causing("k", false), entry("plain", "a")]).await;
    for copy in &copies {
        let found = ledger.effect(copy.seq().expect("kept")).await.expect("readable");
        assert_eq!(found, None, "a copy or a plain event causes nothing");
    }
    ledger
        .record(vec![poisoned("broken", ProjectionFailure::WithError), causing("l", false)])
        .await;
    let all = ledger.effects(EffectFilter { rows_max: 10, ..EffectFilter::default() }).await;
    assert_eq!(all.expect("readable").len(), 2, "a poisoned neighbour changes nothing");
    assert_eq!(
        refuse(&*ledger, Seq(9_999), Step::Begin { attempt: 1 }).await,
        IllegalStep::NoEffect
    );
}

async fn an_attempt_begins_once_under_concurrency(home: &dyn Home) {
    let ledger = home.open();
    let seq = admitted(&*ledger, "k").await;
    assert_eq!(
        refuse(&*ledger, seq, settle(1, Outcome::Done, "early")).await,
        IllegalStep::NotInFlight
    );
    let racing = (0..16).map(|_| ledger.advance(seq, Step::Begin { attempt: 1 }, Millis(1)));
    let begun = join_all(racing).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(begun, 1, "one of them may let the first byte leave");
    assert_eq!(refuse(&*ledger, seq, Step::Replay(by("now"))).await, IllegalStep::InWork);
    take(&*ledger, seq, settle(1, Outcome::Done, "done")).await;
    let again = settle(1, Outcome::Refused, "again");
    assert_eq!(refuse(&*ledger, seq, again).await, IllegalStep::NotInFlight);
    assert_eq!(words(&history(&*ledger, seq).await), ["1 intended", "1 in_flight", "1 done"]);
}

async fn the_first_reply_is_kept(home: &dyn Home) {
    let ledger = home.open();
    let seq = admitted(&*ledger, "k").await;
    take(&*ledger, seq, Step::Begin { attempt: 1 }).await;
    take(&*ledger, seq, settle(1, Outcome::Refused, "first")).await;
    take(&*ledger, seq, Step::ReplayUndone(by("again"))).await;
    take(&*ledger, seq, Step::Begin { attempt: 2 }).await;
    let after = take(&*ledger, seq, settle(2, Outcome::Done, "second")).await;
    assert_eq!((after.state.word(), after.state.attempt()), ("done", 2));
    assert_eq!(after.reply, reply("first"), "copies get the reply of the first");
    assert_eq!(after, effect(&*ledger, seq).await, "the reply is stored");
}

async fn late_evidence_is_kept_and_changes_nothing(home: &dyn Home) {
    let ledger = home.open();
    let seq = admitted(&*ledger, "k").await;
    let late = |attempt| Step::Evidence { attempt, evidence: evidence("late") };
    assert_eq!(refuse(&*ledger, seq, late(1)).await, IllegalStep::NotBegun);
    take(&*ledger, seq, Step::Begin { attempt: 1 }).await;
    let lost = take(&*ledger, seq, settle(1, Outcome::Ambiguous, "lost")).await;
    assert_eq!(take(&*ledger, seq, late(1)).await, lost);
    assert_eq!(effect(&*ledger, seq).await, lost);
    let last = history(&*ledger, seq).await.pop().expect("there is history");
    assert_eq!((last.what.as_str(), last.evidence), ("evidence", Some(evidence("late"))));
}

async fn operators_are_recorded(home: &dyn Home) {
    let ledger = home.open();
    let seq = admitted(&*ledger, "k").await;
    let found = |found| Step::Reconcile { by: by("looked"), found, evidence: evidence("seen") };
    assert_eq!(
        refuse(&*ledger, seq, found(ReconcileOutcome::Done)).await,
        IllegalStep::NotAmbiguous
    );
    take(&*ledger, seq, Step::Begin { attempt: 1 }).await;
    take(&*ledger, seq, settle(1, Outcome::Ambiguous, "lost")).await;
    let done = take(&*ledger, seq, found(ReconcileOutcome::Done)).await;
    assert!(matches!(done.state, EffectState::Done(_)));
    let undone = Step::ReplayUndone(by("by mistake"));
    assert_eq!(refuse(&*ledger, seq, undone).await, IllegalStep::AlreadyDone);
    assert_eq!(effect(&*ledger, seq).await, done);
    take(&*ledger, seq, Step::Replay(by("once more"))).await;
    let people: Vec<_> = history(&*ledger, seq).await.into_iter().filter_map(|p| p.by).collect();
    assert_eq!(people, [by("looked"), by("once more")]);
}

async fn after_a_crash_in_flight_is_ambiguous_and_intended_resumes(home: &dyn Home) {
    let ledger = home.open();
    let (waiting, flying) = (admitted(&*ledger, "w").await, admitted(&*ledger, "f").await);
    let settled = admitted(&*ledger, "s").await;
    take(&*ledger, flying, Step::Begin { attempt: 1 }).await;
    take(&*ledger, settled, Step::Begin { attempt: 1 }).await;
    take(&*ledger, settled, settle(1, Outcome::Done, "done")).await;
    let own = ledger.recover(Millis(3_000)).await.expect("recovers");
    assert_eq!(own.ambiguous, [], "what this very process has in flight is not lost");
    drop(ledger);

    let ledger = home.open();
    let left = ledger.recover(Millis(4_000)).await.expect("recovers");
    let seqs = |effects: &[Effect]| effects.iter().map(|effect| effect.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&left.ambiguous), [flying]);
    assert_eq!(seqs(&left.intended), [waiting]);
    let lost = effect(&*ledger, flying).await;
    assert_eq!((lost.state.word(), lost.reply), ("ambiguous", None));
    assert_eq!(effect(&*ledger, settled).await.reply, reply("done"));
    assert_eq!(
        refuse(&*ledger, flying, settle(1, Outcome::Done, "late")).await,
        IllegalStep::NotInFlight
    );
    take(&*ledger, waiting, Step::Begin { attempt: 1 }).await;
    let again = ledger.recover(Millis(5_000)).await.expect("recovers");
    assert_eq!(again.ambiguous, [], "an ambiguous effect is lost once");
    assert_eq!(
        words(&history(&*ledger, flying).await),
        ["1 intended", "1 in_flight", "1 ambiguous"]
    );
}

async fn a_withheld_effect_waits_for_an_operator(home: &dyn Home) {
    let ledger = home.open();
    let seq = one(&*ledger, causing("k", true)).await.seq().expect("kept");
    assert_eq!(refuse(&*ledger, seq, Step::Begin { attempt: 0 }).await, IllegalStep::NotIntended);
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.recover(Millis(3_000)).await.expect("recovers").intended, []);
    take(&*ledger, seq, Step::Replay(by("now"))).await;
    take(&*ledger, seq, Step::Begin { attempt: 1 }).await;
    take(&*ledger, seq, settle(1, Outcome::Done, "done")).await;
    let entries: Vec<String> = words(&history(&*ledger, seq).await);
    assert_eq!(entries, ["0 withheld", "1 intended", "1 in_flight", "1 done"]);
}

async fn effects_are_listed_by_state_in_order(home: &dyn Home) {
    let ledger = home.open();
    let mut seqs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        seqs.push(admitted(&*ledger, name).await);
    }
    take(&*ledger, seqs[1], Step::Begin { attempt: 1 }).await;
    let list = async |states: &[&str], after: Seq, door: Option<&str>| {
        let states = states.iter().map(|&state| state.to_owned()).collect();
        let filter = EffectFilter { states, after, rows_max: 2, door: door.map(str::to_owned) };
        let found = ledger.effects(filter).await.expect("readable");
        found.iter().map(|effect| effect.seq).collect::<Vec<_>>()
    };
    assert_eq!(list(&["intended"], Seq(0), None).await, [seqs[0], seqs[2]]);
    assert_eq!(list(&["intended"], seqs[2], Some(DOOR)).await, [seqs[3]]);
    assert_eq!(list(&["in_flight", "done"], Seq(0), None).await, [seqs[1]]);
    assert_eq!(list(&[], Seq(0), Some("another")).await, []);
}
