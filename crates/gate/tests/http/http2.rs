//! HTTP/2 on the same port, with hand-written frames.

use crate::client::Client;
use crate::test_server::TestServer;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Encodes a header as a literal with a new name, not indexed, not compressed.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        // Seven bits of the length, and the rest of it in bytes of seven bits.
        match text.len().checked_sub(127) {
            None => field.push(u8::try_from(text.len()).expect("a short text")),
            Some(mut rest) => {
                field.push(127);
                while rest >= 128 {
                    field.push(u8::try_from(rest % 128).expect("seven bits") | 128);
                    rest /= 128;
                }
                field.push(u8::try_from(rest).expect("seven bits"));
            }
        }
        field.extend_from_slice(text.as_bytes());
    }
    field
}

/// Encodes the head of a POST with additional headers.
fn block(path: &str, headers: &[(String, String)]) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ];
    let own = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    fields.into_iter().chain(own).flat_map(|(name, value)| literal(name, value)).collect()
}

fn post(stream: u32, body: &str) -> Vec<u8> {
    let mut request = frame(HEADERS, END_HEADERS, stream, &block("/door", &[]));
    request.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    request
}

/// Reads the next response body on any stream.
async fn read_response(client: &mut Client) -> (u32, String) {
    let mut body = Vec::new();
    loop {
        let head = client.read_exact(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = client.read_exact(usize::try_from(length).expect("it fits")).await;
        if head[3] == DATA {
            body.extend_from_slice(&payload);
            if head[4] & END_STREAM != 0 {
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                return (stream, String::from_utf8(body).expect("text"));
            }
        }
    }
}

#[tokio::test]
async fn submissions_work_over_http_2() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    client.send(post(1, "a")).await;
    let (stream, body) = read_response(&mut client).await;
    assert_eq!((stream, body.contains(r#""verdict":"fresh""#)), (1, true), "{body}");
    client.send(post(3, "a")).await;
    let (stream, body) = read_response(&mut client).await;
    assert_eq!((stream, body.contains(r#""verdict":"duplicate""#)), (3, true), "{body}");
    client.send(post(5, "panic")).await;
    let (_, body) = read_response(&mut client).await;
    assert!(body.contains(r#""code":"internal_error""#), "{body}");
}

#[tokio::test]
async fn the_idle_timeout_applies_to_http_2_and_the_head_timeout_does_not() {
    let server = TestServer::limited(|limits| {
        limits.header_read_ms_max = 20;
        limits.idle_ms_max = 150;
    })
    .await;
    let begun = std::time::Instant::now();
    let mut client = server.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    server.request(crate::client::post("a")).await;
    crate::test_server::wait_until(|| server.gate.metrics().connections_open() == 0).await;
    assert!(begun.elapsed().as_millis() >= 150, "{:?}", begun.elapsed());
}

/// Reads one response and the number of RST_STREAM frames after it.
async fn response_and_resets(client: &mut Client) -> (String, usize) {
    let (_, body) = read_response(client).await;
    // The reply to a ping comes after all earlier frames.
    client.send(frame(PING, 0, 0, &[7; 8])).await;
    let mut resets = 0;
    loop {
        let head = client.read_exact(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let payload = client.read_exact(usize::try_from(length).expect("it fits")).await;
        resets += usize::from(head[3] == RST_STREAM);
        if head[3] == PING && payload == [7; 8] {
            return (body, resets);
        }
    }
}

#[tokio::test]
async fn the_error_for_an_unknown_path_comes_after_the_body_without_a_reset() {
    let server = TestServer::open().await;
    let mut client = server.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let nowhere = block("/nowhere", &[]);
    client.send(frame(HEADERS, END_HEADERS, 1, &nowhere)).await;
    // No response while the producer is still sending: some treat that as a failure.
    client.send(frame(PING, 0, 0, &[1; 8])).await;
    while !next_is_pong(&mut client, 1).await {}
    client.send(frame(DATA, END_STREAM, 1, b"a body without a reader")).await;
    let (body, resets) = response_and_resets(&mut client).await;
    assert!(body.contains(r#""code":"not_found""#), "{body}");
    assert_eq!(resets, 0, "the stream ended without a reset");
}

/// Whether the next frame is the reply to the ping `mark`. A response must not come before it.
async fn next_is_pong(client: &mut Client, mark: u8) -> bool {
    let head = client.read_exact(9).await;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let payload = client.read_exact(usize::try_from(length).expect("it fits")).await;
    assert!(
        !matches!(head[3], DATA | HEADERS | RST_STREAM),
        "a response before the body: {head:?}"
    );
    head[3] == PING && payload == [mark; 8]
}

#[tokio::test]
async fn a_head_that_is_too_large_gets_an_error_body_over_http_2() {
    let server = TestServer::open().await;
    let many: Vec<(String, String)> =
        (0..120).map(|number| (format!("x-{number}"), "1".to_owned())).collect();
    let large: Vec<(String, String)> =
        (0..80).map(|number| (format!("x-{number}"), "v".repeat(120 * 4))).collect();
    for (what, headers) in [("many", many), ("large", large)] {
        let mut client = server.client().await;
        client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
        let block = block("/door", &headers);
        let (first, rest) = block.split_at(block.len().min(16_000));
        let flags = if rest.is_empty() { END_HEADERS } else { 0 };
        client.send(frame(HEADERS, flags, 1, first)).await;
        let mut pieces = rest.chunks(16_000).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            client.send(frame(CONTINUATION, flags, 1, piece)).await;
        }
        client.send(frame(DATA, END_STREAM, 1, b"a")).await;
        let (body, resets) = response_and_resets(&mut client).await;
        assert!(body.contains(r#""code":"invalid_request""#), "{what}: {body}");
        assert!(body.contains("the headers exceed"), "{what}: {body}");
        assert_eq!(resets, 0, "{what}");
    }
}

#[tokio::test]
async fn the_limit_of_unauthenticated_requests_applies_to_neither_keys_nor_unknown_paths() {
    let arena = r#"{"name":"arena","keys":["a-key"]}"#;
    let server = TestServer::with(admit_gate::Limits::default(), &[arena]).await;
    let mut client = server.client().await;
    client.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let nowhere = block("/nowhere", &[]);
    for stream in 0..33 {
        client.send(frame(HEADERS, END_HEADERS, 2 * stream + 1, &nowhere)).await;
    }
    let (_, body) = read_response(&mut client).await;
    assert!(body.contains(r#""code":"not_found""#), "{body}");
    let mut known = server.client().await;
    known.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let key = [("authorization".to_owned(), "Bearer a-key".to_owned())];
    for stream in 0..60 {
        known.send(frame(HEADERS, END_HEADERS, 2 * stream + 1, &block("/door", &key))).await;
    }
    crate::test_server::wait_until(|| server.gate.events_in_flight() == 60).await;
}
