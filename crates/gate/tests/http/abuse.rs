//! Peers that mean no good, or speak another HTTP: each gets a clear answer or a clean end, and the
//! next one is served as if nothing had been.

use std::time::{Duration, Instant};

use admit_core::Code;

use crate::client::{get, post};
use crate::world::{World, until};

/// One byte every few milliseconds, which never lets a wait for the next byte run out.
async fn drip(client: &mut crate::client::Client, bytes: &str) {
    for byte in bytes.bytes() {
        if !client.send_what_it_takes(&[byte]).await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_head_that_drips_in_is_cut_off_all_the_same() {
    let world = World::limited(|limits| limits.header_read_ms_max = 100).await;
    let mut client = world.client().await;
    let begun = Instant::now();
    drip(&mut client, &format!("POST /door HTTP/1.1\r\nx-slow: {}", "x".repeat(60))).await;
    assert_eq!(client.answer().await.general(), "request_timeout");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    until(|| world.gate.metrics().connections_open() == 0).await;
    assert_eq!(world.ask(post("a")).await.status, 200);
}

#[tokio::test]
async fn a_body_that_drips_in_is_cut_off_all_the_same() {
    let world = World::limited(|limits| limits.body_read_ms_max = 100).await;
    let mut client = world.client().await;
    client
        .send(
            "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: 1000\r\n\r\n",
        )
        .await;
    drip(&mut client, &"x".repeat(40)).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (408, "request_timeout"));
    until(|| world.gate.events_in_flight() == 0).await;
    assert_eq!(world.refused(Code::RequestTimeout), 1);
}

#[tokio::test]
async fn garbage_behind_a_good_request_spoils_only_itself() {
    let world = World::open().await;
    let mut client = world.client().await;
    client.send(post("a") + "\u{1}\u{2} what is this\r\n\r\n").await;
    assert_eq!(client.answer().await.json()["verdict"], "fresh");
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.general().as_str()), (400, "invalid_request"));
    client.closed().await;
    assert_eq!(world.ask(post("a")).await.json()["verdict"], "duplicate");
}

#[tokio::test]
async fn http_1_0_is_answered_and_closed() {
    let world = World::open().await;
    let mut client = world.client().await;
    let request = post("a").replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(client.ask(request).await.json()["verdict"], "fresh");
    client.closed().await;
}

#[tokio::test]
async fn an_absolute_address_is_this_gates_only_when_it_names_this_machine() {
    let world = World::open().await;
    let absolute =
        |host: &str| post("a").replace("POST /door", &format!("POST http://{host}/door"));
    assert_eq!(world.ask(absolute("localhost")).await.json()["verdict"], "fresh");
    let evil = absolute("evil.test").replace("host: localhost", "host: evil.test");
    let answer = world.ask(evil).await;
    assert_eq!((answer.status, answer.in_its_words().as_str()), (403, "forbidden"));
    let two_hosts = post("a").replace("host: localhost", "host: localhost\r\nhost: evil.test");
    assert_eq!(world.ask(two_hosts).await.in_its_words(), "forbidden");
}

#[tokio::test]
async fn nobody_is_connected_through_the_gate() {
    let world = World::open().await;
    for request in [
        "CONNECT example.test:443 HTTP/1.1\r\nhost: example.test:443\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "TRACE / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let answer = world.ask(request).await;
        assert!((400..500).contains(&answer.status), "{request}: {answer:?}");
        answer.general();
    }
}

#[tokio::test]
async fn two_lengths_or_a_length_and_chunks_are_no_way_to_smuggle() {
    let world = World::open().await;
    let two = "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 1\r\ncontent-length: 40\r\n\r\na";
    let mut client = world.client().await;
    assert_eq!(client.ask(two).await.status, 400);
    client.closed().await;
    let both = "POST /door HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\n";
    let mut client = world.client().await;
    client.send(both.to_owned() + &get("/livez")).await;
    // Chunks win and the length is ignored, or the request is refused; nothing in between.
    let first = client.answer().await;
    assert!(first.status == 400 || first.json()["verdict"] == "fresh", "{first:?}");
    assert_eq!(world.gate.events_in_flight(), 0);
}
