//! Limits: each has an error reply that the client receives.

use admit_core::Code;

use crate::client::{get, post};
use crate::test_server::{TestServer, wait_until};

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
async fn an_unfinished_head_gets_408_and_the_connection_closes() {
    let server = TestServer::limited(|limits| limits.header_read_ms_max = 50).await;
    let mut client = server.client().await;
    client.send("POST /door HTTP/1.1\r\nhost: local").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.general_code().as_str()), (408, "request_timeout"));
    client.closed().await;
}

#[tokio::test]
async fn an_unfinished_later_head_gets_408_too() {
    let server = TestServer::limited(|limits| limits.header_read_ms_max = 50).await;
    let mut client = server.client().await;
    assert_eq!(client.request(post("a")).await.status, 200);
    client.send("POST").await;
    assert_eq!(client.read_response().await.general_code(), "request_timeout");
    client.closed().await;
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let server = TestServer::limited(|limits| limits.header_read_ms_max = 50).await;
    server.client().await.closed().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_idle_timeout_and_not_before() {
    let server = TestServer::limited(|limits| {
        limits.header_read_ms_max = 20;
        limits.idle_ms_max = 200;
    })
    .await;
    let mut client = server.client().await;
    let begun = std::time::Instant::now();
    assert_eq!(client.request(post("a")).await.status, 200);
    client.closed().await;
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_unfinished_body_gets_408() {
    let server = TestServer::limited(|limits| limits.body_read_ms_max = 50).await;
    let mut client = server.client().await;
    client.send(head_of(10) + "abc").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.contract_code().as_str()), (408, "request_timeout"));
    assert_eq!(response.header("connection"), Some("close"));
    wait_until(|| server.gate.events_in_flight() == 0).await;
}

#[tokio::test]
async fn a_slow_body_within_the_timeout_is_accepted() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send(head_of(6)).await;
    for piece in ["ab", "cd", "ef"] {
        client.send(piece).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    assert_eq!(client.request(post("abcdef")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn a_chunked_body_is_reassembled() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send(format!("{CHUNKED}{}{}0\r\n\r\n", chunk("abc"), chunk("def"))).await;
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    assert_eq!(client.request(post("abcdef")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not() {
    let server = TestServer::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = server.client().await;
    assert_eq!(client.request(post(&"x".repeat(1000))).await.status, 200);
    let response = client.request(post(&"x".repeat(1001))).await;
    assert_eq!((response.status, response.contract_code().as_str()), (413, "body_too_large"));
    assert_eq!(client.request(post("a")).await.status, 200, "the connection stays open");
    assert_eq!(server.counted("fresh"), 2);
}

#[tokio::test]
async fn a_chunked_body_above_the_limit_is_refused() {
    let server = TestServer::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = server.client().await;
    let piece = chunk(&"x".repeat(600));
    client.send(format!("{CHUNKED}{piece}{piece}0\r\n\r\n")).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.contract_code().as_str()), (413, "body_too_large"));
    assert_eq!(client.request(post("a")).await.status, 200, "the connection stays open");
}

#[tokio::test]
async fn a_client_with_a_far_too_large_body_receives_the_error() {
    let server = TestServer::limited(|limits| {
        limits.body_bytes_max = 1000;
        limits.excess_bytes_max = 64 * 1024;
    })
    .await;
    for _ in 0..20 {
        let mut client = server.client().await;
        let body = vec![b'x'; 4 * 1024 * 1024];
        client.send(head_of(body.len())).await;
        assert!(client.send_until_closed(&body).await, "the gate discards the whole body");
        let response = client.read_response().await;
        assert_eq!((response.status, response.contract_code().as_str()), (413, "body_too_large"));
        assert_eq!(response.header("connection"), Some("close"));
    }
}

#[tokio::test]
async fn a_producer_at_a_wrong_path_receives_the_error() {
    let server = TestServer::open().await;
    for _ in 0..20 {
        let mut client = server.client().await;
        let body = vec![b'x'; 4 * 1024 * 1024];
        client.send(head_of(body.len()).replace("/door", "/dor")).await;
        assert!(client.send_until_closed(&body).await, "the gate discards the whole body");
        let response = client.read_response().await;
        assert_eq!((response.status, response.general_code().as_str()), (404, "not_found"));
    }
}

#[tokio::test]
async fn with_expect_100_continue_the_reply_comes_before_the_body() {
    let server = TestServer::limited(|limits| limits.body_bytes_max = 1000).await;
    let mut client = server.client().await;
    let expecting =
        |length| head_of(length).replace("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n");
    client.send(expecting(3)).await;
    assert_eq!(client.read_response().await.status, 100);
    client.send("abc").await;
    assert_eq!(client.read_response().await.status, 200);
    client.send(expecting(5000)).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.contract_code().as_str()), (413, "body_too_large"));
}

#[tokio::test]
async fn an_invalid_or_too_large_head_gets_an_error_body() {
    let server = TestServer::limited(|limits| limits.headers_bytes_max = 8192).await;
    let large =
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\r\n", "x".repeat(9000));
    let many = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(101));
    for (request, status) in [(large.as_str(), 431), (&many, 431), ("what is this\r\n\r\n", 400)] {
        let mut client = server.client().await;
        let response = client.request(request).await;
        assert_eq!(
            (response.status, response.general_code().as_str()),
            (status, "invalid_request")
        );
        client.closed().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let server = TestServer::limited(|limits| limits.write_ms_max = 50).await;
    let mut client = server.client().await;
    for event in 0..100 {
        assert_eq!(client.request(post(&event.to_string())).await.status, 200);
    }
    client.send(get("/v1/admissions").repeat(500)).await;
    wait_until(|| server.gate.metrics().connections_open() == 0).await;
}

#[tokio::test]
async fn events_above_the_in_flight_limit_are_refused_until_it_falls() {
    let server = TestServer::limited(|limits| limits.events_in_flight_max = 2).await;
    server.ledger.hold();
    let (mut first, mut second) = (server.client().await, server.client().await);
    first.send(post("a")).await;
    second.send(post("b")).await;
    server.ledger.wait_for_held(2).await;
    let mut third = server.client().await;
    let response = third.request(post("c")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (503, "overloaded"));
    assert!(response.header("retry-after").is_some());
    server.ledger.release();
    assert_eq!(first.read_response().await.status, 200);
    assert_eq!(second.read_response().await.status, 200);
    wait_until(|| server.gate.events_in_flight() == 0).await;
    assert_eq!(third.request(post("c")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn bytes_above_the_in_flight_limit_are_refused() {
    let server = TestServer::limited(|limits| {
        limits.body_bytes_max = 1000;
        limits.body_bytes_in_flight_max = 1500;
    })
    .await;
    server.ledger.hold();
    let mut first = server.client().await;
    first.send(post(&"x".repeat(1000))).await;
    server.ledger.wait_for_held(1).await;
    assert_eq!(server.request(post(&"y".repeat(501))).await.contract_code(), "overloaded");
    let mut small = server.client().await;
    small.send(post(&"y".repeat(500))).await;
    server.ledger.wait_for_held(2).await;
    server.ledger.release();
    assert_eq!(small.read_response().await.status, 200);
}

#[tokio::test]
async fn a_principal_above_its_rate_limit_gets_429_with_a_retry_hint() {
    let server = TestServer::limited(|limits| limits.requests_per_second_max = 2).await;
    let mut client = server.client().await;
    assert_eq!(client.request(post("a")).await.status, 200);
    assert_eq!(client.request(post("b")).await.status, 200);
    let response = client.request(post("c")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (429, "rate_limited"));
    assert!(response.header("retry-after").is_some());
    assert_eq!(client.request(get("/v1/admissions")).await.general_code(), "rate_limited");
    server.clock.advance(1_000);
    assert_eq!(client.request(post("c")).await.json()["verdict"], "fresh");
    assert_eq!(server.refused(Code::RateLimited), 1);
}

#[tokio::test]
async fn a_connection_over_the_limit_gets_overloaded_in_the_format_of_the_door() {
    let server = TestServer::limited(|limits| limits.connections_max = 1).await;
    let mut first = server.client().await;
    assert_eq!(first.request(post("a")).await.status, 200);
    let mut second = server.client().await;
    let response = second.request(post("b")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (503, "overloaded"));
    assert_eq!(response.header("connection"), Some("close"));
    second.closed().await;
    assert_eq!(server.request(get("/v1/admissions")).await.general_code(), "overloaded");
    assert_eq!(server.request(get("/livez")).await.status, 200, "health is still served");
    assert_eq!(first.request(post("c")).await.status, 200);
    drop(first);
    wait_until(|| server.gate.metrics().connections_open() == 0).await;
    assert_eq!(server.request(post("b")).await.json()["verdict"], "fresh");
}
