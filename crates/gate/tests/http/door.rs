//! What a producer can count on at a door.

use admit_core::{Code, Door, FaultKind};

use crate::client::{get, post, post_with};
use crate::world::{World, until};

#[tokio::test]
async fn an_event_is_fresh_once_and_a_duplicate_ever_after() {
    let world = World::open().await;
    let mut client = world.client().await;
    let first = client.ask(post("a")).await;
    assert_eq!((first.status, first.json()["verdict"].as_str()), (200, Some("fresh")));
    assert_eq!(first.json()["scope"], "local");
    let again = client.ask(post("a")).await;
    assert_eq!(again.json()["verdict"], "duplicate");
    assert_eq!(client.ask(post("a=other")).await.json()["verdict"], "conflict");
    assert_eq!(client.ask(post("refuse")).await.json()["verdict"], "refused");
    for verdict in ["fresh", "duplicate", "conflict", "refused"] {
        assert_eq!(world.counted(verdict), 1, "{verdict}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_copies_at_once_are_one_fresh_event() {
    let world = World::open().await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = world.client().await;
        client.send(post("same")).await;
        clients.push(client);
    }
    let mut fresh = 0;
    for client in &mut clients {
        fresh += u32::from(client.answer().await.json()["verdict"] == "fresh");
    }
    assert_eq!((fresh, world.counted("duplicate")), (1, 15));
}

#[tokio::test]
async fn requests_sent_in_one_go_are_answered_in_order() {
    let world = World::open().await;
    let mut client = world.client().await;
    client.send(format!("{}{}{}", post("a"), post("a"), get("/door"))).await;
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    assert_eq!(client.answer().await.json()["verdict"], "duplicate");
    assert_eq!(client.answer().await.in_its_words(), "method_not_allowed");
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let world = World::open().await;
    let mut client = world.client().await;
    let (begun, rest) = ("POST /door HTTP/1.1\r\nhost: loc", "alhost\r\n");
    client.send(post("a") + begun).await;
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    client
        .send(format!("{rest}content-type: application/json\r\ncontent-length: 1\r\n\r\na"))
        .await;
    assert_eq!(client.answer().await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn another_method_is_told_which_one_to_use() {
    let world = World::open().await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let answer = world.ask(format!("{method} /door HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")), "{method}");
        assert_eq!(answer.in_its_words(), "method_not_allowed");
    }
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_refused_and_the_connection_lives_on() {
    let world = World::open().await;
    let mut client = world.client().await;
    for headers in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        "content-type: application/json\r\ncontent-encoding: identity, br\r\n",
    ] {
        let answer = client.ask(post_with(headers, "a")).await;
        assert_eq!(answer.status, 415, "{headers}");
        assert_eq!(answer.in_its_words(), "unsupported_media_type");
    }
    let plain = "content-type: application/json; charset=utf-8\r\ncontent-encoding: identity\r\n";
    assert_eq!(client.ask(post_with(plain, "a")).await.status, 200);
    assert_eq!(world.refused(Code::UnsupportedMediaType), 5);
}

#[tokio::test]
async fn a_contract_sees_the_headers_it_asks_for_and_no_others() {
    let world = World::open().await;
    let headers = "content-type: application/json\r\nX-Attempt: 3\r\nX-Other: 1\r\n";
    assert_eq!(world.ask(post_with(headers, "a")).await.status, 200);
}

#[tokio::test]
async fn an_empty_body_is_the_contracts_business() {
    let world = World::open().await;
    assert_eq!(world.ask(post("")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn a_fault_of_ours_asks_for_a_retry_and_never_claims_a_verdict() {
    let world = World::open().await;
    for (kind, code, status) in [
        (FaultKind::LedgerUnavailable, Code::LedgerUnavailable, 503),
        (FaultKind::OutcomeUnknown, Code::OutcomeUnknown, 503),
        (FaultKind::Overloaded, Code::Overloaded, 503),
        (FaultKind::Internal, Code::InternalError, 500),
    ] {
        *world.ledger.fault.lock().unwrap() = Some(kind);
        let answer = world.ask(post("a")).await;
        assert_eq!((answer.status, answer.in_its_words()), (status, code.as_str().to_owned()));
        let hint = answer.json()["words"]["retry_after"].as_u64().unwrap();
        assert!((5..=10).contains(&hint), "{hint}");
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some(hint.to_string().as_str()));
        }
        assert_eq!(world.gate.metrics().door(&Door::new("test")).unwrap().faults.of(code).get(), 1);
    }
    *world.ledger.fault.lock().unwrap() = None;
    assert_eq!(world.ask(post("a")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn retry_hints_differ_between_events_and_not_between_tries() {
    let world = World::open().await;
    *world.ledger.fault.lock().unwrap() = Some(FaultKind::LedgerUnavailable);
    let mut client = world.client().await;
    let mut hints = Vec::new();
    for event in 0..24 {
        let body = if event % 2 == 0 { format!("{event}") } else { format!("refuse {event}") };
        let first = client.ask(post(&body)).await.json()["words"]["retry_after"].clone();
        let second = client.ask(post(&body)).await.json()["words"]["retry_after"].clone();
        assert_eq!(first, second);
        hints.push(first.as_u64().unwrap());
    }
    hints.sort_unstable();
    hints.dedup();
    assert!(hints.len() > 3, "spread out: {hints:?}");
}

#[tokio::test]
async fn a_panic_is_answered_and_costs_nobody_else_anything() {
    let world = World::open().await;
    let mut client = world.client().await;
    let answer = client.ask(post("panic")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (500, "internal_error"));
    assert_eq!(client.ask(post("a")).await.json()["verdict"], "fresh", "the same connection");
    assert_eq!(world.gate.events_in_flight(), 0);
    assert_eq!(world.gate.metrics().panics.get(), 1);
    let health = client.ask(get("/healthz?verbose")).await.json();
    assert_eq!(health["load"]["admit_panics_total"], 1, "{health}");
}

#[tokio::test]
async fn a_gate_without_a_defect_shows_none() {
    let world = World::open().await;
    let health = world.ask(get("/healthz?verbose")).await.json();
    assert!(health["load"].get("admit_panics_total").is_none(), "{health}");
}

#[tokio::test]
async fn a_contract_that_cannot_even_refuse_still_gets_an_answer_out() {
    let world = World::open().await;
    let answer = world.ask(post("a").replace("/door", "/speechless")).await;
    assert_eq!((answer.status, answer.general().as_str()), (500, "internal_error"));
    assert_eq!(world.ask(post("a")).await.status, 200);
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_unknown_and_the_event_is_kept_all_the_same() {
    let world = World::limited(|limits| {
        limits.answer_ms_max = 40;
        limits.body_read_ms_max = 30;
    })
    .await;
    world.ledger.hold();
    let mut client = world.client().await;
    let answer = client.ask(post("a")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (503, "outcome_unknown"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(world.gate.events_in_flight(), 1, "the event is still inside");
    world.ledger.release();
    until(|| world.counted("fresh") == 1 && world.gate.events_in_flight() == 0).await;
    assert_eq!(client.ask(post("a")).await.json()["verdict"], "duplicate", "the retry finds out");
}

#[tokio::test]
async fn an_event_whose_producer_hung_up_is_kept_and_counted() {
    let world = World::open().await;
    world.ledger.hold();
    let mut client = world.client().await;
    client.send(post("a")).await;
    world.ledger.holds(1).await;
    drop(client);
    world.ledger.release();
    until(|| world.counted("fresh") == 1).await;
    assert_eq!(world.ask(post("a")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn a_producer_that_has_said_all_it_wanted_still_gets_its_answer() {
    let world = World::open().await;
    world.ledger.hold();
    let mut client = world.client().await;
    client.send(post("a")).await;
    client.finish_sending().await;
    world.ledger.holds(1).await;
    world.ledger.release();
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    client.closed().await;
}
