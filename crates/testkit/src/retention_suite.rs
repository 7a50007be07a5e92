//! Contract suite of retention: old data is deleted, and nothing is admitted twice because of it.
//!
//! Time is a parameter, so a year passes in a call. Deletions are checked after everything due has
//! been swept.

use std::collections::BTreeMap;

use admit_core::{Age, Entry, Event, KEY_MARGIN, Millis, OnOtherContent, Seq};
use admit_ledger::WholeLedger;
use admit_ledger::port::SweepResult;

use crate::claim_suite::{places, wanted};
use crate::event::{entry, event, happened, key, refused, streamed};
use crate::ledger_suite::{Home, many, one, seq_of};
use crate::rng::Rng;
use crate::stream_suite::orders;

/// Retention age of every ledger.
const AGE: Age = Age::from_secs(1_000);

/// Base time.
const THEN: Millis = Millis(1_000_000_000);

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    without_an_age_nothing_is_deleted(&*home()).await;
    bodies_are_deleted_at_the_age_and_events_without_wall_time_stay(&*home()).await;
    keys_are_deleted_after_the_margin_only(&*home()).await;
    a_sweep_continues_after_a_restart(&*home()).await;
    a_known_key_always_has_its_admission(&*home()).await;
    purged_events_stay_outside_for_every_age(&*home()).await;
    a_key_stays_while_an_event_under_it_does(&*home()).await;
    events_from_the_future_do_not_block_deletion(&*home()).await;
    an_event_with_many_copies_is_deleted_in_slices(&*home()).await;
    a_refusal_keeps_its_reason_without_its_body(&*home()).await;
    claims_are_deleted_with_their_entries(&*home()).await;
    a_purged_key_can_be_claimed_again(&*home()).await;
}

/// Time at which a body from `at` is due; it is deleted a moment later.
fn body_due(at: Millis) -> Millis {
    AGE.after(at)
}

/// Time at which a key from `at` is due.
fn key_due(at: Millis) -> Millis {
    KEY_MARGIN.after(AGE.after(at))
}

fn after(at: Millis) -> Millis {
    Millis(at.0 + 1)
}

/// Sweeps until nothing is left to do, and sums the results.
async fn sweep(ledger: &dyn WholeLedger, now: Millis) -> SweepResult {
    let mut all = SweepResult::default();
    for _ in 0..10_000 {
        let swept = ledger.sweep(now).await.expect("the ledger answers");
        all.bodies += swept.bodies;
        all.keys += swept.keys;
        all.admissions += swept.admissions;
        all.sightings += swept.sightings;
        if !swept.more {
            return all;
        }
    }
    panic!("sweeping does not end");
}

async fn has_body(ledger: &dyn WholeLedger, seq: Seq) -> bool {
    ledger.body(seq).await.expect("readable").is_some()
}

async fn has_key(ledger: &dyn WholeLedger, name: &str) -> bool {
    ledger.find(key(name)).await.expect("readable").is_some()
}

async fn has_receipt(ledger: &dyn WholeLedger, seq: Seq) -> bool {
    ledger.receipt(seq).await.expect("readable").is_some()
}

async fn record(ledger: &dyn WholeLedger, event: Event) -> (&'static str, Seq) {
    let verdict = one(ledger, Entry::Event(event)).await;
    (verdict.word(), seq_of(&verdict))
}

async fn without_an_age_nothing_is_deleted(home: &dyn Home) {
    let ledger = home.open();
    let (_, seq) = record(&*ledger, happened("k", "a", THEN)).await;
    assert_eq!(sweep(&*ledger, Millis(i64::MAX / 2)).await, SweepResult::default());
    assert!(has_body(&*ledger, seq).await);
    assert!(!ledger.horizon().is_outside(Some(Millis(0)), Millis(i64::MAX)));
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.retain, status.forgotten_to, status.keys), (None, None, Some(1)));
}

async fn bodies_are_deleted_at_the_age_and_events_without_wall_time_stay(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let timeless = Event { received_at: THEN, ..event("timeless", "a") };
    let (_, seq) = record(&*ledger, timeless.clone()).await;
    let (_, timed) = record(&*ledger, happened("timed", "a", THEN)).await;
    let (_, young) = record(&*ledger, happened("young", "a", after(THEN))).await;
    assert_eq!(
        sweep(&*ledger, body_due(THEN)).await,
        SweepResult::default(),
        "the age is not over"
    );
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.retain, status.oldest_body_at), (Some(AGE), Some(THEN)));

    let swept = sweep(&*ledger, after(body_due(THEN))).await;
    assert_eq!(swept, SweepResult { bodies: 2, ..SweepResult::default() });
    assert!(!has_body(&*ledger, seq).await && !has_body(&*ledger, timed).await);
    assert!(has_body(&*ledger, young).await);
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.removed_bodies, status.oldest_body_at), (2, Some(after(THEN))));

    sweep(&*ledger, Millis(i64::MAX / 2)).await;
    let receipt = ledger.receipt(seq).await.expect("readable").expect("kept");
    assert_eq!(&receipt.facts[..], br#"{"name":"timeless"}"#);
    assert_eq!(record(&*ledger, timeless).await.0, "duplicate", "known for ever");
    assert!(!has_key(&*ledger, "timed").await);
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.keys, status.removed_keys), (Some(1), 2));
    assert_eq!((status.admissions, status.oldest_at), (1, Some(THEN)));
}

async fn keys_are_deleted_after_the_margin_only(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    // Received long after, and long before, its wall time.
    let late = Event { received_at: Millis(THEN.0 + 900_000), ..happened("late", "a", THEN) };
    let early = Event { received_at: Millis(THEN.0 - 900_000), ..happened("early", "a", THEN) };
    let (_, early_seq) = record(&*ledger, early.clone()).await;
    let (_, late_seq) = record(&*ledger, late.clone()).await;
    for at in [body_due(THEN), after(body_due(THEN)), key_due(THEN)] {
        sweep(&*ledger, at).await;
        assert!(has_key(&*ledger, "early").await && has_key(&*ledger, "late").await, "{at:?}");
        assert_eq!(record(&*ledger, early.clone()).await.0, "duplicate");
    }
    let now = after(key_due(THEN));
    let horizon = ledger.horizon();
    assert!(horizon.is_outside(Some(THEN), now), "refused before it is purged");
    let swept = sweep(&*ledger, now).await;
    assert_eq!((swept.keys, swept.admissions, swept.sightings), (1, 1, 3));
    assert!(!has_key(&*ledger, "early").await && !has_receipt(&*ledger, early_seq).await);
    assert!(has_key(&*ledger, "late").await && has_receipt(&*ledger, late_seq).await);
    assert_eq!(horizon.forgotten_to(), Some(THEN));

    let swept = sweep(&*ledger, after(key_due(late.received_at))).await;
    assert_eq!((swept.keys, swept.admissions), (1, 1));
    assert!(!has_receipt(&*ledger, late_seq).await);
}

async fn a_sweep_continues_after_a_restart(home: &dyn Home) {
    const COUNT: usize = 1_500;
    let mut ledger = home.open_retaining(Some(AGE));
    let name = |n: usize| format!("k{n}");
    let timed = |n: usize| !n.is_multiple_of(3);
    let make = |n: usize| {
        let at = Millis(THEN.0 + i64::try_from(n).expect("small"));
        let happened_at = timed(n).then_some(at);
        Entry::Event(Event { happened_at, ..happened(&name(n), "a", at) })
    };
    for from in (0..COUNT).step_by(100) {
        many(&*ledger, (from..from + 100).map(make).collect()).await;
    }
    let now = Millis(key_due(THEN).0 + 10_000);
    let (mut restarts, mut keys) = (0, 0);
    loop {
        let swept = ledger.sweep(now).await.expect("the ledger answers");
        keys += swept.keys;
        if !swept.more {
            break;
        }
        restarts += 1;
        drop(ledger);
        ledger = home.open_retaining(Some(AGE));
    }
    assert!(restarts > 3, "there were slices to restart between");
    assert_eq!(keys, 1_000, "each key was removed once");
    let status = ledger.status().await.expect("readable");
    assert_eq!((status.admissions, status.keys), (500, Some(500)));
    assert_eq!((status.removed_bodies, status.oldest_body_at), (1_500, None));
    for n in (0..COUNT).step_by(7) {
        assert_eq!(has_key(&*ledger, &name(n)).await, !timed(n), "{n}");
    }
}

/// Copies of a contract without horizon, which refuses none, in every intermediate state.
async fn a_known_key_always_has_its_admission(home: &dyn Home) {
    const COUNT: usize = 1_500;
    let ledger = home.open_retaining(Some(AGE));
    let make = |n: usize| Entry::Event(happened(&format!("k{n}"), "a", THEN));
    for from in (0..COUNT).step_by(100) {
        many(&*ledger, (from..from + 100).map(make).collect()).await;
    }
    sweep(&*ledger, after(body_due(THEN))).await;
    let now = after(key_due(THEN));
    for from in 0..20 {
        ledger.sweep(now).await.expect("the ledger answers");
        // A fault here would be a key without its admission; both verdicts are valid.
        many(&*ledger, (from..COUNT).step_by(60).map(make).collect()).await;
    }
    sweep(&*ledger, now).await;
    assert_eq!(ledger.status().await.expect("readable").keys, Some(0));
}

async fn purged_events_stay_outside_for_every_age(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    record(&*ledger, happened("k", "a", THEN)).await;
    let now = after(key_due(THEN));
    sweep(&*ledger, now).await;
    drop(ledger);
    for retain in [None, Some(Age::from_secs(1_000_000)), Some(AGE)] {
        let ledger = home.open_retaining(retain);
        let horizon = ledger.horizon();
        assert!(horizon.is_outside(Some(THEN), now), "{retain:?}");
        let is_outside = retain == Some(AGE);
        assert_eq!(horizon.is_outside(Some(after(THEN)), now), is_outside, "{retain:?}");
        assert_eq!(ledger.status().await.expect("readable").forgotten_to, Some(THEN));
    }
}

async fn a_key_stays_while_an_event_under_it_does(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let revision = |content: &str, at: Millis, name: &str| Event {
        on_other_content: OnOtherContent::Revision,
        ..happened(name, content, at)
    };
    let later = Millis(THEN.0 + 500_000);
    record(&*ledger, revision("one", THEN, "r")).await;
    assert_eq!(record(&*ledger, revision("two", later, "r")).await.0, "revision");
    record(&*ledger, happened("c", "one", THEN)).await;
    assert_eq!(record(&*ledger, happened("c", "two", later)).await.0, "conflict");
    record(&*ledger, revision("one", THEN, "for ever")).await;
    let timeless = Event { happened_at: None, ..revision("two", THEN, "for ever") };
    assert_eq!(record(&*ledger, timeless.clone()).await.0, "revision");

    assert_eq!(sweep(&*ledger, after(key_due(THEN))).await.keys, 0);
    assert_eq!(record(&*ledger, revision("two", later, "r")).await.0, "duplicate");
    assert_eq!(record(&*ledger, happened("c", "two", later)).await.0, "conflict");
    assert_eq!(sweep(&*ledger, after(key_due(later))).await.keys, 2);
    assert!(!has_key(&*ledger, "r").await && !has_key(&*ledger, "c").await);
    sweep(&*ledger, Millis(i64::MAX / 2)).await;
    assert_eq!(record(&*ledger, timeless).await.0, "duplicate");
}

async fn events_from_the_future_do_not_block_deletion(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let tomorrow = Millis(THEN.0 + 86_400_000);
    // The producer's clock was wrong, and then ours.
    let theirs = Event { received_at: THEN, ..happened("theirs", "a", tomorrow) };
    record(&*ledger, theirs.clone()).await;
    let (_, ours) = record(&*ledger, happened("ours", "a", tomorrow)).await;
    let timeless = Event { happened_at: None, ..happened("timeless", "a", tomorrow) };
    let (_, timeless) = record(&*ledger, timeless).await;
    record(&*ledger, happened("k", "a", THEN)).await;

    let swept = sweep(&*ledger, after(key_due(THEN))).await;
    assert_eq!((swept.bodies, swept.keys), (2, 1));
    assert!(!has_key(&*ledger, "k").await);
    assert_eq!(record(&*ledger, theirs).await.0, "duplicate");
    assert!(has_body(&*ledger, ours).await && has_body(&*ledger, timeless).await);
    drop(ledger);

    let ledger = home.open_retaining(Some(AGE));
    assert_eq!(sweep(&*ledger, body_due(tomorrow)).await, SweepResult::default());
    let swept = sweep(&*ledger, after(body_due(tomorrow))).await;
    assert_eq!((swept.bodies, swept.keys), (2, 0), "when their time has come");
    let swept = sweep(&*ledger, after(key_due(tomorrow))).await;
    assert_eq!((swept.keys, swept.admissions), (2, 2));
    assert!(has_key(&*ledger, "timeless").await);
}

async fn an_event_with_many_copies_is_deleted_in_slices(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let copies = || (0..500).map(|_| Entry::Event(happened("k", "a", THEN))).collect();
    for _ in 0..6 {
        many(&*ledger, copies()).await;
    }
    let now = after(key_due(THEN));
    let (mut sweeps, mut sightings) = (0, 0);
    loop {
        let swept = ledger.sweep(now).await.expect("the ledger answers");
        (sweeps, sightings) = (sweeps + 1, sightings + swept.sightings);
        assert!(swept.sightings <= 2_000, "bounded work in one commit");
        if !swept.more {
            break;
        }
    }
    assert_eq!(sightings, 2_999);
    assert!(sweeps > 2);
    assert_eq!(ledger.status().await.expect("readable").sightings, 0);
}

async fn a_refusal_keeps_its_reason_without_its_body(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let Entry::Refused(mut broken) = refused("{broken") else { panic!("it is refused") };
    broken.received_at = THEN;
    let verdict = one(&*ledger, Entry::Refused(broken)).await;
    let before = ledger.status().await.expect("readable");
    assert_eq!(before.refusals, 1);
    assert!(before.refusal_bytes >= 320 + 7, "its rows count for the quota too");
    sweep(&*ledger, Millis(i64::MAX / 2)).await;
    let left = ledger.status().await.expect("readable").refusal_bytes;
    assert_eq!(left, before.refusal_bytes - 7, "the body's part is given back");
    assert!(!has_body(&*ledger, seq_of(&verdict)).await);
    let receipt = ledger.receipt(seq_of(&verdict)).await.expect("readable").expect("kept");
    assert_eq!(receipt.verdict, "refused", "its reason stays");
}

async fn claims_are_deleted_with_their_entries(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    let door = orders();
    let at = |name: &str, at: Millis| Event {
        received_at: at,
        happened_at: Some(at),
        ..streamed(&door, name, "a")
    };
    let young = key_due(THEN);
    record(&*ledger, at("held", THEN)).await;
    record(&*ledger, at("waiting", THEN)).await;
    let (_, kept) = record(&*ledger, at("young", young)).await;
    let held = ledger.claim(wanted(&door, 1, THEN.0)).await.expect("it answers");
    sweep(&*ledger, after(body_due(THEN))).await;
    let again = ledger.claim(wanted(&door, 1, body_due(THEN).0)).await.expect("it answers");
    assert_eq!(places(&again), places(&held));
    assert_eq!(again[0].entry.body, None, "a late consumer sees that the body is gone");

    let now = after(key_due(THEN));
    assert_eq!(sweep(&*ledger, now).await.admissions, 2);
    let progress = ledger.claim_progress(door.clone(), now).await.expect("readable");
    assert_eq!((progress.held, progress.free), (0, 0));
    let left = ledger.claim(wanted(&door, 10, now.0 + 1_000_000)).await.expect("it answers");
    assert_eq!(places(&left), [kept]);
}

async fn a_purged_key_can_be_claimed_again(home: &dyn Home) {
    let mut ledger = home.open_retaining(Some(AGE));
    for n in 0..50 {
        record(&*ledger, happened(&format!("k{n}"), "a", THEN)).await;
    }
    let now = after(key_due(THEN));
    sweep(&*ledger, now).await;
    // Another event under a purged key, also after a restart.
    for n in 0..50 {
        if n == 25 {
            drop(ledger);
            ledger = home.open_retaining(Some(AGE));
        }
        assert_eq!(record(&*ledger, happened(&format!("k{n}"), "b", now)).await.0, "fresh");
    }
    sweep(&*ledger, after(now)).await;
    drop(ledger);
    let ledger = home.open_retaining(Some(AGE));
    for n in 0..50 {
        assert_eq!(record(&*ledger, happened(&format!("k{n}"), "b", now)).await.0, "duplicate");
    }
}

/// Random events, copies, sweeps and restarts over time: inside the horizon nothing is admitted
/// twice, and events without a wall time never are. Reproducible by seed.
pub async fn random(home: &dyn Home, seed: u64, steps: u32) {
    let mut rng = Rng::seeded(seed);
    let mut ledger = home.open_retaining(Some(AGE));
    let mut admitted: BTreeMap<String, Event> = BTreeMap::new();
    let (mut now, mut outside) = (THEN, 0);
    for step in 0..steps {
        now.0 += i64::try_from(rng.below(60_000)).expect("small");
        match rng.below(10) {
            0..6 => {
                let mut batch = Vec::new();
                for _ in 0..=rng.below(20) {
                    batch.push(some_event(&mut rng, &admitted, now));
                }
                batch.retain(|event| {
                    let is_outside = ledger.horizon().is_outside(event.happened_at, now);
                    outside += u32::from(is_outside);
                    !is_outside
                });
                let entries = batch.iter().cloned().map(Entry::Event).collect();
                let verdicts = many(&*ledger, entries).await;
                for (event, verdict) in batch.into_iter().zip(verdicts) {
                    let name = String::from_utf8(event.body.to_vec()).expect("it is text");
                    let known = admitted.insert(name.clone(), event).is_some();
                    let expected = if known { "duplicate" } else { "fresh" };
                    assert_eq!(verdict.word(), expected, "{name}, step {step} of seed {seed}");
                }
            }
            6..9 => {
                ledger.sweep(now).await.expect("the ledger answers");
            }
            _ => {
                drop(ledger);
                ledger = home.open_retaining(Some(AGE));
            }
        }
    }
    sweep(&*ledger, now).await;
    assert!(outside > 0, "some copies came too late");
    let status = ledger.status().await.expect("readable");
    assert!(status.removed_keys > 0, "some keys are gone");
    for (name, event) in &admitted {
        let at = event.happened_at.map(|at| at.max(event.received_at));
        let goes = at.is_some_and(|at| key_due(at) < now);
        assert_eq!(has_key(&*ledger, name).await, !goes, "{name} of seed {seed}");
    }
}

/// New event or copy of an old one; some have no wall time, some clocks are wrong.
fn some_event(rng: &mut Rng, admitted: &BTreeMap<String, Event>, now: Millis) -> Event {
    let count = u64::try_from(admitted.len()).expect("small");
    if count > 0 && !rng.one_in(3) {
        let which = usize::try_from(rng.below(count)).expect("small");
        if let Some(event) = admitted.values().nth(which) {
            // The first delivery determines the time of receipt.
            return event.clone();
        }
    }
    let name = format!("k{}", rng.next_u64());
    let Entry::Event(event) = entry(&name, &name) else { unreachable!("it is an event") };
    let off = i64::try_from(rng.below(200_000)).expect("small") - 100_000;
    let happened_at = (!rng.one_in(4)).then_some(Millis(now.0 + off));
    Event { received_at: now, happened_at, ..event }
}
