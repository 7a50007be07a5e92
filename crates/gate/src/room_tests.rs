//! The room: its shares, and the pool of bodies that are not authenticated yet.

use futures_util::FutureExt as _;

use super::*;

fn room(events: usize, bytes: usize, percent: usize) -> Arc<Room> {
    let limits = Limits {
        body_bytes_max: 1,
        events_in_flight_max: events,
        body_bytes_in_flight_max: bytes,
        principal_share_percent: percent,
        unauthenticated_body_bytes_in_flight_max: bytes,
        ..Limits::default()
    };
    Room::new(&limits, 2, percent < 100)
}

fn bytes_of(room: &Room) -> (usize, usize) {
    (room.bytes.held(), room.unauthenticated.held())
}

#[test]
fn no_event_is_let_in_over_either_limit() {
    let room = room(2, 10, 100);
    let first = room.enter(0, 4).unwrap();
    assert!(room.enter(0, 7).is_none(), "too many bytes");
    let second = room.enter(1, 6).unwrap();
    assert!(room.enter(0, 0).is_none(), "too many events");
    drop(first);
    assert!(room.enter(0, 4).is_some());
    drop(second);
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 0)));
}

#[test]
fn a_principal_beyond_its_share_leaves_the_rest_to_others() {
    let room = room(4, 100, 50);
    let held: Vec<_> = (0..2).map(|_| room.enter(0, 10).unwrap()).collect();
    assert!(room.enter(0, 0).is_none(), "half of four events");
    assert!(room.enter(1, 51).is_none(), "more than half of the bytes");
    let other = room.enter(1, 50).unwrap();
    drop((held, other));
    let mut first = room.enter(0, 0).unwrap();
    assert!(first.grow_to(50) && !first.grow_to(51), "exactly half of the bytes");
    assert!(room.enter(1, 50).is_some());
    drop(first);
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 0)));
}

#[test]
fn a_share_of_little_still_takes_the_largest_event() {
    let limits = Limits { body_bytes_max: 80, body_bytes_in_flight_max: 100, ..Limits::default() };
    let room = Room::new(&Limits { events_in_flight_max: 1, ..limits }, 2, true);
    assert!(room.enter(0, 80).is_some());
    assert!(room.enter(0, 81).is_none());
}

#[test]
fn a_body_of_unknown_length_reserves_what_has_arrived() {
    let room = room(1_000, 4 * STEP_BYTES, 100);
    let mut held: Vec<_> = (0..100).map(|_| room.enter(0, 0).unwrap()).collect();
    assert_eq!(bytes_of(&room).0, 0, "nothing has arrived");
    assert!(held[0].grow_to(1) && held[0].grow_to(STEP_BYTES));
    assert_eq!(bytes_of(&room).0, STEP_BYTES);
    held[0].shrink_to(10);
    assert_eq!(bytes_of(&room).0, 10);
    assert!(held[1].grow_to(4 * STEP_BYTES - 10), "to the last byte, though no whole step is left");
    assert!(!held[2].grow_to(1));
    held.clear();
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 0)));
}

#[test]
fn what_is_announced_is_asked_for_and_not_reserved() {
    let room = room(4, 100, 50);
    let held: Vec<_> = (0..2).map(|_| room.enter_announced(0, 50).unwrap()).collect();
    assert_eq!((room.events(), bytes_of(&room)), (2, (0, 0)));
    drop(held);
    let mut first = room.enter_announced(0, 50).unwrap();
    assert!(first.grow_to(10));
    assert!(room.enter_announced(0, 41).is_none(), "it would not fit");
    assert!(room.enter_announced(0, 40).is_some());
}

#[test]
fn principals_that_fill_all_shares_leave_others_what_is_kept_for_them() {
    let limits = Limits {
        body_bytes_max: 1,
        events_in_flight_max: 12,
        body_bytes_in_flight_max: 120,
        ..Limits::default()
    };
    let room = Room::new(&limits, 3, true);
    let fill = |place| (0..100).map_while(|_| room.enter(place, 10)).collect::<Vec<_>>();
    let held = [0, 1].map(fill);
    assert_eq!(held.each_ref().map(Vec::len), [6, 4]);
    assert_eq!(fill(2).len(), 2);
    drop(held);
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 0)));
}

#[test]
fn what_is_not_authenticated_takes_nothing_of_the_whole_until_it_is() {
    let room = room(2, 10, 100);
    let mut unsigned = room.enter_unauthenticated();
    assert!(unsigned.grow_to(10));
    assert!(!room.enter_unauthenticated().grow_to(1), "the pool is full");
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 10)));
    let other = room.enter(0, 10).unwrap();
    let refused = unsigned.authenticated(1);
    assert!(refused.is_none(), "no room in the whole");
    drop(other);
    let mut signed = room.enter_unauthenticated();
    assert!(signed.grow_to(10));
    let inside = signed.authenticated(1).unwrap();
    assert_eq!((room.events(), bytes_of(&room)), (1, (10, 0)));
    drop(inside);
    assert_eq!((room.events(), bytes_of(&room)), (0, (0, 0)));
}

#[test]
fn an_empty_room_is_noticed_when_the_last_event_leaves() {
    let room = room(2, 10, 100);
    let inside = room.enter(0, 1).unwrap();
    let mut empty = Box::pin(room.empty());
    assert!(empty.as_mut().now_or_never().is_none());
    drop(inside);
    assert!(empty.as_mut().now_or_never().is_some());
}
