//! Contract suite of the ledger port.
//!
//! [`all`] runs each test on a new ledger. Ledgers that pass give the same verdicts on the same
//! inputs.

use std::sync::Arc;

use admit_core::{
    Age, Code, EntityId, Entry, Fault, FaultKind, PriorAdmission, RecordedEntry, Seq, Verdict,
};
use admit_ledger::{Ledger, ReceiptFilter, ReceiptPage, WholeLedger};
use futures_util::future::join_all;

use crate::event::{
    DOOR, ProjectionFailure, TALLY, counted, entry, event, key, poisoned, refused, revisable,
};

/// Storage of a ledger. Reopening it gives the same content.
pub trait Home {
    /// Opens the ledger with this retention age. The previous one has been dropped.
    fn open_retaining(&self, retain: Option<Age>) -> Arc<dyn WholeLedger>;

    /// Opens the ledger with unlimited retention.
    fn open(&self) -> Arc<dyn WholeLedger> {
        self.open_retaining(None)
    }
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    a_new_key_is_fresh_and_a_copy_is_a_duplicate_of_it(&*home()).await;
    other_content_under_a_known_key_is_kept_and_not_applied(&*home()).await;
    a_revision_is_kept_and_applied_and_a_late_copy_is_not_newer(&*home()).await;
    a_refusal_is_kept_with_its_reason_and_claims_no_key(&*home()).await;
    repeats_inside_a_batch_are_duplicates_of_its_first(&*home()).await;
    racing_copies_make_one_admission(&*home()).await;
    the_ledger_survives_a_restart(&*home()).await;
    side_effects_happen_once_with_their_admission(&*home()).await;
    a_poisoned_event_fails_alone(&*home()).await;
    positions_are_assigned_and_listed_in_order(&*home()).await;
    a_filtered_page_is_limited_by_examined_rows(&*home()).await;
    an_empty_batch_gives_an_empty_result(&*home()).await;
}

/// Records one entry.
pub async fn one(ledger: &dyn Ledger, entry: Entry) -> Verdict {
    many(ledger, vec![entry]).await.remove(0)
}

/// Records a batch that must not fail.
pub async fn many(ledger: &dyn Ledger, batch: Vec<Entry>) -> Vec<Verdict> {
    let recorded = ledger.record(batch).await;
    recorded.into_iter().map(|one| one.expect("the ledger answers").verdict).collect()
}

fn first_of(verdict: &Verdict) -> &PriorAdmission {
    match verdict {
        Verdict::Duplicate { first, .. }
        | Verdict::Revision { first, .. }
        | Verdict::Conflict { first, .. } => first,
        Verdict::Fresh { .. } | Verdict::Refused { .. } => panic!("{verdict:?} has no first"),
    }
}

pub(crate) fn seq_of(verdict: &Verdict) -> Seq {
    verdict.seq().expect("it was kept")
}

async fn a_new_key_is_fresh_and_a_copy_is_a_duplicate_of_it(home: &dyn Home) {
    let ledger = home.open();
    let fresh = one(&*ledger, entry("k", "a")).await;
    assert_eq!(fresh.word(), "fresh");

    let mut copy = event("k", "a");
    copy.attempt = Some(3);
    copy.received_at.0 += 5_000;
    let again = one(&*ledger, Entry::Event(copy)).await;
    assert_eq!(again.word(), "duplicate");
    let first = first_of(&again);
    assert_eq!(first.seq, seq_of(&fresh), "a duplicate points at the first");
    assert_eq!(first.digest, event("k", "a").digest);
    assert_eq!(&first.facts[..], br#"{"name":"k"}"#, "the first's facts come back");

    let receipt = ledger.receipt(seq_of(&fresh)).await.expect("readable").expect("kept");
    assert_eq!(receipt.verdict, "fresh");
    assert_eq!(receipt.duplicate_count, 1);
    assert_eq!(receipt.last_seen_at.0, 6_000, "a copy moves last_seen_at before its answer");
    assert_eq!(receipt.last_attempt, Some(3));
    assert_eq!(receipt.key, Some(key("k")));
    let mut earlier = event("late", "a");
    let late = one(&*ledger, entry("late", "a")).await;
    earlier.received_at.0 -= 500;
    one(&*ledger, Entry::Event(earlier)).await;
    let late = ledger.receipt(seq_of(&late)).await.expect("readable").expect("kept");
    assert_eq!(late.last_seen_at, late.received_at, "not seen last before it was seen first");
    let sighting = ledger.receipt(seq_of(&again)).await.expect("readable").expect("kept");
    assert_eq!(sighting.verdict, "duplicate", "a copy has a receipt of its own");
    assert_eq!(sighting.first.map(|id| id.seq), Some(seq_of(&fresh)));
    let found = ledger.find(key("k")).await.expect("readable").expect("known");
    assert_eq!(found.id, receipt.id);
    assert_eq!(ledger.find(key("unknown")).await.expect("readable"), None);
    let body = ledger.body(seq_of(&fresh)).await.expect("readable");
    assert_eq!(body.as_deref(), Some(&b"a"[..]), "the raw body is kept");
}

async fn other_content_under_a_known_key_is_kept_and_not_applied(home: &dyn Home) {
    let ledger = home.open();
    let fresh = one(&*ledger, counted("k", "a", "t")).await;
    let conflict = one(&*ledger, counted("k", "other", "t")).await;
    assert_eq!(conflict.word(), "conflict");
    assert_eq!(first_of(&conflict).seq, seq_of(&fresh));
    let repeated = one(&*ledger, counted("k", "other", "t")).await;
    assert_eq!(repeated.word(), "conflict", "the same conflict again is still one");
    assert_eq!(one(&*ledger, counted("k", "a", "t")).await.word(), "duplicate");

    assert_eq!(tally(&*ledger, "t").await.as_deref(), Some("1"), "a conflict applies nothing");
    let kept = list(&*ledger, &["conflict"]).await;
    assert_eq!(kept.len(), 1, "the same other content is kept once");
    let body = ledger.body(kept[0]).await.expect("readable");
    assert_eq!(body.as_deref(), Some(&b"other"[..]), "the other content is kept as evidence");
    let receipt = ledger.receipt(seq_of(&fresh)).await.expect("readable").expect("kept");
    assert_eq!(receipt.duplicate_count, 3, "conflicting copies count as copies");
}

async fn a_revision_is_kept_and_applied_and_a_late_copy_is_not_newer(home: &dyn Home) {
    let ledger = home.open();
    let fresh = one(&*ledger, revisable("k", "one")).await;
    let newer = one(&*ledger, revisable("k", "two")).await;
    assert_eq!(newer.word(), "revision");
    assert_eq!(first_of(&newer).seq, seq_of(&fresh));
    for late in ["one", "two"] {
        assert_eq!(one(&*ledger, revisable("k", late)).await.word(), "duplicate", "{late}");
    }
    assert_eq!(one(&*ledger, revisable("k", "three")).await.word(), "revision");
    assert_eq!(list(&*ledger, &["fresh", "revision"]).await.len(), 3);
}

async fn a_refusal_is_kept_with_its_reason_and_claims_no_key(home: &dyn Home) {
    let ledger = home.open();
    let verdict = one(&*ledger, refused("{nonsense")).await;
    assert_eq!(verdict.word(), "refused");
    let receipt = ledger.receipt(seq_of(&verdict)).await.expect("readable").expect("kept");
    assert_eq!(receipt.key, None);
    assert_eq!(receipt.reason, Some((Code::InvalidJson, "not json".to_owned())));
    let body = ledger.body(seq_of(&verdict)).await.expect("readable");
    assert_eq!(body.as_deref(), Some(&b"{nonsense"[..]));

    one(&*ledger, refused("{nonsense")).await;
    one(&*ledger, refused("{other")).await;
    assert_eq!(list(&*ledger, &["refused"]).await.len(), 2, "the same bytes are kept once");
    let receipt = ledger.receipt(seq_of(&verdict)).await.expect("readable").expect("kept");
    assert_eq!(receipt.duplicate_count, 1, "and counted each time");
}

async fn repeats_inside_a_batch_are_duplicates_of_its_first(home: &dyn Home) {
    let ledger = home.open();
    let batch = vec![
        counted("k", "a", "t"),
        counted("k", "a", "t"),
        counted("l", "bb", "t"),
        counted("k", "x", "t"),
        counted("k", "a", "t"),
    ];
    let verdicts = many(&*ledger, batch).await;
    let words: Vec<&str> = verdicts.iter().map(Verdict::word).collect();
    assert_eq!(words, ["fresh", "duplicate", "fresh", "conflict", "duplicate"]);
    assert_eq!(first_of(&verdicts[4]).seq, seq_of(&verdicts[0]));
    assert_eq!(tally(&*ledger, "t").await.as_deref(), Some("3"));
}

async fn racing_copies_make_one_admission(home: &dyn Home) {
    const COPIES: usize = 64;
    let ledger = home.open();
    for round in 0..10 {
        let name = format!("raced-{round}");
        let racing = (0..COPIES).map(|_| one(&*ledger, counted(&name, "a", "t")));
        let verdicts = join_all(racing).await;
        let fresh: Vec<&Verdict> = verdicts.iter().filter(|v| v.word() == "fresh").collect();
        assert_eq!(fresh.len(), 1, "one of {COPIES} copies is fresh");
        for copy in verdicts.iter().filter(|v| v.word() != "fresh") {
            assert_eq!(copy.word(), "duplicate");
            assert_eq!(first_of(copy).seq, seq_of(fresh[0]));
        }
    }
    assert_eq!(tally(&*ledger, "t").await.as_deref(), Some("10"));
}

async fn the_ledger_survives_a_restart(home: &dyn Home) {
    let ledger = home.open();
    let tag = ledger.tag();
    let mut firsts = Vec::new();
    for index in 0..200 {
        firsts.push(one(&*ledger, counted(&format!("k{index}"), "a", "t")).await);
    }
    one(&*ledger, counted("k0", "a", "t")).await;
    drop(ledger);

    let ledger = home.open();
    assert_eq!(ledger.tag(), tag, "a ledger keeps its name");
    for (index, first) in firsts.iter().enumerate() {
        let again = one(&*ledger, counted(&format!("k{index}"), "a", "t")).await;
        assert_eq!(again.word(), "duplicate", "k{index} is known after a restart");
        assert_eq!(first_of(&again).seq, seq_of(first));
    }
    assert_eq!(tally(&*ledger, "t").await.as_deref(), Some("200"));
    let fresh = one(&*ledger, entry("after", "a")).await;
    let last = firsts.iter().map(seq_of).max().expect("there are some");
    assert!(seq_of(&fresh) > last, "places are never given twice");
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.admissions, status.sightings), (201, 201));
}

async fn side_effects_happen_once_with_their_admission(home: &dyn Home) {
    let ledger = home.open();
    let batch: Vec<Entry> = (0..50)
        .map(|n| counted(&format!("k{n}"), "aa", if n % 2 == 0 { "even" } else { "odd" }))
        .collect();
    many(&*ledger, batch.clone()).await;
    many(&*ledger, batch).await;
    assert_eq!(tally(&*ledger, "even").await.as_deref(), Some("50"));
    assert_eq!(tally(&*ledger, "odd").await.as_deref(), Some("50"));
    let some = ledger.documents(TALLY, "e".to_owned(), None, 10).await.expect("readable");
    assert_eq!(some, [("even".to_owned(), "50".to_owned())]);
    let rest = ledger
        .documents(TALLY, String::new(), Some("even".to_owned()), 10)
        .await
        .expect("readable");
    assert_eq!(rest, [("odd".to_owned(), "50".to_owned())]);
}

async fn a_poisoned_event_fails_alone(home: &dyn Home) {
    let ledger = home.open();
    let batch = vec![
        counted("before", "a", "poisoned"),
        poisoned("error", ProjectionFailure::WithError),
        poisoned("panic", ProjectionFailure::WithPanic),
        counted("after", "b", "poisoned"),
    ];
    let outcomes = ledger.record(batch).await;
    let words: Vec<&str> = outcomes.iter().map(word_or_fault).collect();
    assert_eq!(words, ["fresh", "internal", "internal", "fresh"]);
    assert_eq!(tally(&*ledger, "poisoned").await.as_deref(), Some("2"), "nothing half-applied");
    assert_eq!(ledger.find(key("panic")).await.expect("readable"), None);
    assert_eq!(one(&*ledger, entry("panic", "poison")).await.word(), "fresh", "no key claimed");
}

fn word_or_fault(outcome: &Result<RecordedEntry, Fault>) -> &'static str {
    match outcome {
        Ok(recorded) => recorded.verdict.word(),
        Err(fault) if fault.kind == FaultKind::Internal => "internal",
        Err(_) => "fault",
    }
}

async fn positions_are_assigned_and_listed_in_order(home: &dyn Home) {
    let ledger = home.open();
    let batch = (0..20).map(|n| entry(&format!("k{n}"), "a")).collect();
    let seqs: Vec<Seq> = many(&*ledger, batch).await.iter().map(seq_of).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
    let filter = ReceiptFilter { after: seqs[4], rows_max: 3, ..ReceiptFilter::default() };
    let page = ledger.list(filter).await.expect("readable");
    let page: Vec<Seq> = page.iter().map(|receipt| receipt.id.seq).collect();
    assert_eq!(page, seqs[5..8]);
    let filter =
        ReceiptFilter { door: Some("another".to_owned()), rows_max: 3, ..ReceiptFilter::default() };
    assert_eq!(ledger.list(filter).await.expect("readable"), []);
    let filter =
        ReceiptFilter { door: Some(DOOR.to_owned()), rows_max: 100, ..ReceiptFilter::default() };
    assert_eq!(ledger.list(filter).await.expect("readable").len(), 20);
}

async fn a_filtered_page_is_limited_by_examined_rows(home: &dyn Home) {
    let ledger = home.open();
    let mut batch: Vec<Entry> = (0..30).map(|n| entry(&format!("k{n}"), "a")).collect();
    batch.insert(25, refused("b"));
    let seqs: Vec<Seq> = many(&*ledger, batch).await.iter().map(seq_of).collect();
    let page =
        async |filter, examined_max| ledger.page_of(filter, examined_max).await.expect("readable");
    let rare = |after| {
        let verdicts = vec!["refused".to_owned(), "revision".to_owned()];
        ReceiptFilter { verdicts, after, rows_max: 5, ..ReceiptFilter::default() }
    };
    let (mut after, mut found, mut pages) = (Seq(0), Vec::new(), 0);
    loop {
        let page = page(rare(after), 10).await;
        found.extend(page.receipts.iter().map(|receipt| receipt.id.seq));
        pages += 1;
        let Some(next) = page.next else { break };
        assert!(next > after, "a page leads on");
        after = next;
    }
    assert_eq!((found, pages), (vec![seqs[25]], 4), "31 admissions, ten a page");
    let other =
        ReceiptFilter { door: Some("another".to_owned()), rows_max: 5, ..ReceiptFilter::default() };
    let first = page(other.clone(), 10).await;
    assert_eq!((first.receipts.len(), first.next), (0, Some(seqs[9])), "an empty page leads on");
    assert_eq!(page(other, 31).await, ReceiptPage::default(), "all of it was examined");
    let quarantine = ReceiptFilter {
        verdicts: vec!["refused".to_owned()],
        rows_max: 5,
        ..ReceiptFilter::default()
    };
    let page_of_one = page(quarantine, 10).await;
    assert_eq!((page_of_one.receipts.len(), page_of_one.next), (1, None), "by its own index");
    let all = ReceiptFilter { rows_max: 20, ..ReceiptFilter::default() };
    let whole = page(all, 10).await;
    assert_eq!(
        (whole.receipts.len(), whole.next),
        (20, Some(seqs[19])),
        "nothing is left out here"
    );
}

async fn an_empty_batch_gives_an_empty_result(home: &dyn Home) {
    let ledger = home.open();
    assert!(ledger.record(Vec::new()).await.is_empty());
}

async fn tally(ledger: &dyn Ledger, entity: &str) -> Option<String> {
    let id = EntityId { projection: TALLY, entity: entity.to_owned() };
    ledger.document(id).await.expect("readable")
}

async fn list(ledger: &dyn Ledger, verdicts: &[&str]) -> Vec<Seq> {
    let verdicts = verdicts.iter().map(|&verdict| verdict.to_owned()).collect();
    let filter = ReceiptFilter { verdicts, rows_max: 1_000, ..ReceiptFilter::default() };
    let receipts = ledger.list(filter).await.expect("readable");
    receipts.iter().map(|receipt| receipt.id.seq).collect()
}
