//! Malicious or broken clients: each gets an error reply or a closed connection, without effect on others.

use std::time::{Duration, Instant};

use admit_core::Code;

use crate::client::{get, post};
use crate::test_server::{TestServer, wait_until};

/// Sends one byte every few milliseconds, so that a timeout per byte would never expire.
async fn drip(client: &mut crate::client::Client, bytes: &str) {
    for byte in bytes.bytes() {
        if !client.send_until_closed(&[byte]).await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_dripping_head_times_out() {
    let server = TestServer::limited(|limits| limits.header_read_ms_max = 100).await;
    let mut client = server.client().await;
    let begun = Instant::now();
    drip(&mut client, &format!("POST /door HTTP/1.1\r\nx-slow: {}", "x".repeat(60))).await;
    assert_eq!(client.read_response().await.general_code(), "request_timeout");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    wait_until(|| server.gate.metrics().connections_open() == 0).await;
    assert_eq!(server.request(post("a")).await.status, 200);
}

#[tokio::test]
async fn a_dripping_body_times_out() {
    let server = TestServer::limited(|limits| limits.body_read_ms_max = 100).await;
    let mut client = server.client().await;
    client
        .send(
            "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 1000\r\n\r\n",
        )
        .await;
    drip(&mut client, &"x".repeat(40)).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.contract_code().as_str()), (408, "request_timeout"));
    wait_until(|| server.gate.events_in_flight() == 0).await;
    assert_eq!(server.refused(Code::RequestTimeout), 1);
}

#[tokio::test]
async fn garbage_after_a_valid_request_does_not_affect_it() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send(post("a") + "\u{1}\u{2} what is this\r\n\r\n").await;
    assert_eq!(client.read_response().await.json()["verdict"], "fresh");
    let response = client.read_response().await;
    assert_eq!((response.status, response.general_code().as_str()), (400, "invalid_request"));
    client.closed().await;
    assert_eq!(server.request(post("a")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn an_http_1_0_request_is_served_and_closed() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    let request = post("a").replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(client.request(request).await.json()["verdict"], "fresh");
    client.closed().await;
}

#[tokio::test]
async fn an_absolute_request_target_must_name_a_loopback_host() {
    let server = TestServer::open().await;
    let absolute =
        |host: &str| post("a").replace("POST /door", &format!("POST http://{host}/door"));
    assert_eq!(server.request(absolute("localhost")).await.json()["verdict"], "fresh");
    let evil = absolute("evil.test").replace("host: localhost", "host: evil.test");
    let response = server.request(evil).await;
    assert_eq!((response.status, response.contract_code().as_str()), (403, "forbidden"));
    let two_hosts = post("a").replace("host: localhost", "host: localhost\r\nhost: evil.test");
    assert_eq!(server.request(two_hosts).await.contract_code(), "forbidden");
}

#[tokio::test]
async fn the_gate_is_not_a_proxy() {
    let server = TestServer::open().await;
    for request in [
        "CONNECT example.test:443 HTTP/1.1\r\nhost: example.test:443\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "TRACE / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let response = server.request(request).await;
        assert!((400..500).contains(&response.status), "{request}: {response:?}");
        response.general_code();
    }
}

#[tokio::test]
async fn conflicting_body_lengths_cannot_smuggle_a_request() {
    let server = TestServer::open().await;
    let two = "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 1\r\ncontent-length: 40\r\n\r\na";
    let mut client = server.client().await;
    assert_eq!(client.request(two).await.status, 400);
    client.closed().await;
    let both = "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n";
    let mut client = server.client().await;
    client.send(both.to_owned() + &get("/livez")).await;
    // Either chunked encoding wins and the length is ignored, or the request is refused.
    let first = client.read_response().await;
    assert!(first.status == 400 || first.json()["verdict"] == "fresh", "{first:?}");
    assert_eq!(server.gate.events_in_flight(), 0);
}
