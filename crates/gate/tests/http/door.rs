//! Guarantees for producers at a door.

use admit_core::{Code, Door, FaultKind};

use crate::client::{get, post, post_with};
use crate::test_server::{TestServer, wait_until};

#[tokio::test]
async fn an_event_is_fresh_once_and_then_a_duplicate() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    let first = client.request(post("a")).await;
    assert_eq!((first.status, first.json()["verdict"].as_str()), (200, Some("fresh")));
    assert_eq!(first.json()["scope"], "local");
    let again = client.request(post("a")).await;
    assert_eq!(again.json()["verdict"], "duplicate");
    assert_eq!(client.request(post("a=other")).await.json()["verdict"], "conflict");
    assert_eq!(client.request(post("refuse")).await.json()["verdict"], "refused");
    for verdict in ["fresh", "duplicate", "conflict", "refused"] {
        assert_eq!(server.counted(verdict), 1, "{verdict}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_copies_are_one_fresh_event() {
    let server = TestServer::open().await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        let mut client = server.client().await;
        client.send(post("same")).await;
        clients.push(client);
    }
    let mut fresh = 0;
    for client in &mut clients {
        fresh += u32::from(client.read_response().await.json()["verdict"] == "fresh");
    }
    assert_eq!((fresh, server.counted("duplicate")), (1, 15));
}

#[tokio::test]
async fn pipelined_requests_get_responses_in_order() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send(format!("{}{}{}", post("a"), post("a"), get("/door"))).await;
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    assert_eq!(client.read_response().await.json()["verdict"], "duplicate");
    assert_eq!(client.read_response().await.contract_code(), "method_not_allowed");
}

#[tokio::test]
async fn a_response_does_not_wait_for_the_rest_of_the_next_request() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    let (begun, rest) = ("POST /door HTTP/1.1\r\nhost: loc", "alhost\r\n");
    client.send(post("a") + begun).await;
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    client
        .send(format!("{rest}content-type: application/json\r\ncontent-length: 1\r\n\r\na"))
        .await;
    assert_eq!(client.read_response().await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn another_method_gets_405_with_the_allowed_methods() {
    let server = TestServer::open().await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let response =
            server.request(format!("{method} /door HTTP/1.1\r\nhost: localhost\r\n\r\n")).await;
        assert_eq!((response.status, response.header("allow")), (405, Some("POST")), "{method}");
        assert_eq!(response.contract_code(), "method_not_allowed");
    }
}

#[tokio::test]
async fn a_body_that_is_not_plain_json_is_refused_and_the_connection_stays_open() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    for headers in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        "content-type: application/json\r\ncontent-encoding: identity, br\r\n",
    ] {
        let response = client.request(post_with(headers, "a")).await;
        assert_eq!(response.status, 415, "{headers}");
        assert_eq!(response.contract_code(), "unsupported_media_type");
    }
    let plain = "content-type: application/json; charset=utf-8\r\ncontent-encoding: identity\r\n";
    assert_eq!(client.request(post_with(plain, "a")).await.status, 200);
    assert_eq!(server.refused(Code::UnsupportedMediaType), 5);
}

#[tokio::test]
async fn a_contract_gets_only_the_headers_it_declares() {
    let server = TestServer::open().await;
    let headers = "content-type: application/json\r\nX-Attempt: 3\r\nX-Other: 1\r\n";
    assert_eq!(server.request(post_with(headers, "a")).await.status, 200);
}

#[tokio::test]
async fn an_empty_body_is_passed_to_the_contract() {
    let server = TestServer::open().await;
    assert_eq!(server.request(post("")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn a_fault_is_retryable_and_has_no_verdict() {
    let server = TestServer::open().await;
    for (kind, code, status) in [
        (FaultKind::LedgerUnavailable, Code::LedgerUnavailable, 503),
        (FaultKind::OutcomeUnknown, Code::OutcomeUnknown, 503),
        (FaultKind::Overloaded, Code::Overloaded, 503),
        (FaultKind::Internal, Code::InternalError, 500),
    ] {
        *server.ledger.fault.lock().unwrap() = Some(kind);
        let response = server.request(post("a")).await;
        assert_eq!((response.status, response.contract_code()), (status, code.as_str().to_owned()));
        let hint = response.json()["refusal"]["retry_after"].as_u64().unwrap();
        assert!((5..=10).contains(&hint), "{hint}");
        if status == 503 {
            assert_eq!(response.header("retry-after"), Some(hint.to_string().as_str()));
        }
        assert_eq!(
            server.gate.metrics().door(&Door::new("test")).unwrap().faults.of(code).get(),
            1
        );
    }
    *server.ledger.fault.lock().unwrap() = None;
    assert_eq!(server.request(post("a")).await.json()["verdict"], "fresh");
}

#[tokio::test]
async fn retry_hints_differ_between_events_and_not_between_attempts() {
    let server = TestServer::open().await;
    *server.ledger.fault.lock().unwrap() = Some(FaultKind::LedgerUnavailable);
    let mut client = server.client().await;
    let mut hints = Vec::new();
    for event in 0..24 {
        let body = if event % 2 == 0 { format!("{event}") } else { format!("refuse {event}") };
        let first = client.request(post(&body)).await.json()["refusal"]["retry_after"].clone();
        let second = client.request(post(&body)).await.json()["refusal"]["retry_after"].clone();
        assert_eq!(first, second);
        hints.push(first.as_u64().unwrap());
    }
    hints.sort_unstable();
    hints.dedup();
    assert!(hints.len() > 3, "the hints are spread: {hints:?}");
}

#[tokio::test]
async fn a_panic_gets_an_error_reply_and_affects_no_other_request() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    let response = client.request(post("panic")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (500, "internal_error"));
    assert_eq!(client.request(post("a")).await.json()["verdict"], "fresh", "the same connection");
    assert_eq!(server.gate.events_in_flight(), 0);
    assert_eq!(server.gate.metrics().panics.get(), 1);
    let health = client.request(get("/healthz?verbose")).await.json();
    assert_eq!(health["load"]["admit_panics_total"], 1, "{health}");
}

#[tokio::test]
async fn health_shows_no_panics_before_the_first() {
    let server = TestServer::open().await;
    let health = server.request(get("/healthz?verbose")).await.json();
    assert!(health["load"].get("admit_panics_total").is_none(), "{health}");
}

#[tokio::test]
async fn a_contract_that_panics_in_a_refusal_gets_a_general_error_reply() {
    let server = TestServer::open().await;
    let response = server.request(post("a").replace("/door", "/panicking")).await;
    assert_eq!((response.status, response.general_code().as_str()), (500, "internal_error"));
    assert_eq!(server.request(post("a")).await.status, 200);
}

#[tokio::test]
async fn a_reply_that_times_out_is_outcome_unknown_and_the_event_is_still_stored() {
    let server = TestServer::limited(|limits| {
        limits.answer_ms_max = 40;
        limits.body_read_ms_max = 30;
    })
    .await;
    server.ledger.hold();
    let mut client = server.client().await;
    let response = client.request(post("a")).await;
    assert_eq!((response.status, response.contract_code().as_str()), (503, "outcome_unknown"));
    assert!(response.header("retry-after").is_some());
    assert_eq!(server.gate.events_in_flight(), 1, "the event is still in flight");
    server.ledger.release();
    wait_until(|| server.counted("fresh") == 1 && server.gate.events_in_flight() == 0).await;
    assert_eq!(
        client.request(post("a")).await.json()["verdict"],
        "duplicate",
        "the retry gets the outcome"
    );
}

#[tokio::test]
async fn an_event_whose_producer_disconnected_is_stored_and_counted() {
    let server = TestServer::open().await;
    server.ledger.hold();
    let mut client = server.client().await;
    client.send(post("a")).await;
    server.ledger.wait_for_held(1).await;
    drop(client);
    server.ledger.release();
    wait_until(|| server.counted("fresh") == 1).await;
    assert_eq!(server.request(post("a")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn a_producer_that_shuts_down_its_sending_half_still_gets_its_response() {
    let server = TestServer::open().await;
    server.ledger.hold();
    let mut client = server.client().await;
    client.send(post("a")).await;
    client.finish_sending().await;
    server.ledger.wait_for_held(1).await;
    server.ledger.release();
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    client.closed().await;
}
