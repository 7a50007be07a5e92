//! Randomised test of claims against a simple model: a list scanned from its start.

use std::collections::BTreeMap;

use admit_core::{Door, Millis, Seq};
use admit_ledger::WholeLedger;
use admit_ledger::port::{ClaimedEntry, DONE, Lease, LeaseAction, LeaseChange, LeaseResult};

use crate::claim_suite::{LEASE, places, wanted};
use crate::ledger_suite::Home;
use crate::rng::Rng;
use crate::stream_suite::put;

/// Entry of the model.
#[derive(Clone, Copy, Debug, Default)]
struct ModelEntry {
    attempts: u32,
    lease: Option<Lease>,
    /// Time from which it may be claimed.
    free_from: i64,
    done: bool,
}

/// Model of one stream.
#[derive(Debug, Default)]
struct Model {
    places: BTreeMap<Seq, ModelEntry>,
    /// All claims so far; most of them are stale.
    claims: Vec<(Seq, Lease)>,
}

impl Model {
    /// Expected result of a claim of `rows_max`, in ledger order.
    fn expected(&self, rows_max: usize, now: i64) -> Vec<Seq> {
        let open = |place: &ModelEntry| !place.done && place.free_from <= now;
        let mut again: Vec<(i64, Seq)> = self
            .places
            .iter()
            .filter(|(_, place)| place.attempts > 0 && open(place))
            .map(|(seq, place)| (place.free_from, *seq))
            .collect();
        again.sort_unstable();
        let new = self.places.iter().filter(|(_, place)| place.attempts == 0).map(|(seq, _)| *seq);
        let mut expected: Vec<Seq> =
            again.into_iter().map(|(_, seq)| seq).chain(new).take(rows_max).collect();
        expected.sort_unstable();
        expected
    }

    fn claimed(&mut self, claimed: &[ClaimedEntry], now: i64) {
        for claimed in claimed {
            let place = self.places.get_mut(&claimed.entry.seq).expect("it is of this stream");
            place.attempts += 1;
            assert_eq!(claimed.attempt, place.attempts);
            place.lease = Some(claimed.lease);
            place.free_from = LEASE.after(Millis(now)).0;
            assert_eq!(claimed.expires_at.0, place.free_from);
            self.claims.push((claimed.entry.seq, claimed.lease));
        }
    }

    /// Applies a change and returns the expected result.
    fn change(&mut self, change: &LeaseChange, now: i64) -> LeaseResult {
        let Some(place) = self.places.get_mut(&change.seq) else {
            return LeaseResult::UnknownPlace;
        };
        if place.done {
            return LeaseResult::AlreadyDone;
        }
        if place.lease != Some(change.lease) || now >= place.free_from {
            return LeaseResult::StaleLease;
        }
        match change.change {
            LeaseAction::Finish { .. } => place.done = true,
            LeaseAction::Extend { until } => place.free_from = until.0,
            LeaseAction::Release { again_at } => {
                (place.lease, place.free_from) = (None, again_at.0);
            }
        }
        LeaseResult::Done
    }
}

/// Random claims, changes, expiries and restarts on two streams, checked against the model step by
/// step. Reproducible by seed.
pub async fn random(home: &dyn Home, seed: u64, steps: u32) {
    let mut rng = Rng::seeded(seed);
    let doors = [Door::new("events/model"), Door::new("skyra")];
    let mut models = [Model::default(), Model::default()];
    let mut ledger = home.open();
    let (mut now, mut names) = (0, 0);
    for step in 0..steps {
        let which = usize::from(rng.one_in(3));
        let (door, model) = (&doors[which], &mut models[which]);
        match rng.below(20) {
            0..4 => {
                let count = usize::try_from(rng.below(6)).expect("small") + 1;
                for seq in put(&*ledger, door, names, count).await {
                    model.places.insert(seq, ModelEntry::default());
                }
                names += count;
            }
            4..9 => {
                let rows_max = usize::try_from(rng.below(8)).expect("small");
                let expected = model.expected(rows_max, now);
                let claimed = ledger.claim(wanted(door, rows_max, now)).await.expect("it answers");
                assert_eq!(places(&claimed), expected, "step {step} of seed {seed}");
                model.claimed(&claimed, now);
            }
            9..17 => {
                let changes = changes(&mut rng, model, now);
                let expected: Vec<_> =
                    changes.iter().map(|change| model.change(change, now)).collect();
                let answers =
                    ledger.change(door.clone(), changes, Millis(now)).await.expect("it answers");
                assert_eq!(answers, expected, "step {step} of seed {seed}");
            }
            17..19 => now += i64::try_from(rng.below(20_000)).expect("small"),
            _ => {
                drop(ledger);
                ledger = home.open();
            }
        }
    }
    for (door, model) in doors.iter().zip(&mut models) {
        drain(&*ledger, door, model, now + 100_000).await;
    }
}

/// A few changes, mostly with valid leases.
fn changes(rng: &mut Rng, model: &Model, now: i64) -> Vec<LeaseChange> {
    let mut changes = Vec::new();
    for _ in 0..=rng.below(3) {
        let count = u64::try_from(model.claims.len()).expect("small");
        if count == 0 {
            break;
        }
        // Only the newest claims still hold entries.
        let back = rng.below(count.min(30)) + 1;
        let (mut seq, lease) = model.claims[usize::try_from(count - back).expect("small")];
        if rng.one_in(12) {
            seq = Seq(seq.0 + 1);
        }
        let some_time = Millis(now + i64::try_from(rng.below(50_000)).expect("small"));
        let change = match rng.below(4) {
            0 => LeaseAction::Extend { until: some_time },
            1 => LeaseAction::Release { again_at: some_time },
            _ => LeaseAction::Finish { status: DONE.to_owned() },
        };
        changes.push(LeaseChange { seq, lease, change });
    }
    changes
}

/// Finally every entry is claimed and finished once.
async fn drain(ledger: &dyn WholeLedger, door: &Door, model: &mut Model, now: i64) {
    let left = model.expected(usize::MAX, now);
    let claimed = ledger.claim(wanted(door, usize::MAX, now)).await.expect("it answers");
    assert_eq!(places(&claimed), left);
    model.claimed(&claimed, now);
    for claimed in &claimed {
        let change = LeaseAction::Finish { status: DONE.to_owned() };
        let change = LeaseChange { seq: claimed.entry.seq, lease: claimed.lease, change };
        assert_eq!(model.change(&change, now), LeaseResult::Done);
        let answers = ledger.change(door.clone(), vec![change], Millis(now)).await;
        assert_eq!(answers.expect("it answers"), [LeaseResult::Done]);
    }
    assert!(model.places.values().all(|place| place.done));
    let progress = ledger.claim_progress(door.clone(), Millis(now)).await.expect("readable");
    assert_eq!((progress.held, progress.free), (0, 0));
    assert_eq!(progress.head, progress.newest);
}
