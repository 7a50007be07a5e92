//! Contract suite of the issuance port: documents, runs, and effects in flight from the start.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use admit_core::effect::{
    Attribution, EffectState, Evidence, IllegalStep, Outcome, ReconcileOutcome, Step,
};
use admit_core::json::{Object, Value};
use admit_core::{
    Code, Document, DocumentKind, Door, Entry, Event, InitialState, Intent, Issue, IssueContext,
    IssueReason, Millis, RunState, Seq, StoredDocument, Verdict,
};
use admit_ledger::{
    DocumentFilter, FileNote, FollowUp, Handover, Issuance, IssueHandlers, Ledger,
    RecordedDelivery, SettledEffect, Settlement,
};

use crate::event::{DOOR, ProjectionFailure, event, poisoned, refused};

/// Ledger with documents.
pub trait IssuingLedger: Issuance + Ledger {}

impl<L: Issuance + Ledger> IssuingLedger for L {}

/// Storage of a ledger across processes.
pub trait IssuingHome {
    /// Opens the ledger like a new process.
    fn open(&self) -> Arc<dyn IssuingLedger>;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn IssuingHome>) {
    a_fresh_event_is_in_flight_when_it_is_recorded(&*home()).await;
    effects_are_handed_over_in_ledger_order(&*home()).await;
    the_documents_of_an_outcome_are_in_its_commit(&*home()).await;
    the_acknowledged_end_of_each_bus_topic_is_kept(&*home()).await;
    the_document_of_a_copy_depends_on_the_state_of_the_first(&*home()).await;
    a_copy_in_flight_is_void_once_its_twin_is_admitted(&*home()).await;
    a_document_id_is_unique(&*home()).await;
    after_a_crash_effects_in_flight_are_ambiguous_everywhere(&*home()).await;
    reconciliation_admits_found_and_releases_absent_events(&*home()).await;
    a_closing_run_refuses_new_events_and_recognises_duplicates(&*home()).await;
    a_quarantine_is_released_once_by_a_named_operator(&*home()).await;
    a_failing_entry_does_not_affect_others(&*home()).await;
    file_progress_survives_a_restart(&*home()).await;
    a_name_may_hold_any_character(&*home()).await;
}

pub(crate) const RUN: &str = "run-1";

/// Contract with one document per decision.
#[derive(Debug)]
pub(crate) struct IssuingContract;

impl IssuingContract {
    fn write(facts: &Object<'_>, decision: &'static str, reason: Option<&'static str>) -> Document {
        let name = facts.get("name").and_then(Value::as_str).unwrap_or("unnamed");
        Document {
            kind: if decision == "QUARANTINE" {
                DocumentKind::Quarantine
            } else {
                DocumentKind::Receipt
            },
            run: facts.get("run").and_then(Value::as_str).map(str::to_owned),
            id: format!("{decision}-{name}"),
            identity: format!("{decision}-{name}-{}", reason.unwrap_or_default()),
            decision: Cow::Borrowed(decision),
            reason: reason.map(Cow::Borrowed),
            event_id: Some(name.to_owned()),
            event_type: None,
            path: format!("{decision}/{name}"),
            text: "{}".to_owned(),
        }
    }

    fn quarantine(context: &IssueContext<'_>, reason: &'static str) -> Vec<Document> {
        let mut record = Self::write(context.facts, "QUARANTINE", Some(reason));
        let run = record.run.clone();
        if context.ids.is_used_by_other(
            DocumentKind::Quarantine,
            run.as_deref(),
            &record.id,
            &record.identity,
        ) {
            record.id = format!("{}-{reason}", record.id);
        }
        vec![Document { kind: DocumentKind::Receipt, ..record.clone() }, record]
    }
}

impl Issue for IssuingContract {
    fn run<'f>(&self, facts: &'f Object<'_>) -> Option<&'f str> {
        facts.get("run").and_then(Value::as_str)
    }

    /// Evidence of the form `topic/offset` is from a bus with numbered messages.
    fn acknowledged(&self, evidence: &Evidence) -> Option<(String, u64)> {
        let evidence = str::from_utf8(evidence.as_bytes()).ok()?.trim_matches('"');
        let (topic, offset) = evidence.split_once('/')?;
        Some((topic.to_owned(), offset.parse::<u64>().ok()? + 1))
    }

    fn issue(&self, context: &IssueContext<'_>) -> Vec<Document> {
        match context.reason {
            IssueReason::Refused { .. } => Self::quarantine(context, "REFUSED"),
            IssueReason::Conflict { .. } => Self::quarantine(context, "CONFLICT"),
            IssueReason::RunClosed | IssueReason::RunClosing => {
                let document = Self::write(context.facts, "QUARANTINE", Some("CLOSED"));
                let id = format!("outside-{}", document.id);
                vec![Document { run: None, id, ..document }]
            }
            IssueReason::Copy { first } => match first.state {
                EffectState::Done(_) => {
                    assert!(first.receipt.is_some(), "the receipt of the first is known");
                    vec![Self::write(context.facts, "DUPLICATE", Some("DUPLICATE"))]
                }
                EffectState::Ambiguous(_) => Self::quarantine(context, "AMBIGUOUS"),
                EffectState::Withheld(_)
                | EffectState::Intended(_)
                | EffectState::InFlight(_)
                | EffectState::Refused(_) => Self::quarantine(context, "IN_FLIGHT"),
            },
            IssueReason::Settled { state, .. } => match state {
                EffectState::Done(_) => vec![Self::write(context.facts, "ADMIT", None)],
                EffectState::Ambiguous(_) => Self::quarantine(context, "AMBIGUOUS"),
                EffectState::Withheld(_)
                | EffectState::Intended(_)
                | EffectState::InFlight(_)
                | EffectState::Refused(_) => Vec::new(),
            },
        }
    }

    fn is_transient(&self, reason: &str) -> bool {
        reason == "IN_FLIGHT"
    }

    fn is_released_by_settlement(&self, reason: &str) -> bool {
        reason == "IN_FLIGHT" || reason == "AMBIGUOUS"
    }
}

/// Records handed-over effects.
#[derive(Default)]
struct HandoverLog(Mutex<Vec<Seq>>);

impl Handover for HandoverLog {
    fn recorded(&self, kept: &RecordedDelivery) {
        if let FollowUp::Perform { seq, .. } = kept.follow_up {
            self.0.lock().expect("not poisoned").push(seq);
        }
    }
}

pub(crate) fn issuing() -> IssueHandlers {
    IssueHandlers { issue: Arc::new(IssuingContract), handover: Arc::new(HandoverLog::default()) }
}

pub(crate) fn named(name: &str, content: &str) -> Entry {
    let facts =
        Object::from_iter([("name", Value::from(name.to_owned())), ("run", RUN.to_owned().into())]);
    let effect = Intent { kind: "bus", plan: Object::new(), starts: InitialState::InFlight };
    Entry::Event(Event { facts, effect: Some(effect), ..event(name, content) })
}

pub(crate) async fn record(ledger: &dyn IssuingLedger, entry: Entry) -> RecordedDelivery {
    let mut kept = ledger.record_issuing(vec![entry], issuing()).await;
    kept.pop().expect("one answer").expect("recorded")
}

pub(crate) fn settlement(seq: Seq, attempt: u32, outcome: Outcome) -> Settlement {
    let evidence = Evidence::of(&Object::from_iter([("reason", "reported".into())]));
    let step = Step::Settle { attempt, outcome, evidence, reply: None };
    Settlement { seq, step, facts: None }
}

pub(crate) async fn take(
    ledger: &dyn IssuingLedger,
    one: Settlement,
) -> Result<SettledEffect, IllegalStep> {
    let settled = ledger.settle(vec![one], Arc::new(IssuingContract), Millis(2_000)).await;
    settled.expect("the ledger answers").pop().expect("one answer")
}

pub(crate) fn by() -> Attribution {
    Attribution { who: "operator".to_owned(), why: Some("looked".to_owned()) }
}

fn found(seq: Seq, found: ReconcileOutcome) -> Settlement {
    let evidence = Evidence::of(&Object::from_iter([("reason", "seen".into())]));
    Settlement { seq, step: Step::Reconcile { by: by(), found, evidence }, facts: None }
}

pub(crate) fn performs(kept: &RecordedDelivery) -> (Seq, u32) {
    let FollowUp::Perform { seq, attempt } = kept.follow_up else {
        panic!("to be performed, got {:?}", kept.follow_up)
    };
    (seq, attempt)
}

pub(crate) fn ids(filed: &[StoredDocument]) -> Vec<&str> {
    filed.iter().map(|filed| filed.document.id.as_str()).collect()
}

pub(crate) async fn counts(ledger: &dyn IssuingLedger) -> [i64; 8] {
    let run = ledger.run(RUN.to_owned()).await.expect("readable").expect("it was named");
    let c = run.counts;
    [
        c.deliveries,
        c.in_flight,
        c.ambiguous,
        c.admit,
        c.duplicate,
        c.quarantine,
        c.superseded,
        c.released,
    ]
}

pub(crate) async fn open_quarantines(ledger: &dyn IssuingLedger) -> Vec<String> {
    let filter = DocumentFilter {
        kind: Some(DocumentKind::Quarantine),
        is_open: true,
        rows_max: 100,
        ..DocumentFilter::default()
    };
    let open = ledger.filed(filter).await.expect("readable");
    open.into_iter().map(|filed| filed.document.id).collect()
}

async fn a_fresh_event_is_in_flight_when_it_is_recorded(home: &dyn IssuingHome) {
    let ledger = home.open();
    let kept = record(&*ledger, named("a", "1")).await;
    let (seq, attempt) = performs(&kept);
    assert_eq!((kept.filed.len(), attempt), (0, 1), "no document before the outcome");
    let effect = ledger.effect(seq).await.expect("readable").expect("it has one");
    assert!(matches!(effect.state, EffectState::InFlight(_)), "{effect:?}");
    let history = ledger.history(seq).await.expect("readable");
    assert_eq!(history.len(), 1, "both in one commit");
    assert_eq!(counts(&*ledger).await, [1, 1, 0, 0, 0, 0, 0, 0]);
}

async fn effects_are_handed_over_in_ledger_order(home: &dyn IssuingHome) {
    let ledger = home.open();
    let hands = Arc::new(HandoverLog::default());
    let issuing = IssueHandlers { issue: Arc::new(IssuingContract), handover: hands.clone() };
    let calls = (0..40).map(|n| {
        let batch = vec![named(&format!("e{n}"), "1"), named(&format!("e{n}"), "1")];
        ledger.record_issuing(batch, issuing.clone())
    });
    futures_util::future::join_all(calls).await;
    let handed = hands.0.lock().expect("not poisoned").clone();
    assert_eq!(handed.len(), 40, "each event once");
    assert!(handed.is_sorted(), "{handed:?}");
}

async fn the_documents_of_an_outcome_are_in_its_commit(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (a, _) = performs(&record(&*ledger, named("a", "1")).await);
    let (b, _) = performs(&record(&*ledger, named("b", "1")).await);
    let batch = vec![settlement(a, 1, Outcome::Done), settlement(b, 1, Outcome::Ambiguous)];
    let settled =
        ledger.settle(batch, Arc::new(IssuingContract), Millis(2_000)).await.expect("settled");
    let settled: Vec<SettledEffect> = settled.into_iter().map(|one| one.expect("legal")).collect();
    assert_eq!(ids(&settled[0].filed), ["ADMIT-a"]);
    assert_eq!(ids(&settled[1].filed), ["QUARANTINE-b", "QUARANTINE-b"]);
    assert_eq!(counts(&*ledger).await, [2, 0, 1, 1, 0, 1, 0, 0]);
    let again = take(&*ledger, settlement(a, 1, Outcome::Done)).await;
    assert_eq!(again.map(|_| ()), Err(IllegalStep::NotInFlight), "an outcome is settled once");
    assert_eq!(counts(&*ledger).await, [2, 0, 1, 1, 0, 1, 0, 0]);
    let stored = ledger.filed_of(a).await.expect("readable");
    assert_eq!(stored, settled[0].filed, "the returned documents are stored");
}

async fn the_acknowledged_end_of_each_bus_topic_is_kept(home: &dyn IssuingHome) {
    let ledger = home.open();
    assert!(ledger.bus_ends().await.expect("readable").is_empty());
    let settle = async |names: &[(&str, &str)], outcome: Outcome| {
        let mut batch = Vec::new();
        for (name, place) in names {
            let (seq, attempt) = performs(&record(&*ledger, named(name, "1")).await);
            let evidence = Evidence::from_stored(format!("\"{place}\""));
            let step = Step::Settle { attempt, outcome, evidence, reply: None };
            batch.push(Settlement { seq, step, facts: None });
        }
        let settled =
            ledger.settle(batch, Arc::new(IssuingContract), Millis(2_000)).await.expect("settled");
        settled.into_iter().for_each(|one| drop(one.expect("legal")));
    };
    settle(&[("a", "x/6"), ("b", "x/4"), ("c", "y/0")], Outcome::Done).await;
    settle(&[("d", "x/2")], Outcome::Done).await;
    settle(&[("e", "y/9"), ("f", "z/9")], Outcome::Ambiguous).await;
    drop(ledger);
    let ends = home.open().bus_ends().await.expect("readable");
    let expected = [("x".to_owned(), 7), ("y".to_owned(), 1)];
    assert_eq!(ends.into_iter().collect::<Vec<_>>(), expected, "the highest of what is settled");
}

async fn the_document_of_a_copy_depends_on_the_state_of_the_first(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (seq, _) = performs(&record(&*ledger, named("a", "1")).await);
    let copy = record(&*ledger, named("a", "1")).await;
    assert_eq!((copy.follow_up, copy.filed.len()), (FollowUp::InFlight { seq }, 0));
    take(&*ledger, settlement(seq, 1, Outcome::Done)).await.expect("legal");
    for n in 0..3 {
        let copy = record(&*ledger, named("a", "1")).await;
        assert_eq!(
            (copy.follow_up, ids(&copy.filed)),
            (FollowUp::Done, vec!["DUPLICATE-a"]),
            "{n}"
        );
    }
    let other = record(&*ledger, named("a", "2")).await;
    assert!(matches!(other.recorded.verdict, Verdict::Conflict { .. }));
    assert_eq!(ids(&other.filed), ["QUARANTINE-a", "QUARANTINE-a"]);
    assert_eq!(counts(&*ledger).await, [6, 0, 0, 1, 1, 1, 0, 0], "one DUPLICATE per event");
}

async fn a_copy_in_flight_is_void_once_its_twin_is_admitted(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (seq, _) = performs(&record(&*ledger, named("a", "1")).await);
    let copy = record(&*ledger, named("a", "1")).await.recorded;
    let waited =
        ledger.settle_copy(copy.clone(), seq, Arc::new(IssuingContract), Millis(3_000)).await;
    assert_eq!(ids(&waited.expect("documents").filed), ["QUARANTINE-a", "QUARANTINE-a"]);
    assert_eq!(open_quarantines(&*ledger).await, ["QUARANTINE-a"]);
    take(&*ledger, settlement(seq, 1, Outcome::Done)).await.expect("legal");
    assert!(open_quarantines(&*ledger).await.is_empty(), "its twin was admitted");
    assert_eq!(counts(&*ledger).await, [2, 0, 0, 1, 0, 1, 1, 0]);
    let later = ledger.settle_copy(copy, seq, Arc::new(IssuingContract), Millis(4_000)).await;
    assert_eq!(ids(&later.expect("documents").filed), ["DUPLICATE-a"]);
}

async fn a_document_id_is_unique(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (seq, _) = performs(&record(&*ledger, named("a", "1")).await);
    take(&*ledger, settlement(seq, 1, Outcome::Ambiguous)).await.expect("legal");
    let conflict = record(&*ledger, named("a", "2")).await;
    let expected = ["QUARANTINE-a-CONFLICT", "QUARANTINE-a-CONFLICT"];
    assert_eq!(ids(&conflict.filed), expected, "another reason is another document");
    let copy = record(&*ledger, named("a", "1")).await;
    assert_eq!(ids(&copy.filed), ["QUARANTINE-a", "QUARANTINE-a"], "the same one again");
    let all = ledger.named("QUARANTINE-a".to_owned()).await.expect("readable");
    assert_eq!(all.len(), 2, "receipt and record, once each");
}

async fn after_a_crash_effects_in_flight_are_ambiguous_everywhere(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (lost, _) = performs(&record(&*ledger, named("lost", "1")).await);
    let (done, _) = performs(&record(&*ledger, named("done", "1")).await);
    take(&*ledger, settlement(done, 1, Outcome::Done)).await.expect("legal");
    drop(ledger);
    let ledger = home.open();
    let recover = async |ledger: &dyn IssuingLedger| {
        let recovered =
            ledger.recover_issuing(Door::new(DOOR), Arc::new(IssuingContract), Millis(9_000));
        recovered.await.expect("recovers").into_iter().map(|effect| effect.seq).collect::<Vec<_>>()
    };
    assert_eq!(recover(&*ledger).await, [lost]);
    assert_eq!(recover(&*ledger).await, [], "once");
    let effect = ledger.effect(lost).await.expect("readable").expect("it has one");
    assert!(matches!(effect.state, EffectState::Ambiguous(_)));
    assert_eq!(open_quarantines(&*ledger).await, ["QUARANTINE-lost"]);
    assert_eq!(counts(&*ledger).await, [2, 0, 1, 1, 0, 1, 0, 0]);
    let late = take(&*ledger, settlement(lost, 1, Outcome::Done)).await;
    assert_eq!(late.map(|_| ()), Err(IllegalStep::NotInFlight), "nothing promotes itself");
}

async fn reconciliation_admits_found_and_releases_absent_events(home: &dyn IssuingHome) {
    let ledger = home.open();
    let mut seqs = Vec::new();
    for name in ["found", "absent"] {
        let (seq, _) = performs(&record(&*ledger, named(name, "1")).await);
        take(&*ledger, settlement(seq, 1, Outcome::Ambiguous)).await.expect("legal");
        seqs.push(seq);
    }
    let admitted = take(&*ledger, found(seqs[0], ReconcileOutcome::Done)).await.expect("legal");
    assert_eq!(ids(&admitted.filed), ["ADMIT-found"]);
    let released = take(&*ledger, found(seqs[1], ReconcileOutcome::Refused)).await.expect("legal");
    assert_eq!(ids(&released.filed), [""; 0], "what is released has no receipt");
    assert!(open_quarantines(&*ledger).await.is_empty(), "a reconciled ambiguity is released");
    assert_eq!(counts(&*ledger).await, [2, 0, 0, 1, 0, 2, 0, 2]);

    let batch = vec![named("absent", "1"), named("absent", "1")];
    let again = ledger.record_issuing(batch, issuing()).await;
    let again: Vec<RecordedDelivery> =
        again.into_iter().map(|kept| kept.expect("recorded")).collect();
    assert_eq!(performs(&again[0]), (seqs[1], 2), "a later copy performs");
    assert_eq!(again[1].follow_up, FollowUp::InFlight { seq: seqs[1] }, "and only one of them");
    let other = record(&*ledger, named("absent", "2")).await;
    assert!(
        matches!(other.recorded.verdict, Verdict::Conflict { .. }),
        "the name keeps its content"
    );
    take(&*ledger, settlement(seqs[1], 2, Outcome::Ambiguous)).await.expect("legal");
    let open = open_quarantines(&*ledger).await;
    assert!(
        open.contains(&"QUARANTINE-absent".to_owned()),
        "ambiguous again, open again: {open:?}"
    );
    assert_eq!(counts(&*ledger).await[7], 1);
}

async fn a_closing_run_refuses_new_events_and_recognises_duplicates(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (known, _) = performs(&record(&*ledger, named("known", "1")).await);
    let (flying, _) = performs(&record(&*ledger, named("flying", "1")).await);
    take(&*ledger, settlement(known, 1, Outcome::Done)).await.expect("legal");
    let turn = async |from, to| {
        ledger.turn_run(RUN.to_owned(), from, to, Millis(5_000)).await.expect("turned")
    };
    assert!(!turn(RunState::Closing, RunState::Closed).await, "it is open");
    assert!(turn(RunState::Open, RunState::Closing).await);
    let before = counts(&*ledger).await;
    for entry in [named("new", "1"), named("known", "2")] {
        let kept = record(&*ledger, entry).await;
        assert_eq!(kept.follow_up, FollowUp::RunClosing);
        assert!(matches!(kept.recorded.verdict, Verdict::Refused { seq: Some(_) }));
        assert!(kept.filed.iter().all(|filed| filed.document.run.is_none()), "outside of the run");
        let seq = kept.recorded.verdict.seq().expect("kept");
        let receipt = ledger.receipt(seq).await.expect("readable").expect("kept");
        assert_eq!(receipt.reason.map(|(code, _)| code), Some(Code::RunClosing));
    }
    let copy = record(&*ledger, named("known", "1")).await;
    assert_eq!(ids(&copy.filed), ["DUPLICATE-known"]);
    take(&*ledger, settlement(flying, 1, Outcome::Done)).await.expect("what flies may land");
    let after = counts(&*ledger).await;
    assert_eq!((after[5], after[3], after[1]), (before[5], 2, 0));
    assert!(turn(RunState::Closing, RunState::Open).await, "a refused closure reopens");
    performs(&record(&*ledger, named("new", "1")).await);
}

async fn a_quarantine_is_released_once_by_a_named_operator(home: &dyn IssuingHome) {
    let ledger = home.open();
    let Entry::Refused(mut bad) = refused("bad") else { panic!("a refusal") };
    bad.facts = Object::from_iter([("name", "bad".into()), ("run", RUN.into())]);
    let kept = record(&*ledger, Entry::Refused(bad)).await;
    assert_eq!(ids(&kept.filed), ["QUARANTINE-bad", "QUARANTINE-bad"]);
    let release = async || {
        let (run, id) = (RUN.to_owned(), "QUARANTINE-bad".to_owned());
        ledger.release(run, id, "dismissed", by(), Millis(7_000)).await.expect("written")
    };
    assert!(release().await);
    assert!(!release().await, "once");
    assert!(open_quarantines(&*ledger).await.is_empty());
    let named = ledger.named("QUARANTINE-bad".to_owned()).await.expect("readable");
    assert!(named.iter().all(|filed| filed.released.as_ref().is_some_and(|r| r.by == by())));
    assert_eq!(counts(&*ledger).await, [1, 0, 0, 0, 0, 1, 0, 1]);
}

async fn a_failing_entry_does_not_affect_others(home: &dyn IssuingHome) {
    let ledger = home.open();
    let batch =
        vec![named("a", "1"), poisoned("bad", ProjectionFailure::WithPanic), named("b", "1")];
    let kept = ledger.record_issuing(batch, issuing()).await;
    assert!(kept[1].is_err());
    performs(kept[0].as_ref().expect("recorded"));
    performs(kept[2].as_ref().expect("recorded"));
    assert_eq!(counts(&*ledger).await, [2, 2, 0, 0, 0, 0, 0, 0], "counted once");
}

async fn file_progress_survives_a_restart(home: &dyn IssuingHome) {
    let ledger = home.open();
    let (seq, _) = performs(&record(&*ledger, named("a", "1")).await);
    let settled = take(&*ledger, settlement(seq, 1, Outcome::Done)).await.expect("legal");
    let n = settled.filed[0].n;
    assert_eq!(ledger.synced().await.expect("readable"), (0, n));
    ledger.note_files(FileNote::Unwritten(vec![n])).await.expect("noted");
    let unwritten = ledger.unwritten(0, 10).await.expect("readable");
    assert_eq!(ids(&unwritten), ["ADMIT-a"]);
    ledger.note_files(FileNote::Written(vec![n])).await.expect("noted");
    ledger.note_files(FileNote::SyncedTo(n)).await.expect("noted");
    assert!(ledger.unwritten(0, 10).await.expect("readable").is_empty());
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.synced().await.expect("readable"), (n, n));
}

async fn a_name_may_hold_any_character(home: &dyn IssuingHome) {
    let ledger = home.open();
    for name in ["a\0b", "\u{f8fe}0", "\u{10ffff}", "q'\"\\u0000"] {
        let (seq, _) = performs(&record(&*ledger, named(name, "1")).await);
        let settled = take(&*ledger, settlement(seq, 1, Outcome::Done)).await.expect("legal");
        assert_eq!(settled.filed[0].document.event_id.as_deref(), Some(name));
        assert_eq!(ledger.filed_of(seq).await.expect("readable"), settled.filed, "{name:?}");
        let copy = record(&*ledger, named(name, "1")).await;
        assert_eq!(ids(&copy.filed), [format!("DUPLICATE-{name}")]);
        let named = ledger.named(format!("ADMIT-{name}")).await.expect("readable");
        assert_eq!(named, settled.filed, "{name:?} is found by its name");
    }
}
