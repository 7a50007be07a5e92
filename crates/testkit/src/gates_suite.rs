//! Contract suite of a ledger shared by several gates: ownership of effects, and recovery after a
//! gate is presumed dead.

use std::collections::BTreeSet;
use std::sync::Arc;

use admit_core::effect::{EffectState, Evidence, IllegalStep, Outcome, ReconcileOutcome, Step};
use admit_core::json::{Object, Value};
use admit_core::{Door, Entry, Event, InitialState, Intent, Issue, Millis, RunState, Seq, Verdict};
use admit_ledger::closures::{ClosingEnd, ClosingStart};
use admit_ledger::{
    AdvanceError, FileNote, FollowUp, RecordedDelivery, RecoveredEffects, Settlement,
};
use futures_util::future::join_all;

use crate::closures_suite::ClosingLedger;
use crate::effects_suite::causing;
use crate::event::{DOOR, event};
use crate::issuance_suite::{
    IssuingContract, RUN, by, counts, ids, issuing, named, open_quarantines, performs, record,
    settlement, take,
};
use crate::ledger_suite::one;

/// Shared ledger of several gates.
pub trait GatesHome {
    /// Opens the ledger for the gate called `owner`.
    fn open(&self, owner: &str) -> Arc<dyn ClosingLedger>;

    /// Expires the lease of the gate called `owner` while it keeps running.
    fn presume_dead(&self, owner: &str);
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn GatesHome>) {
    effects_of_a_live_gate_are_not_recovered(&*home()).await;
    effects_of_a_dead_gate_become_ambiguous_once_and_late_evidence_is_kept(&*home()).await;
    missing_documents_of_lost_effects_are_issued_by_any_gate(&*home()).await;
    intended_effects_of_a_dead_gate_are_taken_over_by_one(&*home()).await;
    a_late_gate_may_settle_until_another_has(&*home()).await;
    a_late_gate_recovers_no_other_gate(&*home()).await;
    an_attempt_begins_at_one_gate_only(&*home()).await;
    a_reply_is_the_same_at_every_gate(&*home()).await;
    an_event_is_performed_at_one_gate_and_counted_once(&*home()).await;
    a_released_effect_is_performed_by_one_copy(&*home()).await;
    a_closing_run_admits_nothing(&*home()).await;
    a_closure_is_ended_by_the_latest_attempt_at_any_gate(&*home()).await;
    file_progress_is_kept_per_gate(&*home()).await;
    documents_are_numbered_in_one_row(&*home()).await;
}

const AT: Millis = Millis(9_000);

fn evidence(text: &str) -> Evidence {
    Evidence::of(&Object::from_iter([("note", Value::from(text.to_owned()))]))
}

async fn recover_door(ledger: &dyn ClosingLedger) -> Vec<Seq> {
    let clerk: Arc<dyn Issue> = Arc::new(IssuingContract);
    let recovered = ledger.recover_issuing(Door::new(DOOR), clerk, AT).await.expect("it answers");
    recovered.into_iter().map(|effect| effect.seq).collect()
}

async fn effect_state(ledger: &dyn ClosingLedger, seq: Seq) -> EffectState {
    ledger.effect(seq).await.expect("readable").expect("it has one").state
}

async fn record_all(ledger: &dyn ClosingLedger, batch: Vec<Entry>) -> Vec<RecordedDelivery> {
    let kept = ledger.record_issuing(batch, issuing()).await;
    kept.into_iter().map(|kept| kept.expect("recorded")).collect()
}

async fn effects_of_a_live_gate_are_not_recovered(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    let (flying, _) = performs(&record(&*a, named("flying", "1")).await);
    let intended = one(&*a, causing("intended", false)).await.seq().expect("kept");
    assert_eq!(recover_door(&*b).await, [], "its owner lives");
    assert_eq!(b.recover(AT).await.expect("recovers"), RecoveredEffects::default());
    assert!(matches!(effect_state(&*b, flying).await, EffectState::InFlight(_)));
    let settled = take(&*b, settlement(flying, 1, Outcome::Done)).await;
    assert_eq!(settled.map(|_| ()), Err(IllegalStep::NotInFlight), "only its owner can settle it");
    take(&*a, settlement(flying, 1, Outcome::Done)).await.expect("its owner can");
    assert!(matches!(effect_state(&*b, intended).await, EffectState::Intended(_)));
    drop(a);
    let left = b.recover(AT).await.expect("recovers");
    assert_eq!(left.intended.len(), 1, "a gate that stops leaves what it has not begun");
    assert_eq!(b.recover(AT).await.expect("recovers"), RecoveredEffects::default(), "to one, once");
}

async fn effects_of_a_dead_gate_become_ambiguous_once_and_late_evidence_is_kept(
    home: &dyn GatesHome,
) {
    let (a, b, c) = (home.open("a"), home.open("b"), home.open("c"));
    let mut deliveries = Vec::new();
    for kept in record_all(&*a, (0..20).map(|n| named(&format!("e{n}"), "1")).collect()).await {
        deliveries.push(performs(&kept).0);
    }
    home.presume_dead("a");
    let found = join_all([recover_door(&*b), recover_door(&*c), recover_door(&*b)]).await;
    let found: Vec<Seq> = found.into_iter().flatten().collect();
    assert_eq!(found.len(), 20, "each is lost once");
    assert_eq!(found.iter().collect::<BTreeSet<_>>(), deliveries.iter().collect::<BTreeSet<_>>());
    assert_eq!(counts(&*b).await, [20, 0, 20, 0, 0, 20, 0, 0]);
    assert_eq!(open_quarantines(&*c).await.len(), 20);
    let copy = record(&*c, named("e3", "1")).await;
    assert_eq!((copy.follow_up, ids(&copy.filed).len()), (FollowUp::Done, 2), "it is not repeated");

    let late = take(&*a, settlement(deliveries[3], 1, Outcome::Done)).await;
    assert_eq!(late.map(|_| ()), Err(IllegalStep::NotInFlight), "it is not its own any more");
    let step = Step::Evidence { attempt: 1, evidence: evidence("it was done") };
    let late = Settlement { seq: deliveries[3], step, facts: None };
    take(&*a, late).await.expect("what is known late is kept");
    assert!(
        matches!(effect_state(&*b, deliveries[3]).await, EffectState::Ambiguous(_)),
        "changes nothing"
    );
    let history = b.history(deliveries[3]).await.expect("readable");
    let words: Vec<&str> = history.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(words, ["in_flight", "ambiguous", "evidence"]);
    assert_eq!(history[2].evidence, Some(evidence("it was done")));
    performs(&record(&*a, named("new", "1")).await);
}

async fn missing_documents_of_lost_effects_are_issued_by_any_gate(home: &dyn GatesHome) {
    let (a, b, c) = (home.open("a"), home.open("b"), home.open("c"));
    let (flying, _) = performs(&record(&*a, named("flying", "1")).await);
    let (landed, _) = performs(&record(&*c, named("landed", "1")).await);
    take(&*c, settlement(landed, 1, Outcome::Ambiguous)).await.expect("legal");
    home.presume_dead("a");
    let left = b.recover(AT).await.expect("recovers");
    assert_eq!(left.ambiguous.len(), 1, "a gate without this door looks after the effect alone");
    assert_eq!(counts(&*b).await, [2, 1, 1, 0, 0, 1, 0, 0]);
    assert_eq!(recover_door(&*c).await, [flying], "the gate that has it recovers it");
    assert_eq!(recover_door(&*c).await, [], "once");
    assert_eq!(counts(&*b).await, [2, 0, 2, 0, 0, 2, 0, 0]);
    assert_eq!(open_quarantines(&*b).await.len(), 2);
}

async fn intended_effects_of_a_dead_gate_are_taken_over_by_one(home: &dyn GatesHome) {
    let (a, b, c) = (home.open("a"), home.open("b"), home.open("c"));
    let batch: Vec<Entry> = (0..50).map(|n| causing(&format!("i{n}"), false)).collect();
    for recorded in a.record(batch).await {
        recorded.expect("recorded");
    }
    home.presume_dead("a");
    let found = join_all([b.recover(AT), c.recover(AT)]).await;
    let mut taken = BTreeSet::new();
    for (gate, left) in [&b, &c].into_iter().zip(found) {
        for effect in left.expect("recovers").intended {
            assert!(taken.insert(effect.seq), "{:?} was handed out twice", effect.seq);
            let begin = Step::Begin { attempt: 1 };
            gate.advance(effect.seq, begin, AT).await.expect("the new owner begins");
            let begin = a.advance(effect.seq, Step::Begin { attempt: 1 }, AT).await;
            assert!(matches!(begin, Err(AdvanceError::Illegal(IllegalStep::InWork))), "{begin:?}");
        }
    }
    assert_eq!(taken.len(), 50);
}

async fn a_late_gate_may_settle_until_another_has(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    let (first, _) = performs(&record(&*a, named("first", "1")).await);
    home.presume_dead("a");
    performs(&record(&*a, named("second", "1")).await);
    take(&*a, settlement(first, 1, Outcome::Done)).await.expect("not recovered yet");
    assert_eq!(counts(&*b).await, [2, 1, 0, 1, 0, 0, 0, 0]);
    assert_eq!(recover_door(&*b).await, [], "the second is of a gate that lives");
}

async fn a_late_gate_recovers_no_other_gate(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    let (flying, _) = performs(&record(&*a, named("flying", "1")).await);
    for gate in ["a", "b"] {
        home.presume_dead(gate);
    }
    assert_eq!(recover_door(&*b).await, [], "the cause of its delay may have delayed all gates");
    assert_eq!(b.recover(AT).await.expect("recovers"), RecoveredEffects::default());
    take(&*a, settlement(flying, 1, Outcome::Done)).await.expect("nothing was lost");
}

async fn an_attempt_begins_at_one_gate_only(home: &dyn GatesHome) {
    let gates = [home.open("a"), home.open("b"), home.open("c")];
    for n in 0..10 {
        let seq = one(&*gates[0], causing(&format!("i{n}"), false)).await.seq().expect("kept");
        let racing = (0..12).map(|n| gates[n % 3].advance(seq, Step::Begin { attempt: 1 }, AT));
        let begun = join_all(racing).await.into_iter().filter(Result::is_ok).count();
        assert_eq!(begun, 1, "one of them may let the first byte leave");
    }
}

async fn a_reply_is_the_same_at_every_gate(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    let (seq, _) = performs(&record(&*a, named("e", "1")).await);
    assert_eq!(record(&*b, named("e", "1")).await.follow_up, FollowUp::InFlight { seq });
    take(&*a, settlement(seq, 1, Outcome::Done)).await.expect("legal");
    let copies = [record(&*b, named("e", "1")).await, record(&*a, named("e", "1")).await];
    assert_eq!(ids(&copies[0].filed), ["DUPLICATE-e"]);
    assert_eq!(copies[0].filed, copies[1].filed, "one document at every gate");
    for gate in [&a, &b] {
        assert_eq!(gate.filed_of(seq).await.expect("readable").len(), 2);
    }
}

async fn an_event_is_performed_at_one_gate_and_counted_once(home: &dyn GatesHome) {
    let gates = [home.open("a"), home.open("b"), home.open("c")];
    let (names, each) = (40, 4);
    let batches = (0..names).flat_map(|n| (0..each).map(move |k| (n, k)));
    let recorded = join_all(batches.map(async |(n, k)| {
        let gate = &gates[(n + k) % 3];
        let kept = record(&**gate, named(&format!("e{n}"), "1")).await;
        if let FollowUp::Perform { seq, attempt } = kept.follow_up {
            let settled = take(&**gate, settlement(seq, attempt, Outcome::Done)).await;
            settled.expect("the performer settles");
        }
        (n, kept)
    }))
    .await;
    let performed: Vec<usize> = recorded
        .iter()
        .filter(|(_, kept)| matches!(kept.follow_up, FollowUp::Perform { .. }))
        .map(|(n, _)| *n)
        .collect();
    assert_eq!(performed.len(), names, "each event is performed once");
    assert_eq!(performed.iter().collect::<BTreeSet<_>>().len(), names);
    let done = recorded.iter().filter(|(_, kept)| kept.follow_up == FollowUp::Done);
    let duplicates: BTreeSet<usize> = done.map(|(n, _)| *n).collect();
    let [deliveries, in_flight, ambiguous, admit, duplicate, ..] = counts(&*gates[1]).await;
    let all = i64::try_from(names * each).expect("small");
    assert_eq!((deliveries, in_flight, ambiguous), (all, 0, 0));
    assert_eq!(admit, i64::try_from(names).expect("small"));
    assert_eq!(duplicate, i64::try_from(duplicates.len()).expect("small"), "one per event");
}

async fn a_released_effect_is_performed_by_one_copy(home: &dyn GatesHome) {
    let gates = [home.open("a"), home.open("b"), home.open("c")];
    let (seq, _) = performs(&record(&*gates[0], named("e", "1")).await);
    take(&*gates[0], settlement(seq, 1, Outcome::Ambiguous)).await.expect("legal");
    let (found, evidence) = (ReconcileOutcome::Refused, evidence("absent"));
    let step = Step::Reconcile { by: by(), found, evidence };
    take(&*gates[1], Settlement { seq, step, facts: None }).await.expect("anywhere");
    let copies = join_all(gates.iter().map(|gate| record(&**gate, named("e", "1")))).await;
    let performed = copies.iter().filter(|kept| matches!(kept.follow_up, FollowUp::Perform { .. }));
    assert_eq!(performed.count(), 1, "the others wait for it");
    assert_eq!(counts(&*gates[0]).await[1], 1);
}

async fn a_closing_run_admits_nothing(home: &dyn GatesHome) {
    let (a, b, c) = (home.open("a"), home.open("b"), home.open("c"));
    performs(&record(&*a, named("first", "1")).await);
    let closing = async {
        // In the middle of the events.
        record(&*c, named("mark", "1")).await;
        let (from, to) = (RunState::Open, RunState::Closing);
        assert!(c.turn_run(RUN.to_owned(), from, to, AT).await.expect("turned"));
    };
    let coming = join_all((0..60).map(async |n| {
        let gate = if n % 2 == 0 { &a } else { &b };
        record(&**gate, named(&format!("e{n}"), "1")).await
    }));
    let ((), kept) = futures_util::future::join(closing, coming).await;
    let (mut came_in, mut stayed_out) = (Vec::new(), Vec::new());
    for kept in &kept {
        match (&kept.follow_up, &kept.recorded.verdict) {
            (FollowUp::Perform { seq, .. }, Verdict::Fresh { .. }) => {
                came_in.push(*seq);
            }
            (FollowUp::RunClosed | FollowUp::RunClosing, Verdict::Refused { seq: Some(seq) }) => {
                stayed_out.push(*seq)
            }
            other => panic!("neither in nor out: {other:?}"),
        }
    }
    if let (Some(last), Some(first)) = (came_in.iter().max(), stayed_out.iter().min()) {
        assert!(last < first, "nothing comes in after the run has closed, in ledger order");
    }
    let admitted = i64::try_from(came_in.len() + 2).expect("small");
    assert_eq!(counts(&*b).await[..2], [62, admitted], "what came is counted, in or out");
    for gate in [&a, &b, &c] {
        assert_eq!(record(&**gate, named("late", "1")).await.follow_up, FollowUp::RunClosing);
    }
}

async fn a_closure_is_ended_by_the_latest_attempt_at_any_gate(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    performs(&record(&*a, named("e", "1")).await);
    let begin = async |gate: &dyn ClosingLedger| {
        gate.begin_closing(RUN.to_owned(), by(), AT).await.expect("begun")
    };
    let end = async |gate: &dyn ClosingLedger, attempt| {
        let ending = ClosingEnd::Closed { path: "p".to_owned(), text: "{}".to_owned() };
        gate.end_closing(RUN.to_owned(), attempt, ending, AT).await.expect("answered")
    };
    assert_eq!(begin(&*a).await, ClosingStart::Closing { attempt: 1 });
    assert_eq!(b.reopen_lost(AT).await.expect("answered"), [""; 0], "the closing gate is alive");
    home.presume_dead("a");
    assert_eq!(b.reopen_lost(AT).await.expect("answered"), [RUN]);
    assert!(!end(&*a, 1).await, "it was opened again");
    assert_eq!(begin(&*b).await, ClosingStart::Closing { attempt: 2 });
    assert!(!end(&*a, 1).await, "it was overtaken");
    assert!(end(&*b, 2).await);
    assert!(matches!(begin(&*a).await, ClosingStart::Closed(_)));
}

async fn file_progress_is_kept_per_gate(home: &dyn GatesHome) {
    let (a, b) = (home.open("a"), home.open("b"));
    let mut numbers = Vec::new();
    for (gate, name) in [(&a, "1"), (&b, "2"), (&a, "3"), (&b, "4")] {
        let (seq, _) = performs(&record(&**gate, named(name, "1")).await);
        let settled = take(&**gate, settlement(seq, 1, Outcome::Done)).await.expect("legal");
        numbers.push(settled.filed[0].n);
    }
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(a.issued_here(0, 10).await.expect("readable"), [1, 3], "each writes its own");
    assert_eq!(b.issued_here(2, 10).await.expect("readable"), [4]);
    assert_eq!(a.synced().await.expect("readable"), (0, 4));
    b.note_files(FileNote::SyncedTo(4)).await.expect("noted");
    assert_eq!(a.synced().await.expect("readable"), (0, 4), "that does not speak for the other");
    a.note_files(FileNote::SyncedTo(1)).await.expect("noted");
    assert_eq!(b.left_unsynced().await.expect("readable"), (4, 4), "the living write their own");
    home.presume_dead("a");
    assert_eq!(b.left_unsynced().await.expect("readable"), (1, 4), "the dead do not");
    b.note_files(FileNote::Restored { after: 1, to: 4 }).await.expect("noted");
    assert_eq!(b.left_unsynced().await.expect("readable"), (4, 4));
    assert_eq!(b.synced().await.expect("readable"), (4, 4));
}

async fn documents_are_numbered_in_one_row(home: &dyn GatesHome) {
    let gates = [home.open("a"), home.open("b"), home.open("c")];
    let recorded = join_all((0..30).map(async |n| {
        let gate = &gates[n % 3];
        let facts = Object::from_iter([
            ("name", Value::from(format!("e{n}"))),
            ("run", RUN.to_owned().into()),
        ]);
        let effect =
            Some(Intent { kind: "bus", plan: Object::new(), starts: InitialState::InFlight });
        let entry = Entry::Event(Event { facts, effect, ..event(&format!("e{n}"), "1") });
        let (seq, attempt) = performs(&record(&**gate, entry).await);
        let outcome = if n % 2 == 0 { Outcome::Done } else { Outcome::Ambiguous };
        take(&**gate, settlement(seq, attempt, outcome)).await.expect("legal").filed
    }))
    .await;
    let numbers: BTreeSet<u64> = recorded.iter().flatten().map(|filed| filed.n).collect();
    assert_eq!(numbers, (1..=45).collect(), "without gaps and without twins");
}
