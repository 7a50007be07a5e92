//! Contract suite of write commands other than events: a command rejected by the database is left
//! out of its commit, the others are committed.

use admit_core::{Fault, FaultKind, Millis, Seq};
use admit_ledger::WholeLedger;
use admit_ledger::port::{ClaimedEntry, DONE, Lease, LeaseAction, LeaseChange, LeaseResult};
use futures_util::future::{join, join_all};

use crate::claim_suite::wanted;
use crate::event::entry;
use crate::ledger_suite::{Home, one};
use crate::stream_suite::{orders, put};

/// Home whose database can be made to reject a command.
pub trait RefusingHome: Home {
    /// Makes the database reject finishing an entry with `status`.
    fn refuse_status(&self, status: &str);
}

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn RefusingHome>) {
    a_failing_command_does_not_affect_others_in_its_commit(&*home()).await;
    an_invalid_position_is_rejected_and_affects_no_event(&*home()).await;
}

const SPOILT: &str = "spoilt";

/// Number of repetitions, because which calls share a commit depends on timing.
const ROUNDS: usize = 4;
const NEIGHBOURS: usize = 12;

async fn finish(
    ledger: &dyn WholeLedger,
    seq: Seq,
    lease: Lease,
    status: &str,
) -> Result<LeaseResult, Fault> {
    let change = LeaseAction::Finish { status: status.to_owned() };
    let changes = vec![LeaseChange { seq, lease, change }];
    Ok(ledger.change(orders(), changes, Millis(1)).await?.remove(0))
}

/// Records events concurrently; each must be stored.
async fn neighbours(ledger: &dyn WholeLedger, round: usize) {
    let event = |n: usize| async move {
        let name = format!("neighbour {round} {n}");
        let mut recorded = ledger.record(vec![entry(&name, "content")]).await;
        recorded.remove(0).map(|recorded| recorded.verdict.word())
    };
    for verdict in join_all((0..NEIGHBOURS).map(event)).await {
        assert_eq!(verdict.expect("a producer's event is stored"), "fresh");
    }
}

async fn a_failing_command_does_not_affect_others_in_its_commit(home: &dyn RefusingHome) {
    let ledger = home.open();
    put(&*ledger, &orders(), 0, 2 * ROUNDS).await;
    drop(ledger);
    home.refuse_status(SPOILT);
    let ledger = home.open();
    let held = ledger.claim(wanted(&orders(), 2 * ROUNDS, 0)).await.expect("the ledger answers");
    assert_eq!(held.len(), 2 * ROUNDS);
    for (round, pair) in held.chunks_exact(2).enumerate() {
        let finish = |claimed: &ClaimedEntry, status| {
            finish(&*ledger, claimed.entry.seq, claimed.lease, status)
        };
        let both = join(finish(&pair[0], SPOILT), finish(&pair[1], "failed"));
        let ((spoilt, failed), ()) = join(both, neighbours(&*ledger, round)).await;
        let fault = spoilt.expect_err("the database refuses it");
        assert_eq!(fault.kind, FaultKind::Internal, "its own failure, not the ledger's: {fault}");
        assert_eq!(failed.expect("its neighbour is committed"), LeaseResult::Done);
        assert!(ledger.is_healthy(), "one refused command does not make a ledger unhealthy");
        let again = finish(&pair[0], DONE).await.expect("the ledger answers");
        assert_eq!(again, LeaseResult::Done, "nothing of what was refused is left");
    }
    drop(ledger);
    let ledger = home.open();
    assert_eq!(one(&*ledger, entry("neighbour 0 0", "content")).await.word(), "duplicate");
    let progress = ledger.claim_progress(orders(), Millis(1)).await.expect("readable");
    assert_eq!((progress.held, progress.free), (0, 0), "every entry is finished");
}

async fn an_invalid_position_is_rejected_and_affects_no_event(home: &dyn RefusingHome) {
    let ledger = home.open();
    put(&*ledger, &orders(), 0, 1).await;
    let lease = Lease::from_bytes([7; 16]);
    for (round, beyond) in [u64::MAX, Seq::MAX.0 + 1, Seq::MAX.0].into_iter().enumerate() {
        let request = finish(&*ledger, Seq(beyond), lease, DONE);
        let (answer, ()) = join(request, neighbours(&*ledger, round)).await;
        assert_eq!(answer.expect("the ledger answers"), LeaseResult::UnknownPlace, "{beyond}");
        assert!(ledger.is_healthy());
    }
}
