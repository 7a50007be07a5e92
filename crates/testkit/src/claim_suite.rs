//! Contract suite of consumer claims: exclusive leases, each entry finished once, none lost.

use std::collections::HashSet;
use std::sync::Arc;

use admit_core::{Age, Door, Millis, Seq};
use admit_ledger::WholeLedger;
use admit_ledger::port::{
    ClaimProgress, ClaimRequest, ClaimedEntry, DONE, FinishedEntry, Lease, LeaseAction,
    LeaseChange, LeaseResult,
};
use futures_util::future::join_all;

use crate::ledger_suite::Home;
use crate::stream_suite::{orders, put};

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    entries_are_claimed_in_ledger_order_and_finished_once(&*home()).await;
    an_expired_lease_is_taken_over_and_cannot_finish(&*home()).await;
    a_lease_can_be_extended_and_released(&*home()).await;
    racing_consumers_never_hold_one_entry_at_once(&*home()).await;
    a_claim_ends_at_its_limits(&*home()).await;
    entries_without_a_lease_cannot_be_finished(&*home()).await;
    a_custom_status_is_kept(&*home()).await;
    a_released_entry_notifies_consumers(&*home()).await;
    a_lease_written_by_a_wrong_clock_is_bounded(&*home()).await;
}

/// Unknown lease.
const UNKNOWN_LEASE: Lease = Lease::from_bytes([0; 16]);

/// Length of every lease.
pub(crate) const LEASE: Age = Age::from_secs(30);

pub(crate) fn wanted(door: &Door, rows_max: usize, now: i64) -> ClaimRequest {
    ClaimRequest {
        door: door.clone(),
        consumer: "tests".to_owned(),
        rows_max,
        bytes_max: usize::MAX,
        lease: LEASE,
        now: Millis(now),
    }
}

async fn claim(ledger: &dyn WholeLedger, rows_max: usize, now: i64) -> Vec<ClaimedEntry> {
    ledger.claim(wanted(&orders(), rows_max, now)).await.expect("the ledger answers")
}

async fn finish(ledger: &dyn WholeLedger, claimed: &ClaimedEntry, now: i64) -> LeaseResult {
    let (seq, lease) = (claimed.entry.seq, claimed.lease);
    ledger.finish(orders(), seq, lease, DONE, Millis(now)).await.expect("the ledger answers")
}

async fn change(
    ledger: &dyn WholeLedger,
    claimed: &ClaimedEntry,
    change: LeaseAction,
    now: i64,
) -> LeaseResult {
    let change = LeaseChange { seq: claimed.entry.seq, lease: claimed.lease, change };
    ledger.change(orders(), vec![change], Millis(now)).await.expect("the ledger answers")[0]
}

async fn claim_progress(ledger: &dyn WholeLedger, now: i64) -> ClaimProgress {
    ledger.claim_progress(orders(), Millis(now)).await.expect("readable")
}

pub(crate) fn places(claimed: &[ClaimedEntry]) -> Vec<Seq> {
    claimed.iter().map(|claimed| claimed.entry.seq).collect()
}

async fn entries_are_claimed_in_ledger_order_and_finished_once(home: &dyn Home) {
    let ledger = home.open();
    assert_eq!(claim(&*ledger, 10, 0).await, [], "an empty stream has nothing to claim");
    let seqs = put(&*ledger, &orders(), 0, 10).await;
    put(&*ledger, &Door::new("events/others"), 0, 10).await;

    let first = claim(&*ledger, 4, 0).await;
    assert_eq!(places(&first), seqs[..4]);
    assert_eq!(first[3].entry.body.as_deref(), Some(&b"body 3"[..]));
    assert_eq!(&first[3].entry.facts[..], br#"{"name":"n3"}"#);
    assert!(first.iter().all(|claimed| claimed.attempt == 1));
    assert_eq!(first[0].expires_at, Millis(30_000));
    let second = claim(&*ledger, 4, 1).await;
    assert_eq!(places(&second), seqs[4..8], "what is held is not handed out");

    // Out of order, and only some.
    assert_eq!(finish(&*ledger, &second[1], 2).await, LeaseResult::Done);
    assert_eq!(finish(&*ledger, &first[0], 2).await, LeaseResult::Done);
    assert_eq!(finish(&*ledger, &first[0], 2).await, LeaseResult::AlreadyDone);
    drop(ledger);

    let ledger = home.open();
    assert_eq!(finish(&*ledger, &first[0], 3).await, LeaseResult::AlreadyDone);
    assert_eq!(finish(&*ledger, &first[1], 3).await, LeaseResult::Done, "leases live on too");
    assert_eq!(places(&claim(&*ledger, 10, 4).await), seqs[8..]);
    let now = claim_progress(&*ledger, 4).await;
    let (head, free_at) = (seqs[9], Some(Millis(30_000)));
    assert_eq!(now, ClaimProgress { head, newest: seqs[9], held: 7, free: 0, free_at });
    assert_eq!(claim(&*ledger, 10, 4).await, []);
}

async fn an_expired_lease_is_taken_over_and_cannot_finish(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 6).await;
    let first = claim(&*ledger, 3, 0).await;
    assert_eq!(finish(&*ledger, &first[1], 29_999).await, LeaseResult::Done, "in the last moment");
    assert_eq!(finish(&*ledger, &first[2], 30_000).await, LeaseResult::StaleLease, "too late");
    assert_eq!(claim_progress(&*ledger, 30_000).await.free, 2);

    let second = claim(&*ledger, 4, 30_000).await;
    assert_eq!(places(&second), [seqs[0], seqs[2], seqs[3], seqs[4]], "what is free comes first");
    let attempts: Vec<u32> = second.iter().map(|claimed| claimed.attempt).collect();
    assert_eq!(attempts, [2, 2, 1, 1]);
    assert_eq!(finish(&*ledger, &first[0], 1).await, LeaseResult::StaleLease, "for every clock");
    let extend = LeaseAction::Extend { until: Millis(90_000) };
    assert_eq!(change(&*ledger, &first[0], extend, 1).await, LeaseResult::StaleLease);
    assert_eq!(finish(&*ledger, &second[0], 30_001).await, LeaseResult::Done);
    assert_eq!(finish(&*ledger, &first[0], 30_001).await, LeaseResult::AlreadyDone);
}

async fn a_lease_can_be_extended_and_released(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 4).await;
    let held = claim(&*ledger, 3, 0).await;
    let extend = LeaseAction::Extend { until: Millis(60_000) };
    assert_eq!(change(&*ledger, &held[0], extend, 10).await, LeaseResult::Done);
    let release = LeaseAction::Release { again_at: Millis(10) };
    assert_eq!(change(&*ledger, &held[1], release.clone(), 10).await, LeaseResult::Done);
    assert_eq!(change(&*ledger, &held[1], release, 10).await, LeaseResult::StaleLease);
    assert_eq!(finish(&*ledger, &held[1], 10).await, LeaseResult::StaleLease);
    let later = LeaseAction::Release { again_at: Millis(40_000) };
    assert_eq!(change(&*ledger, &held[2], later, 10).await, LeaseResult::Done);

    let again = claim(&*ledger, 10, 11).await;
    assert_eq!(places(&again), [seqs[1], seqs[3]], "given back at once, not before its time");
    for claimed in &again {
        assert_eq!(finish(&*ledger, claimed, 12).await, LeaseResult::Done);
    }
    assert_eq!(claim(&*ledger, 10, 39_999).await.len(), 0);
    assert_eq!(places(&claim(&*ledger, 10, 40_000).await), [seqs[2]]);
    assert_eq!(finish(&*ledger, &held[0], 59_999).await, LeaseResult::Done, "it was extended");
}

async fn racing_consumers_never_hold_one_entry_at_once(home: &dyn Home) {
    consumers_never_hold_one_entry_at_once(&[home.open()]).await;
}

/// Sixteen consumers at several gates with a shared ledger drain a stream: each entry is held once,
/// under its own lease, and can be finished at any gate.
pub async fn consumers_never_hold_one_entry_at_once(gates: &[Arc<dyn WholeLedger>]) {
    let gate = |n: usize| &*gates[n % gates.len()];
    let seqs = put(gate(0), &orders(), 0, 200).await;
    let consume = async |n: usize| {
        let mut mine = Vec::new();
        loop {
            let claimed = claim(gate(n), 7, 0).await;
            if claimed.is_empty() {
                return mine;
            }
            mine.extend(claimed);
        }
    };
    let all: Vec<ClaimedEntry> =
        join_all((0..16).map(consume)).await.into_iter().flatten().collect();
    let mut held = places(&all);
    held.sort_unstable();
    assert_eq!(held, seqs, "each once, none left");
    let leases: HashSet<[u8; 16]> = all.iter().map(|claimed| *claimed.lease.as_bytes()).collect();
    assert_eq!(leases.len(), seqs.len(), "no two leases are the same");
    // Twice concurrently, at two gates: one finishes it.
    let finishing = all
        .iter()
        .enumerate()
        .flat_map(|(n, claimed)| [finish(gate(n), claimed, 1), finish(gate(n + 1), claimed, 1)]);
    let answers = join_all(finishing).await;
    for pair in answers.chunks(2) {
        let done = pair.iter().filter(|answer| **answer == LeaseResult::Done).count();
        assert_eq!(done, 1, "{pair:?}");
        assert!(pair.contains(&LeaseResult::AlreadyDone), "{pair:?}");
    }
    assert_eq!(claim(gate(1), 10, 1_000_000).await, [], "all of it is done");
}

async fn a_claim_ends_at_its_limits(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 9).await;
    let by_bytes = async |bytes_max| {
        let wanted = ClaimRequest { bytes_max, ..wanted(&orders(), 100, 0) };
        places(&ledger.claim(wanted).await.expect("the ledger answers"))
    };
    assert_eq!(claim(&*ledger, 0, 0).await, []);
    assert_eq!(by_bytes(0).await, seqs[..1], "one is always handed out");
    assert_eq!(by_bytes("body 1body 2".len()).await, seqs[1..3]);
    assert_eq!(by_bytes("body 3body 4x".len()).await, seqs[3..5]);
    assert_eq!(claim(&*ledger, 3, 0).await.len(), 3);
}

async fn entries_without_a_lease_cannot_be_finished(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 2).await;
    let others = put(&*ledger, &Door::new("events/others"), 0, 1).await;
    let held = claim(&*ledger, 1, 0).await;
    let finish_at = async |door: Door, seq, lease| {
        ledger.finish(door, seq, lease, DONE, Millis(1)).await.expect("the ledger answers")
    };
    assert_eq!(finish_at(orders(), seqs[0], UNKNOWN_LEASE).await, LeaseResult::StaleLease);
    assert_eq!(
        finish_at(orders(), seqs[1], held[0].lease).await,
        LeaseResult::StaleLease,
        "not claimed"
    );
    assert_eq!(finish_at(orders(), others[0], held[0].lease).await, LeaseResult::UnknownPlace);
    assert_eq!(finish_at(orders(), Seq(999), held[0].lease).await, LeaseResult::UnknownPlace);
    assert_eq!(
        finish_at(Door::new("test"), seqs[0], held[0].lease).await,
        LeaseResult::UnknownPlace
    );
    let other_door = Door::new("events/others");
    assert_eq!(finish_at(other_door, seqs[0], held[0].lease).await, LeaseResult::UnknownPlace);
    let changes = [(seqs[0], held[0].lease), (seqs[0], held[0].lease), (Seq(999), UNKNOWN_LEASE)];
    let change = |(seq, lease)| {
        let change = LeaseAction::Finish { status: DONE.to_owned() };
        LeaseChange { seq, lease, change }
    };
    let answers = ledger.change(orders(), changes.map(change).into(), Millis(1)).await;
    let expected = [LeaseResult::Done, LeaseResult::AlreadyDone, LeaseResult::UnknownPlace];
    assert_eq!(answers.expect("the ledger answers"), expected, "one answer each, in order");
}

async fn a_custom_status_is_kept(home: &dyn Home) {
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 4).await;
    let held = claim(&*ledger, 4, 0).await;
    for (at, status) in [(3, "failed"), (0, DONE), (1, "skipped")] {
        let answer = ledger.finish(orders(), seqs[at], held[at].lease, status, Millis(5)).await;
        assert_eq!(answer.expect("the ledger answers"), LeaseResult::Done, "{status}");
    }
    drop(ledger);
    let ledger = home.open();
    let finished = |at: usize, status: &str| FinishedEntry {
        seq: seqs[at],
        status: status.to_owned(),
        consumer: "tests".to_owned(),
        finished_at: Millis(5),
    };
    let all = ledger.finished(orders(), Seq(0), 10).await.expect("readable");
    assert_eq!(all, [finished(1, "skipped"), finished(3, "failed")]);
    let rest = ledger.finished(orders(), seqs[1], 10).await.expect("readable");
    assert_eq!(rest, [finished(3, "failed")]);
    assert_eq!(places(&claim(&*ledger, 10, 90_000).await), [seqs[2]], "finished is finished");
}

async fn a_released_entry_notifies_consumers(home: &dyn Home) {
    let ledger = home.open();
    put(&*ledger, &orders(), 0, 1).await;
    let held = claim(&*ledger, 1, 0).await;
    let mut updates = ledger.subscribe(&orders());
    let release = LeaseAction::Release { again_at: Millis(0) };
    assert_eq!(change(&*ledger, &held[0], release, 0).await, LeaseResult::Done);
    updates.changed().await.expect("open");
    assert_eq!(claim(&*ledger, 1, 0).await.len(), 1);
}

async fn a_lease_written_by_a_wrong_clock_is_bounded(home: &dyn Home) {
    const WEEKS: i64 = 30 * 86_400_000;
    let ledger = home.open();
    let seqs = put(&*ledger, &orders(), 0, 2).await;
    let held = claim(&*ledger, 2, WEEKS).await;
    assert_eq!(places(&held), seqs);
    change(&*ledger, &held[1], LeaseAction::Release { again_at: Millis(WEEKS) }, WEEKS).await;
    let progress = claim_progress(&*ledger, 0).await;
    assert_eq!(
        (progress.held, progress.free, progress.free_at),
        (0, 2, None),
        "the clock is right again"
    );
    let again = claim(&*ledger, 2, 0).await;
    assert_eq!(places(&again), seqs);
    assert_eq!(finish(&*ledger, &held[0], 1).await, LeaseResult::StaleLease);
    assert_eq!(claim(&*ledger, 2, 1).await, [], "now they are held");
    let LeaseResult::Done = finish(&*ledger, &again[0], 1).await else { panic!("it is held") };
}
