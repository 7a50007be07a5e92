//! Fair shares: two principals that exhaust their limits do not keep a third one out.

use super::bodies::{LIMITS, PartialRequest, SHOP, gate, shop_sends, with_key_of};
use crate::events::receipt;
use crate::support::gate::Gate;
use crate::support::{TIMEOUT, wait_for};

const GREEDY: [&str; 2] = ["loud", "brash"];

/// Opens unfinished requests of both greedy principals, with `headers`, until each is refused.
fn exhaust_shares(gate: &Gate, headers: &str) -> Vec<Vec<PartialRequest>> {
    let begin = |name: &str| {
        let (request, status) =
            PartialRequest::begin(gate, "/v1/events/orders", &with_key_of(name, headers));
        assert!(matches!(status, 100 | 503), "{name}: {status}");
        (status == 100).then_some(request)
    };
    let fill = |name: &&str| (0..100).map_while(|_| begin(name)).collect();
    GREEDY.iter().map(fill).collect()
}

#[test]
fn busy_connections_of_two_principals_do_not_keep_a_third_out() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), &format!("{LIMITS}connections_max = 32\n"));
    let held = exhaust_shares(&gate, "Transfer-Encoding: chunked");
    let counts: Vec<_> = held.iter().map(Vec::len).collect();
    assert!(
        counts[0] == 16 && counts[1] < 16,
        "expected half of the limit, then the rest: {counts:?}"
    );
    // Its own connection works, and so does a new one for each request.
    let mut first = gate.client().with(SHOP.0, SHOP.1);
    for number in 0..5 {
        let key = format!("same-connection-{number}");
        let headers = [("Idempotency-Key", key.as_str())];
        let response = first
            .send("POST", "/v1/events/orders", &headers, b"{}")
            .expect("the connection is open");
        receipt(&response);
        receipt(&shop_sends(&gate, &format!("new-{number}"), 10));
    }
    drop(held);
}

#[test]
fn heads_of_two_principals_that_announce_bodies_reserve_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let held: Vec<_> = GREEDY
        .iter()
        .cycle()
        .take(40)
        .map(|name| {
            let headers = with_key_of(name, "Content-Length: 1048576");
            let (request, status) = PartialRequest::begin(&gate, "/v1/events/orders", &headers);
            assert_eq!(status, 100, "{name}: announced bodies reserve nothing");
            request
        })
        .collect();
    receipt(&shop_sends(&gate, "shop-event", 900_000));
    drop(held);
}

#[test]
fn bodies_of_two_principals_that_do_not_end_leave_room_for_a_third() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let mut held = Vec::new();
    for name in GREEDY.iter().cycle().take(20) {
        let headers = with_key_of(name, "Content-Length: 1048576");
        let (mut request, status) = PartialRequest::begin(&gate, "/v1/events/orders", &headers);
        // A full share is refused at the head.
        if status == 100 {
            request.write_until_refused(&[b'x'; 1_000_000]);
            held.push(request);
        }
    }
    assert!((2..20).contains(&held.len()), "{}", held.len());
    receipt(&shop_sends(&gate, "shop-event", 400_000));
    drop(held);
}

#[test]
fn requests_of_two_principals_that_do_not_end_leave_events_for_a_third() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), &format!("{LIMITS}events_in_flight_max = 16\n"));
    let held = exhaust_shares(&gate, "Transfer-Encoding: chunked");
    let counts: Vec<_> = held.iter().map(Vec::len).collect();
    assert!(
        counts[0] == 8 && counts[1] < 8,
        "expected half of the limit, then the rest: {counts:?}"
    );
    receipt(&shop_sends(&gate, "shop-event", 10));
    drop(held);
    wait_for("there is room again", TIMEOUT, || {
        (gate.client().get("/healthz?verbose")["load"]["events_in_flight"] == 0).then_some(())
    });
}
