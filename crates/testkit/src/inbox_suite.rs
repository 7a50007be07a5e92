//! Contract suite of the inbox: one row per event, created once, changed by claims only.

use admit_core::{
    Age, Code, Door, Entry, Event, Millis, OnOtherContent, Principal, Seq, Verdict,
    refusal_of_conflict,
};
use admit_ledger::WholeLedger;
use admit_ledger::port::{
    ClaimRequest, ClaimedEntry, DONE, InboxFilter, InboxRow, LeaseAction, LeaseChange, LeaseResult,
    ReceiptFilter,
};
use futures_util::future::join_all;

use crate::event::streamed;
use crate::ledger_suite::Home;

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    an_event_has_one_row_unchanged_by_copies(&*home()).await;
    other_content_of_another_principal_is_refused_and_each_keeps_its_own_evidence(&*home()).await;
    racing_copies_make_one_row(&*home()).await;
    a_row_changes_with_its_claim_and_not_with_copies(&*home()).await;
    an_expired_lease_is_taken_over_and_the_stale_one_changes_nothing(&*home()).await;
    rows_are_listed_by_status_in_order_of_arrival(&*home()).await;
    finished_rows_are_purged_with_their_bodies_and_others_stay(&*home()).await;
    pagination_continues_after_a_deleted_row(&*home()).await;
}

fn door() -> Door {
    Door::new("skyra")
}

/// Inbox event called `id`.
fn event(id: &str, content: &str, at: i64) -> Event {
    let event = streamed(&door(), id, content);
    let facts = admit_core::json::Object::from_iter([("event_id", id.to_owned().into())]);
    let on_other_content = OnOtherContent::Conflict;
    let inbox = Some(id.to_owned());
    Event { inbox, facts, received_at: Millis(at), on_other_content, ..event }
}

async fn other_content_of_another_principal_is_refused_and_each_keeps_its_own_evidence(
    home: &dyn Home,
) {
    let ledger = home.open();
    let sent = |principal: &str, id: &str, content: &str| Event {
        principal: Principal::new(principal),
        on_other_content: OnOtherContent::OwnedConflict,
        ..event(id, content, 1)
    };
    let taken = |verdict: &Verdict, event: &Event| {
        let Verdict::Conflict { first, .. } = verdict else { panic!("{verdict:?} is no conflict") };
        refusal_of_conflict(first, event).map(|(code, _)| code)
    };
    // In one batch and in several, before and after a restart.
    let batch = [sent("a", "e0", "of a"), sent("b", "e0", "of b")];
    let recorded = ledger.record(batch.iter().cloned().map(Entry::Event).collect()).await;
    let verdicts: Vec<Verdict> =
        recorded.into_iter().map(|one| one.expect("the ledger answers").verdict).collect();
    assert_eq!(taken(&verdicts[1], &batch[1]), Some(Code::EventIdTaken));
    assert_eq!(put(&*ledger, sent("a", "e1", "of a")).await.word(), "fresh");
    drop(ledger);
    let ledger = home.open();
    assert_eq!(put(&*ledger, sent("b", "e1", "of a")).await.word(), "duplicate");
    for (principal, content, code) in [
        ("b", "of b", Some(Code::EventIdTaken)),
        ("b", "of b", Some(Code::EventIdTaken)),
        ("a", "of b", None),
        ("a", "newer", None),
        ("b", "newer", Some(Code::EventIdTaken)),
    ] {
        let event = sent(principal, "e1", content);
        let verdict = put(&*ledger, event.clone()).await;
        assert_eq!(taken(&verdict, &event), code, "{content} of {principal}");
    }
    let verdicts = vec!["conflict".to_owned()];
    let filter = ReceiptFilter { verdicts, rows_max: 100, ..ReceiptFilter::default() };
    let kept = ledger.list(filter).await.expect("readable");
    let kept: Vec<(&str, Option<Code>)> = kept
        .iter()
        .map(|kept| (kept.principal.as_str(), kept.reason.as_ref().map(|(code, _)| *code)))
        .collect();
    let (a, b) = (("a", None), ("b", Some(Code::EventIdTaken)));
    assert_eq!(kept, [b, b, a, a, b], "one for each principal and content");
    let row = row(&*ledger, "e1").await;
    assert_eq!((row.payload.as_str(), row.principal.as_deref()), ("of a", Some("a")));
    assert_eq!(listed(&*ledger, None).await, ["e0", "e1"]);
}

async fn put(ledger: &dyn WholeLedger, event: Event) -> Verdict {
    let mut recorded = ledger.record(vec![Entry::Event(event)]).await;
    recorded.remove(0).expect("the ledger answers").verdict
}

async fn row(ledger: &dyn WholeLedger, id: &str) -> InboxRow {
    ledger.in_inbox(id.to_owned()).await.expect("readable").expect("there is a row")
}

async fn listed(ledger: &dyn WholeLedger, status: Option<&str>) -> Vec<String> {
    let filter = InboxFilter {
        status: status.map(str::to_owned),
        after: 0,
        rows_max: 100,
        bytes_max: usize::MAX,
    };
    let page = ledger.inbox(filter).await.expect("readable");
    page.rows.into_iter().map(|row| row.event_id).collect()
}

async fn claim(ledger: &dyn WholeLedger, rows_max: usize, now: i64) -> Vec<ClaimedEntry> {
    let wanted = ClaimRequest {
        door: door(),
        consumer: "tests".to_owned(),
        rows_max,
        bytes_max: usize::MAX,
        lease: Age::from_secs(30),
        now: Millis(now),
    };
    ledger.claim(wanted).await.expect("the ledger answers")
}

async fn change(
    ledger: &dyn WholeLedger,
    claimed: &ClaimedEntry,
    change: LeaseAction,
    now: i64,
) -> LeaseResult {
    let change = LeaseChange { seq: claimed.entry.seq, lease: claimed.lease, change };
    ledger.change(door(), vec![change], Millis(now)).await.expect("the ledger answers")[0]
}

async fn finish(
    ledger: &dyn WholeLedger,
    claimed: &ClaimedEntry,
    word: &str,
    now: i64,
) -> LeaseResult {
    change(ledger, claimed, LeaseAction::Finish { status: word.to_owned() }, now).await
}

async fn an_event_has_one_row_unchanged_by_copies(home: &dyn Home) {
    let ledger = home.open();
    assert!(matches!(put(&*ledger, event("a", "{}", 1_000)).await, Verdict::Fresh { .. }));
    let born = row(&*ledger, "a").await;
    assert_eq!((born.status.as_str(), born.payload.as_str()), ("received", "{}"));
    assert_eq!(born.received_at, "1970-01-01T00:00:01.000Z");
    assert_eq!(born.received_at, born.last_updated_at);
    assert!(matches!(put(&*ledger, event("a", "{}", 2_000)).await, Verdict::Duplicate { .. }));
    assert!(matches!(put(&*ledger, event("a", "{1}", 3_000)).await, Verdict::Conflict { .. }));
    drop(ledger);
    let ledger = home.open();
    assert_eq!(row(&*ledger, "a").await, born, "copies, conflicts and restarts change nothing");
    let other = Event { door: Door::new("events/x"), inbox: None, ..event("b", "{}", 1) };
    put(&*ledger, other).await;
    assert_eq!(ledger.in_inbox("b".to_owned()).await.expect("readable"), None);
}

async fn racing_copies_make_one_row(home: &dyn Home) {
    let ledger = home.open();
    let copies = (0..64).map(|_| put(&*ledger, event("a", "{}", 1)));
    let verdicts = join_all(copies).await;
    let fresh = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Fresh { .. })).count();
    assert_eq!((fresh, listed(&*ledger, None).await.len()), (1, 1));
}

async fn a_row_changes_with_its_claim_and_not_with_copies(home: &dyn Home) {
    let ledger = home.open();
    for id in ["a", "b", "c"] {
        put(&*ledger, event(id, "{}", 1_000)).await;
    }
    let held = claim(&*ledger, 10, 2_000).await;
    assert_eq!(held.len(), 3);
    let claimed = row(&*ledger, "a").await;
    assert_eq!(claimed.status, "claimed");
    assert_eq!(claimed.last_updated_at, "1970-01-01T00:00:02.000Z");
    assert_eq!(claimed.received_at, "1970-01-01T00:00:01.000Z");
    assert_eq!(finish(&*ledger, &held[0], DONE, 3_000).await, LeaseResult::Done);
    assert_eq!(finish(&*ledger, &held[1], "failed", 3_000).await, LeaseResult::Done);
    let release = LeaseAction::Release { again_at: Millis(3_000) };
    assert_eq!(change(&*ledger, &held[2], release, 3_000).await, LeaseResult::Done);
    for (id, status) in [("a", DONE), ("b", "failed"), ("c", "received")] {
        let moved = row(&*ledger, id).await;
        assert_eq!(moved.status, status);
        assert!(matches!(put(&*ledger, event(id, "{}", 9_000)).await, Verdict::Duplicate { .. }));
        assert_eq!(row(&*ledger, id).await, moved, "a copy touches nothing");
    }
}

async fn an_expired_lease_is_taken_over_and_the_stale_one_changes_nothing(home: &dyn Home) {
    let ledger = home.open();
    put(&*ledger, event("a", "{}", 0)).await;
    let first = claim(&*ledger, 1, 0).await.remove(0);
    assert!(claim(&*ledger, 1, 29_999).await.is_empty(), "the lease is exclusive");
    assert_eq!(finish(&*ledger, &first, DONE, 30_000).await, LeaseResult::StaleLease);
    assert_eq!(row(&*ledger, "a").await.status, "claimed", "a stale lease finishes nothing");
    let second = claim(&*ledger, 1, 30_000).await.remove(0);
    assert_eq!(finish(&*ledger, &first, "failed", 31_000).await, LeaseResult::StaleLease);
    assert_eq!(finish(&*ledger, &second, DONE, 31_000).await, LeaseResult::Done);
    assert_eq!(row(&*ledger, "a").await.status, DONE);
}

async fn rows_are_listed_by_status_in_order_of_arrival(home: &dyn Home) {
    let ledger = home.open();
    // Not in the order of names, which is the order of the primary key.
    for id in ["c", "a", "d", "b"] {
        put(&*ledger, event(id, "{}", 1)).await;
    }
    claim(&*ledger, 1, 2).await;
    assert_eq!(listed(&*ledger, None).await, ["c", "a", "d", "b"]);
    assert_eq!(listed(&*ledger, Some("received")).await, ["a", "d", "b"]);
    assert_eq!(listed(&*ledger, Some("claimed")).await, ["c"]);
    let filter = InboxFilter { status: None, after: 0, rows_max: 3, bytes_max: usize::MAX };
    let page = ledger.inbox(filter.clone()).await.expect("readable");
    assert_eq!((page.rows.len(), page.more), (3, true));
    let rest = ledger.inbox(InboxFilter { after: page.next, ..filter }).await.expect("readable");
    assert_eq!((rest.rows[0].event_id.as_str(), rest.rows.len(), rest.more), ("b", 1, false));
}

async fn finished_rows_are_purged_with_their_bodies_and_others_stay(home: &dyn Home) {
    let ledger = home.open_retaining(Some(Age::from_secs(60)));
    put(&*ledger, event("a", "{}", 0)).await;
    put(&*ledger, event("b", "{}", 0)).await;
    let held = claim(&*ledger, 1, 1).await.remove(0);
    finish(&*ledger, &held, DONE, 2).await;
    while ledger.sweep(Millis(10_000_000_000)).await.expect("swept").more {}
    assert_eq!(listed(&*ledger, None).await, ["b"]);
    assert_eq!(ledger.body(Seq(1)).await.expect("readable"), None);
    assert!(matches!(put(&*ledger, event("a", "{}", 9)).await, Verdict::Duplicate { .. }));
    assert_eq!(listed(&*ledger, None).await, ["b"], "what is finished does not come back");
    let late = claim(&*ledger, 1, 10).await.remove(0);
    assert_eq!((late.entry.seq, &late.entry.body), (Seq(2), &None), "its payload is in its row");
    assert_eq!(row(&*ledger, "b").await.payload, "{}");
    assert_eq!(finish(&*ledger, &late, DONE, 11).await, LeaseResult::Done);
    assert!(listed(&*ledger, None).await.is_empty(), "it has stayed long enough");
}

async fn pagination_continues_after_a_deleted_row(home: &dyn Home) {
    let ledger = home.open_retaining(Some(Age::from_secs(60)));
    for id in ["a", "b"] {
        put(&*ledger, event(id, "{}", 0)).await;
    }
    let filter = InboxFilter { status: None, after: 0, rows_max: 9, bytes_max: usize::MAX };
    let seen = ledger.inbox(filter.clone()).await.expect("readable");
    for held in claim(&*ledger, 2, 1).await {
        finish(&*ledger, &held, DONE, 2).await;
    }
    while ledger.sweep(Millis(10_000_000_000)).await.expect("swept").more {}
    assert!(listed(&*ledger, None).await.is_empty(), "both are old and finished");
    put(&*ledger, event("c", "{}", 3)).await;
    let next = ledger.inbox(InboxFilter { after: seen.next, ..filter }).await.expect("readable");
    let ids: Vec<&str> = next.rows.iter().map(|row| row.event_id.as_str()).collect();
    assert_eq!(ids, ["c"]);
}
