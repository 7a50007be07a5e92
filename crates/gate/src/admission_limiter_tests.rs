//! Shares of the admission limiter, and the pool of unauthenticated bodies.

use futures_util::FutureExt as _;

use super::*;

fn limiter(events: usize, bytes: usize, percent: usize) -> Arc<AdmissionLimiter> {
    let limits = Limits {
        body_bytes_max: 1,
        events_in_flight_max: events,
        body_bytes_in_flight_max: bytes,
        principal_share_percent: percent,
        unauthenticated_body_bytes_in_flight_max: bytes,
        ..Limits::default()
    };
    AdmissionLimiter::new(&limits, 2, percent < 100)
}

fn bytes_of(limiter: &AdmissionLimiter) -> (usize, usize) {
    (limiter.bytes.held(), limiter.unauthenticated.held())
}

#[test]
fn no_event_is_admitted_over_either_limit() {
    let limiter = limiter(2, 10, 100);
    let first = limiter.try_acquire(0, 4).unwrap();
    assert!(limiter.try_acquire(0, 7).is_none(), "too many bytes");
    let second = limiter.try_acquire(1, 6).unwrap();
    assert!(limiter.try_acquire(0, 0).is_none(), "too many events");
    drop(first);
    assert!(limiter.try_acquire(0, 4).is_some());
    drop(second);
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 0)));
}

#[test]
fn a_principal_beyond_its_share_leaves_the_rest_to_others() {
    let limiter = limiter(4, 100, 50);
    let permits: Vec<_> = (0..2).map(|_| limiter.try_acquire(0, 10).unwrap()).collect();
    assert!(limiter.try_acquire(0, 0).is_none(), "half of four events");
    assert!(limiter.try_acquire(1, 51).is_none(), "more than half of the bytes");
    let other = limiter.try_acquire(1, 50).unwrap();
    drop((permits, other));
    let mut first = limiter.try_acquire(0, 0).unwrap();
    assert!(first.grow_to(50) && !first.grow_to(51), "exactly half of the bytes");
    assert!(limiter.try_acquire(1, 50).is_some());
    drop(first);
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 0)));
}

#[test]
fn a_small_share_still_admits_the_largest_event() {
    let limits = Limits { body_bytes_max: 80, body_bytes_in_flight_max: 100, ..Limits::default() };
    let limiter = AdmissionLimiter::new(&Limits { events_in_flight_max: 1, ..limits }, 2, true);
    assert!(limiter.try_acquire(0, 80).is_some());
    assert!(limiter.try_acquire(0, 81).is_none());
}

#[test]
fn a_body_of_unknown_length_reserves_what_has_arrived() {
    let limiter = limiter(1_000, 4 * STEP_BYTES, 100);
    let mut permits: Vec<_> = (0..100).map(|_| limiter.try_acquire(0, 0).unwrap()).collect();
    assert_eq!(bytes_of(&limiter).0, 0, "nothing has arrived");
    assert!(permits[0].grow_to(1) && permits[0].grow_to(STEP_BYTES));
    assert_eq!(bytes_of(&limiter).0, STEP_BYTES);
    permits[0].shrink_to(10);
    assert_eq!(bytes_of(&limiter).0, 10);
    assert!(
        permits[1].grow_to(4 * STEP_BYTES - 10),
        "up to the last byte, although no whole step is left"
    );
    assert!(!permits[2].grow_to(1));
    permits.clear();
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 0)));
}

#[test]
fn announced_bytes_are_checked_but_not_reserved() {
    let limiter = limiter(4, 100, 50);
    let permits: Vec<_> = (0..2).map(|_| limiter.try_acquire_announced(0, 50).unwrap()).collect();
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (2, (0, 0)));
    drop(permits);
    let mut first = limiter.try_acquire_announced(0, 50).unwrap();
    assert!(first.grow_to(10));
    assert!(limiter.try_acquire_announced(0, 41).is_none(), "it would not fit");
    assert!(limiter.try_acquire_announced(0, 40).is_some());
}

#[test]
fn principals_that_fill_their_shares_leave_others_the_guaranteed_part() {
    let limits = Limits {
        body_bytes_max: 1,
        events_in_flight_max: 12,
        body_bytes_in_flight_max: 120,
        ..Limits::default()
    };
    let limiter = AdmissionLimiter::new(&limits, 3, true);
    let fill = |index| (0..100).map_while(|_| limiter.try_acquire(index, 10)).collect::<Vec<_>>();
    let permits = [0, 1].map(fill);
    assert_eq!(permits.each_ref().map(Vec::len), [6, 4]);
    assert_eq!(fill(2).len(), 2);
    drop(permits);
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 0)));
}

#[test]
fn unauthenticated_bodies_count_in_their_own_pool() {
    let limiter = limiter(2, 10, 100);
    let mut unsigned = limiter.acquire_unauthenticated();
    assert!(unsigned.grow_to(10));
    assert!(!limiter.acquire_unauthenticated().grow_to(1), "the pool is full");
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 10)));
    let other = limiter.try_acquire(0, 10).unwrap();
    let refused = unsigned.into_authenticated(1);
    assert!(refused.is_none(), "the limit is reached");
    drop(other);
    let mut signed = limiter.acquire_unauthenticated();
    assert!(signed.grow_to(10));
    let permit = signed.into_authenticated(1).unwrap();
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (1, (10, 0)));
    drop(permit);
    assert_eq!((limiter.in_flight(), bytes_of(&limiter)), (0, (0, 0)));
}

#[test]
fn the_waiter_is_woken_when_the_last_event_is_released() {
    let limiter = limiter(2, 10, 100);
    let permit = limiter.try_acquire(0, 1).unwrap();
    let mut empty = Box::pin(limiter.wait_until_empty());
    assert!(empty.as_mut().now_or_never().is_none());
    drop(permit);
    assert!(empty.as_mut().now_or_never().is_some());
}
