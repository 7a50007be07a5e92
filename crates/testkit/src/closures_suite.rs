//! Contract suite of run closures: a run is closed once, by the latest attempt, or not at all.

use std::sync::Arc;

use admit_core::effect::{Attribution, Outcome};
use admit_core::{DocumentKind, Millis, RunState};
use admit_ledger::FollowUp;
use admit_ledger::closures::{
    ClosingEnd, ClosingStart, Closures, QuarantineState, RunScope, UnsettledCounts,
};

use crate::event::DOOR;
use crate::issuance_suite::{IssuingLedger, RUN, named, performs, record, settlement, take};

/// Ledger with documents and closures.
pub trait ClosingLedger: IssuingLedger + Closures {}

impl<L: IssuingLedger + Closures> ClosingLedger for L {}

/// Storage of a ledger across processes.
pub trait ClosingHome {
    /// Opens the ledger like a new process.
    fn open(&self) -> Arc<dyn ClosingLedger>;
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn ClosingHome>) {
    only_the_latest_attempt_closes_a_run(&*home()).await;
    a_closed_run_keeps_its_closure(&*home()).await;
    a_run_is_reopened_after_its_closing_process_died(&*home()).await;
    receipts_and_ids_come_in_pages(&*home()).await;
    unsettled_effects_are_counted(&*home()).await;
}

fn by() -> Attribution {
    Attribution { who: "operator".to_owned(), why: None }
}

async fn begin(ledger: &dyn ClosingLedger) -> ClosingStart {
    ledger.begin_closing(RUN.to_owned(), by(), Millis(10_000)).await.expect("begun")
}

async fn end(ledger: &dyn ClosingLedger, attempt: u64, ending: ClosingEnd) -> bool {
    ledger.end_closing(RUN.to_owned(), attempt, ending, Millis(11_000)).await.expect("answered")
}

async fn state(ledger: &dyn ClosingLedger) -> RunState {
    ledger.run(RUN.to_owned()).await.expect("readable").expect("named").state
}

fn closed() -> ClosingEnd {
    ClosingEnd::Closed { path: "run/closure.json".to_owned(), text: "{\"n\":1}".to_owned() }
}

/// Records an admitted event.
async fn admitted(ledger: &dyn ClosingLedger, name: &str) {
    let (seq, attempt) = performs(&record(ledger, named(name, "1")).await);
    take(ledger, settlement(seq, attempt, Outcome::Done)).await.expect("legal");
}

async fn only_the_latest_attempt_closes_a_run(home: &dyn ClosingHome) {
    let ledger = home.open();
    assert_eq!(begin(&*ledger).await, ClosingStart::Unknown, "the run is unknown");
    admitted(&*ledger, "a").await;
    assert!(!end(&*ledger, 1, closed()).await, "no attempt has begun");
    assert_eq!(begin(&*ledger).await, ClosingStart::Closing { attempt: 1 });
    assert_eq!(record(&*ledger, named("new", "1")).await.follow_up, FollowUp::RunClosing);
    assert_eq!(begin(&*ledger).await, ClosingStart::Closing { attempt: 2 });
    assert!(!end(&*ledger, 1, closed()).await, "it was overtaken");
    assert!(!end(&*ledger, 1, ClosingEnd::Reopened).await, "in either way");
    assert_eq!(state(&*ledger).await, RunState::Closing);
    assert!(end(&*ledger, 2, ClosingEnd::Reopened).await);
    assert!(!end(&*ledger, 2, closed()).await, "it has ended");
    let refused = ledger.refused_while_closing(RUN.to_owned()).await.expect("readable");
    assert_eq!(refused, 1, "the refused event is counted");
    admitted(&*ledger, "new").await;
    assert_eq!(begin(&*ledger).await, ClosingStart::Closing { attempt: 3 });
    assert!(!end(&*ledger, 2, closed()).await, "what was known before does not close it now");
    assert!(end(&*ledger, 3, closed()).await);
}

async fn a_closed_run_keeps_its_closure(home: &dyn ClosingHome) {
    let ledger = home.open();
    admitted(&*ledger, "a").await;
    begin(&*ledger).await;
    assert_eq!(ledger.closure(RUN.to_owned()).await.expect("readable"), None, "not yet");
    assert!(end(&*ledger, 1, closed()).await);
    let kept = ledger.closure(RUN.to_owned()).await.expect("readable").expect("closed");
    assert_eq!((kept.text.as_str(), kept.is_filed), ("{\"n\":1}", false));
    assert_eq!(begin(&*ledger).await, ClosingStart::Closed(kept.clone()));
    assert_eq!(state(&*ledger).await, RunState::Closed, "a query does not open it");
    assert_eq!(record(&*ledger, named("new", "1")).await.follow_up, FollowUp::RunClosed);
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.reopen_lost(Millis(12_000)).await.expect("answered"), [""; 0]);
    assert_eq!(ledger.unfiled_closures(10).await.expect("readable"), [kept]);
    ledger.note_closure_filed(RUN.to_owned()).await.expect("noted");
    assert_eq!(ledger.unfiled_closures(10).await.expect("readable"), []);
    let ClosingStart::Closed(kept) = begin(&*ledger).await else { panic!("it is closed") };
    assert!(kept.is_filed);
}

async fn a_run_is_reopened_after_its_closing_process_died(home: &dyn ClosingHome) {
    let ledger = home.open();
    admitted(&*ledger, "a").await;
    begin(&*ledger).await;
    assert_eq!(ledger.reopen_lost(Millis(12_000)).await.expect("answered"), [""; 0], "it is ours");
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.reopen_lost(Millis(12_000)).await.expect("answered"), [RUN]);
    assert_eq!(state(&*ledger).await, RunState::Open);
    assert!(!end(&*ledger, 1, closed()).await, "the earlier attempt is superseded");
    admitted(&*ledger, "b").await;
}

async fn receipts_and_ids_come_in_pages(home: &dyn ClosingHome) {
    let ledger = home.open();
    for name in ["c", "a", "b"] {
        admitted(&*ledger, name).await;
    }
    record(&*ledger, named("a", "2")).await;
    let lines = ledger.run_lines(RUN.to_owned(), 0, 2).await.expect("readable");
    let of = |id: &str, n: u64| (id.to_owned(), n);
    let ids: Vec<_> = lines.iter().map(|line| of(&line.id, line.n)).collect();
    assert_eq!(ids, [of("ADMIT-c", 1), of("ADMIT-a", 2)], "in the order they were kept");
    let rest = ledger.run_lines(RUN.to_owned(), 2, 10).await.expect("readable");
    let ids: Vec<_> = rest.iter().map(|line| line.id.as_str()).collect();
    assert_eq!(ids, ["ADMIT-b", "QUARANTINE-a"], "receipts only");
    assert_eq!(rest[1].state, QuarantineState::Open);
    assert_eq!((rest[1].reason.as_deref(), rest[1].has_reference), (Some("CONFLICT"), false));
    let ids = async |kind, after: &str, below: &str, rows_max| {
        let (after, below) = (after.to_owned(), below.to_owned());
        ledger.run_ids(RUN.to_owned(), kind, after, below, rows_max).await.expect("readable")
    };
    let all = ids(DocumentKind::Receipt, "", "~", 10).await;
    assert_eq!(all, ["ADMIT-a", "ADMIT-b", "ADMIT-c", "QUARANTINE-a"], "in their own order");
    assert_eq!(ids(DocumentKind::Receipt, "ADMIT-a", "ADMIT-c", 10).await, ["ADMIT-b"]);
    assert_eq!(ids(DocumentKind::Receipt, "", "~", 1).await, ["ADMIT-a"]);
    assert_eq!(ids(DocumentKind::Quarantine, "", "~", 10).await, ["QUARANTINE-a"]);
    let other = ledger.run_lines("another".to_owned(), 0, 10).await.expect("readable");
    assert_eq!(other, []);
}

async fn unsettled_effects_are_counted(home: &dyn ClosingHome) {
    let ledger = home.open();
    let unsettled = async || {
        let of = RunScope { door: DOOR, path: "$.run", run: RUN };
        ledger.unsettled(of).await.expect("readable")
    };
    admitted(&*ledger, "a").await;
    assert_eq!(unsettled().await, UnsettledCounts::default());
    let (flying, _) = performs(&record(&*ledger, named("b", "1")).await);
    let (lost, _) = performs(&record(&*ledger, named("c", "1")).await);
    assert_eq!(unsettled().await, UnsettledCounts { in_work: 2, ambiguous: 0 });
    take(&*ledger, settlement(lost, 1, Outcome::Ambiguous)).await.expect("legal");
    assert_eq!(unsettled().await, UnsettledCounts { in_work: 1, ambiguous: 1 });
    take(&*ledger, settlement(flying, 1, Outcome::Done)).await.expect("legal");
    assert_eq!(unsettled().await, UnsettledCounts { in_work: 0, ambiguous: 1 });
    let of = RunScope { door: DOOR, path: "$.run", run: "another" };
    assert_eq!(ledger.unsettled(of).await.expect("readable"), UnsettledCounts::default());
}
