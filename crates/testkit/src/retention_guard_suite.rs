//! Contract suite of retention with an unreliable clock: nothing is deleted that trusted time does
//! not allow.

use admit_core::{Age, Entry, Event, Millis};
use admit_ledger::port::{KnownTime, SweepResult};
use admit_ledger::{RetentionGuard, WholeLedger};

use crate::clock::ManualClock;
use crate::event::{event, happened};
use crate::ledger_suite::{Home, one, seq_of};

const DAY: i64 = 86_400_000;
const AGE: Age = Age::from_secs(10 * 86_400);
const GAP: Age = Age::from_secs(7 * 86_400);
const THEN: Millis = Millis(1_700_000_000_000);

/// Runs the suite; `home` creates an empty home per test.
pub async fn all(home: impl Fn() -> Box<dyn Home>) {
    a_clock_jump_deletes_nothing_until_an_operator_confirms(&*home()).await;
    a_corrected_clock_needs_no_operator(&*home()).await;
    a_trusted_wrong_clock_is_discarded_after_its_correction(&*home()).await;
    a_gap_before_a_start_is_downtime_up_to_the_setting(&*home()).await;
    the_newest_event_is_trusted_without_a_recorded_time(&*home()).await;
    a_confirmation_applies_to_all_gates(&*home()).await;
}

async fn put(ledger: &dyn WholeLedger, name: &str, at: Millis) {
    let timed = Event { received_at: at, ..happened(name, "a", at) };
    seq_of(&one(ledger, Entry::Event(timed)).await);
}

async fn round(
    guard: &RetentionGuard,
    ledger: &dyn WholeLedger,
    clock: &ManualClock,
) -> SweepResult {
    guard.round(ledger, clock).await.expect("the ledger answers")
}

fn days(count: i64) -> Millis {
    Millis(THEN.0 + count * DAY)
}

async fn a_clock_jump_deletes_nothing_until_an_operator_confirms(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    put(&*ledger, "k", THEN).await;
    let (clock, guard) = (ManualClock::at(THEN), RetentionGuard::new(GAP));
    assert_eq!(round(&guard, &*ledger, &clock).await, SweepResult::default());
    clock.advance(60_000);
    clock.step(30 * DAY);
    assert_eq!(round(&guard, &*ledger, &clock).await, SweepResult::default(), "it would all go");
    let jump = guard.jump().expect("it is seen");
    assert_eq!((jump.trusted.0, jump.wall.0), (THEN.0 + 60_000, days(30).0 + 60_000));
    // It stays so while time passes, and a new process does not treat it as downtime.
    clock.advance(DAY);
    assert_eq!(round(&guard, &*ledger, &clock).await, SweepResult::default());
    let restarted = RetentionGuard::new(GAP);
    assert_eq!(round(&restarted, &*ledger, &clock).await, SweepResult::default());
    assert!(restarted.jump().is_some());

    let why = Some("it was off".to_owned());
    let confirmed = guard.confirm(&*ledger, &clock, "ops", why).await.expect("it answers");
    assert_eq!(confirmed.expect("there was a jump").confirmed_at.0, days(31).0 + 60_000);
    assert_eq!(guard.jump(), None);
    let swept = round(&guard, &*ledger, &clock).await;
    assert_eq!((swept.bodies, swept.keys, swept.admissions), (1, 1, 1));
    assert_eq!(guard.removed()[0], ("bodies", 1));
    let again = guard.confirm(&*ledger, &clock, "ops", None).await.expect("it answers");
    assert_eq!(again, None, "there is nothing to confirm");
    assert_eq!(ledger.known_time().await.expect("readable").confirmations, 1);
}

async fn a_corrected_clock_needs_no_operator(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    put(&*ledger, "k", THEN).await;
    let (clock, guard) = (ManualClock::at(THEN), RetentionGuard::new(GAP));
    round(&guard, &*ledger, &clock).await;
    clock.step(30 * DAY);
    round(&guard, &*ledger, &clock).await;
    assert!(guard.jump().is_some());
    clock.step(-30 * DAY);
    clock.advance(60_000);
    assert_eq!(round(&guard, &*ledger, &clock).await, SweepResult::default());
    assert_eq!(guard.jump(), None);
    let known = ledger.known_time().await.expect("readable");
    assert_eq!(known, KnownTime { at: Some(Millis(THEN.0 + 60_000)), confirmations: 0 });
}

async fn a_trusted_wrong_clock_is_discarded_after_its_correction(home: &dyn Home) {
    // A new ledger cannot check the first clock.
    let ledger = home.open_retaining(Some(AGE));
    round(&RetentionGuard::new(GAP), &*ledger, &ManualClock::at(days(300))).await;
    drop(ledger);
    let ledger = home.open_retaining(Some(AGE));
    let right = RetentionGuard::new(GAP);
    let clock = ManualClock::at(THEN);
    put(&*ledger, "k", THEN).await;
    assert_eq!(round(&right, &*ledger, &clock).await, SweepResult::default());
    assert_eq!(right.jump(), None);
    assert_eq!(ledger.known_time().await.expect("readable").at, Some(THEN), "it is put back");
    clock.advance(60_000);
    round(&right, &*ledger, &clock).await;
    drop(ledger);
    let ledger = home.open_retaining(Some(AGE));
    let jumped = RetentionGuard::new(GAP);
    assert_eq!(round(&jumped, &*ledger, &ManualClock::at(days(200))).await, SweepResult::default());
    let jump = jumped.jump().expect("it is seen");
    assert_eq!((jump.trusted.0, jump.wall), (THEN.0 + 60_000, days(200)));
}

async fn a_gap_before_a_start_is_downtime_up_to_the_setting(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    put(&*ledger, "k", THEN).await;
    round(&RetentionGuard::new(GAP), &*ledger, &ManualClock::at(days(5))).await;
    drop(ledger);
    let ledger = home.open_retaining(Some(AGE));
    let jumped = RetentionGuard::new(GAP);
    let late = ManualClock::at(Millis(days(12).0 + 1));
    assert_eq!(round(&jumped, &*ledger, &late).await, SweepResult::default());
    assert!(jumped.jump().is_some(), "more than a week");
    let rested = RetentionGuard::new(GAP);
    assert_eq!(round(&rested, &*ledger, &ManualClock::at(days(12))).await.bodies, 1);
    assert_eq!(rested.jump(), None, "a week of downtime");
}

async fn the_newest_event_is_trusted_without_a_recorded_time(home: &dyn Home) {
    let ledger = home.open();
    // A clock was wrong once; later events were not.
    put(&*ledger, "future", days(900)).await;
    put(&*ledger, "k", THEN).await;
    let timeless = Event { received_at: days(1), ..event("newest", "a") };
    one(&*ledger, Entry::Event(timeless)).await;
    drop(ledger);
    let ledger = home.open_retaining(Some(AGE));
    let known = ledger.known_time().await.expect("readable");
    assert_eq!(known.at, Some(days(1)));
    let guard = RetentionGuard::new(GAP);
    assert_eq!(round(&guard, &*ledger, &ManualClock::at(days(30))).await, SweepResult::default());
    assert!(guard.jump().is_some());
    drop(ledger);
    // Without retention no time is recorded, so nothing is too old when it is enabled.
    let ledger = home.open();
    assert_eq!(ledger.known_time().await.expect("readable").at, None);
}

async fn a_confirmation_applies_to_all_gates(home: &dyn Home) {
    let ledger = home.open_retaining(Some(AGE));
    put(&*ledger, "k", THEN).await;
    let clock = ManualClock::at(THEN);
    let (ours, theirs) = (RetentionGuard::new(GAP), RetentionGuard::new(GAP));
    for guard in [&ours, &theirs] {
        round(guard, &*ledger, &clock).await;
    }
    clock.step(30 * DAY);
    for guard in [&ours, &theirs] {
        round(guard, &*ledger, &clock).await;
        assert!(guard.jump().is_some());
    }
    ours.confirm(&*ledger, &clock, "ops", None).await.expect("it answers");
    assert_eq!(round(&theirs, &*ledger, &clock).await.bodies, 1);
    assert_eq!(theirs.jump(), None);
}
