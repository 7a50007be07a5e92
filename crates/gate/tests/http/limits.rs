//! Every limit has an answer, and the answer arrives.

use admit_core::Code;

use crate::client::{get, post};
use crate::world::{World, until};

fn head_of(length: usize) -> String {
    format!(
        "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

const CHUNKED: &str = "POST /door HTTP/1.1\r\nhost: localhost\r\n\
    content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n", body.len())
}

#[tokio::test]
async fn a_head_that_never_ends_is_answered_and_cut_off() {
    let world = World::limited(|limits| limits.header_read_ms_max = 50).await;
    let mut client = world.client().await;
    client.send("POST /door HTTP/1.1\r\nhost: local").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.general().as_str()), (408, "request_timeout"));
    client.closed().await;
}

#[tokio::test]
async fn a_later_head_that_never_ends_is_answered_too() {
    let world = World::limited(|limits| limits.header_read_ms_max = 50).await;
    let mut client = world.client().await;
    assert_eq!(client.ask(post("a")).await.status, 200);
    client.send("POST").await;
    assert_eq!(client.answer().await.general(), "request_timeout");
    client.closed().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
    let world = World::limited(|limits| limits.header_read_ms_max = 50).await;
    world.client().await.closed().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_its_time_is_over_and_not_before() {
    let world = World::limited(|limits| {
        limits.header_read_ms_max = 20;
        limits.idle_ms_max = 200;
    })
    .await;
    let mut client = world.client().await;
    let begun = std::time::Instant::now();
    assert_eq!(client.ask(post("a")).await.status, 200);
    client.closed().await;
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_body_that_never_ends_is_answered() {
    let world = World::limited(|limits| limits.body_read_ms_max = 50).await;
    let mut client = world.client().await;
    client.send(head_of(10) + "abc").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (408, "request_timeout"));
    assert_eq!(answer.header("connection"), Some("close"));
    until(|| world.gate.events_in_flight() == 0).await;
}

#[tokio::test]
async fn a_slow_body_that_ends_in_time_is_taken() {
    let world = World::open().await;
    let mut client = world.client().await;
    client.send(head_of(6)).await;
    for piece in ["ab", "cd", "ef"] {
        client.send(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    assert_eq!(client.ask(post("abcdef")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn chunks_are_put_together() {
    let world = World::open().await;
    let mut client = world.client().await;
    client.send(format!("{CHUNKED}{}{}0\r\n\r\n", chunk("abc"), chunk("def"))).await;
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    assert_eq!(client.ask(post("abcdef")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() {
    let world = World::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = world.client().await;
    assert_eq!(client.ask(post(&"x".repeat(1000))).await.status, 200);
    let answer = client.ask(post(&"x".repeat(1001))).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (413, "body_too_large"));
    assert_eq!(client.ask(post("a")).await.status, 200, "the connection lives on");
    assert_eq!(world.counted("fresh"), 2);
}

#[tokio::test]
async fn a_body_that_turns_out_too_large_is_refused_too() {
    let world = World::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = world.client().await;
    let piece = chunk(&"x".repeat(600));
    client.send(format!("{CHUNKED}{piece}{piece}0\r\n\r\n")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (413, "body_too_large"));
    assert_eq!(client.ask(post("a")).await.status, 200, "the connection lives on");
}

#[tokio::test]
async fn a_peer_that_sends_far_too_much_gets_to_read_why() {
    let world = World::limited(|limits| {
        limits.body_bytes_max = 1000;
        limits.excess_bytes_max = 64 * 1024;
    })
    .await;
    for _ in 0..20 {
        let mut client = world.client().await;
        let body = vec![b'x'; 4 * 1024 * 1024];
        client.send(head_of(body.len())).await;
        assert!(client.send_what_it_takes(&body).await, "all of it is taken off the peer's hands");
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.in_its_words().as_str()), (413, "body_too_large"));
        assert_eq!(answer.header("connection"), Some("close"));
    }
}

#[tokio::test]
async fn a_producer_at_a_wrong_path_gets_to_read_so() {
    let world = World::open().await;
    for _ in 0..20 {
        let mut client = world.client().await;
        let body = vec![b'x'; 4 * 1024 * 1024];
        client.send(head_of(body.len()).replace("/door", "/dor")).await;
        assert!(client.send_what_it_takes(&body).await, "all of it is taken off the peer's hands");
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.general().as_str()), (404, "not_found"));
    }
}

#[tokio::test]
async fn a_peer_that_asks_first_is_told_before_it_sends() {
    let world = World::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = world.client().await;
    let asking = |length| head_of(length).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    client.send(asking(3)).await;
    assert_eq!(client.answer().await.status, 100);
    client.send("abc").await;
    assert_eq!(client.answer().await.status, 200);
    client.send(asking(5000)).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (413, "body_too_large"));
}

#[tokio::test]
async fn a_head_that_is_too_large_or_no_head_at_all_is_answered_with_a_body() {
    let world = World::limited(|limits| limits.headers_bytes_max = 8192).await;
    let large =
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\r\n", "x".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(101));
    for (request, status) in [(large.as_str(), 431), (&many, 431), ("what is this\r\n\r\n", 400)] {
        let mut client = world.client().await;
        let answer = client.ask(request).await;
        assert_eq!((answer.status, answer.general().as_str()), (status, "invalid_request"));
        client.closed().await;
    }
}

#[tokio::test]
async fn a_peer_that_does_not_read_its_answers_is_cut_off() {
    let world = World::limited(|limits| limits.write_ms_max = 50).await;
    let mut client = world.client().await;
    for event in 0..100 {
        assert_eq!(client.ask(post(&event.to_string())).await.status, 200);
    }
    client.send(get("/v1/admissions").repeat(500)).await;
    until(|| world.gate.metrics().connections_open() == 0).await;
}

#[tokio::test]
async fn more_events_at_once_than_allowed_are_turned_away_and_welcome_later() {
    let world = World::limited(|limits| limits.events_in_flight_max = 2).await;
    world.ledger.hold();
    let (mut first, mut second) = (world.client().await, world.client().await);
    first.send(post("a")).await;
    second.send(post("b")).await;
    world.ledger.holds(2).await;
    let mut third = world.client().await;
    let answer = third.ask(post("c")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (503, "overloaded"));
    assert!(answer.header("retry-after").is_some());
    world.ledger.release();
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    until(|| world.gate.events_in_flight() == 0).await;
    assert_eq!(third.ask(post("c")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn more_bytes_at_once_than_allowed_are_turned_away() {
    let world = World::limited(|limits| {
        limits.body_bytes_max = 1000;
        limits.body_bytes_in_flight_max = 1500;
    })
    .await;
    world.ledger.hold();
    let mut first = world.client().await;
    first.send(post(&"x".repeat(1000))).await;
    world.ledger.holds(1).await;
    assert_eq!(world.ask(post(&"y".repeat(501))).await.in_its_words(), "overloaded");
    let mut small = world.client().await;
    small.send(post(&"y".repeat(500))).await;
    world.ledger.holds(2).await;
    world.ledger.release();
    assert_eq!(small.answer().await.status, 200);
}

#[tokio::test]
async fn a_principal_that_knocks_too_often_is_told_when_to_come_back() {
    let world = World::limited(|limits| limits.requests_per_second_max = 2).await;
    let mut client = world.client().await;
    assert_eq!(client.ask(post("a")).await.status, 200);
    assert_eq!(client.ask(post("b")).await.status, 200);
    let answer = client.ask(post("c")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (429, "rate_limited"));
    assert!(answer.header("retry-after").is_some());
    assert_eq!(client.ask(get("/v1/admissions")).await.general(), "rate_limited");
    world.clock.advance(1_000);
    assert_eq!(client.ask(post("c")).await.json()["verdict"], "fresh");
    assert_eq!(world.refused(Code::RateLimited), 1);
}

#[tokio::test]
async fn a_connection_over_the_limit_is_told_so_in_the_doors_words() {
    let world = World::limited(|limits| limits.connections_max = 1).await;
    let mut first = world.client().await;
    assert_eq!(first.ask(post("a")).await.status, 200);
    let mut second = world.client().await;
    let answer = second.ask(post("b")).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (503, "overloaded"));
    assert_eq!(answer.header("connection"), Some("close"));
    second.closed().await;
    assert_eq!(world.ask(get("/v1/admissions")).await.general(), "overloaded");
    assert_eq!(world.ask(get("/livez")).await.status, 200, "whoever watches is still answered");
    assert_eq!(first.ask(post("c")).await.status, 200);
    drop(first);
    until(|| world.gate.metrics().connections_open() == 0).await;
    assert_eq!(world.ask(post("b")).await.json()["verdict"], "fresh");
}
