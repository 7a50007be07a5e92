//! Shutdown: a draining gate refuses new requests and finishes accepted ones.

use tokio::net::TcpStream;

use crate::client::{get, post};
use crate::test_server::{TestServer, wait_until};

#[tokio::test]
async fn a_draining_gate_keeps_listening_and_finishes_accepted_events() {
    let server = TestServer::open().await;
    server.ledger.hold();
    let mut accepted = server.client().await;
    accepted.send(post("a")).await;
    server.ledger.wait_for_held(1).await;
    let mut idle = server.client().await;
    assert_eq!(idle.request(get("/readyz")).await.status, 200);

    server.shutdown.cancel();
    wait_until(|| server.gate.is_draining()).await;
    let mut late = server.client().await;
    for client in [&mut late, &mut idle] {
        let response = client.request(post("b")).await;
        assert_eq!((response.status, response.contract_code().as_str()), (503, "draining"));
        assert!(response.header("retry-after").is_some());
        assert_eq!(response.header("connection"), Some("close"));
        client.closed().await;
    }
    let ready = server.request(get("/readyz")).await;
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (503, Some(false)));
    assert_eq!(ready.json()["reasons"][0], "the gate is shutting down");
    assert!(ready.header("retry-after").is_some());

    server.ledger.release();
    assert_eq!(accepted.read_response().await.json()["verdict"], "fresh");
    accepted.closed().await;
    let address = server.address;
    assert_eq!(server.stopped().await.unfinished, 0);
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn an_idle_gate_stops_at_once_and_closes_idle_connections() {
    let server = TestServer::open().await;
    let mut idle = server.client().await;
    assert_eq!(idle.request(post("a")).await.status, 200);
    let _silent = server.client().await;
    server.shutdown.cancel();
    idle.closed().await;
    assert_eq!(server.stopped().await.unfinished, 0);
}

#[tokio::test]
async fn a_ledger_that_hangs_does_not_block_shutdown_forever() {
    let server = TestServer::limited(|limits| limits.drain_ms_max = 50).await;
    server.ledger.hold();
    let mut client = server.client().await;
    client.send(post("a")).await;
    server.ledger.wait_for_held(1).await;
    server.shutdown.cancel();
    assert!(server.stopped().await.unfinished > 0);
}

#[tokio::test]
async fn shutdown_waits_for_events_whose_replies_timed_out() {
    let server = TestServer::limited(|limits| {
        limits.answer_ms_max = 40;
        limits.body_read_ms_max = 30;
    })
    .await;
    server.ledger.hold();
    let response = server.request(post("a")).await;
    assert_eq!(response.contract_code(), "outcome_unknown");
    server.shutdown.cancel();
    wait_until(|| server.gate.is_draining()).await;
    assert_eq!(server.request(post("b")).await.contract_code(), "draining", "still draining");
    server.ledger.release();
    let gate = std::sync::Arc::clone(&server.gate);
    assert_eq!(server.stopped().await.unfinished, 0);
    assert_eq!(gate.events_in_flight(), 0);
}
