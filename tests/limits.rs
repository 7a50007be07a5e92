//! Every layer refuses an invalid request with a typed error in the body.
//!
//! The real plugin drops an event on an empty body and treats a generic JSON error as success.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::assert_reply::{PixelError, PixelReply};
use crate::support::events::match_begin;
use crate::support::gate::{Gate, Launch};
use crate::support::http::{DOOR, HttpResponse};
use crate::support::ledger;
use crate::support::{TIMEOUT, wait_for};

fn reply_to(
    gate: &Gate,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> PixelReply {
    PixelReply::read(
        &gate.client().send(method, path, headers, body).expect("response from the gate"),
    )
}

fn code(reason: PixelError) -> String {
    assert!(!reason.retryable, "{reason:?}");
    reason.code
}

#[test]
fn wrong_paths_methods_and_content_types_get_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let body = match_begin(1, "a").body();
    let body = body.as_bytes();
    for path in ["/", "/plugin", "/plugin/events/", "/plugin/event", "/v1/receipt"] {
        let status = if path == "/" { 405 } else { 404 };
        let expected = if path == "/" { "method_not_allowed" } else { "not_found" };
        assert_eq!(
            code(reply_to(&gate, "POST", path, &[], body).error(status)),
            expected,
            "{path}"
        );
    }
    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        let reason = reply_to(&gate, method, DOOR, &[], b"").error(405);
        assert_eq!(code(reason), "method_not_allowed");
    }
    let answer = gate.client().send("GET", DOOR, &[], b"").unwrap();
    assert_eq!(answer.header("allow"), Some("POST"));
    for wrong in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let reason = reply_to(&gate, "POST", DOOR, &[("Content-Type", wrong)], body).error(415);
        assert_eq!(code(reason), "unsupported_media_type", "{wrong:?}");
    }
    let reason = reply_to(&gate, "POST", DOOR, &[("Content-Encoding", "gzip")], body).error(415);
    assert_eq!(code(reason), "unsupported_media_type");
    assert!(ledger::receipts(gate.data()).is_empty(), "none of these became a submission");
}

#[test]
fn a_body_that_is_too_large_is_refused_and_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__BODY_BYTES_MAX", "4096")
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "500")
        .start();
    let mut client = gate.client();
    for bytes in [4097, 100_000, 3_000_000] {
        let reason = client.submit_bytes(&vec![b' '; bytes]).error(413);
        assert_eq!(code(reason), "body_too_large");
    }
    let announced = [("Content-Length", "99999999999999")];
    assert_eq!(code(reply_to(&gate, "POST", DOOR, &announced, b"").error(413)), "body_too_large");
    client.submit(&match_begin(1, "a")).processed();
}

#[test]
fn a_body_that_never_arrives_gets_a_timeout_error() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "300").start();
    let begun = Instant::now();
    let reason =
        reply_to(&gate, "POST", DOOR, &[("Content-Length", "500")], b"{\"envelope\":").error(408);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((reason.code.as_str(), reason.retryable), ("request_timeout", true));
}

#[test]
fn a_full_gate_refuses_events_with_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let full = Launch::on(folder.path()).variable("ADMIT_LIMITS__EVENTS_IN_FLIGHT_MAX", "1");
    let gate = full.start();
    let post = match_begin(1, "a");
    let mut inside = gate.client();
    inside.start_post(post.body().len());
    let mut client = gate.client();
    client.submit(&match_begin(2, "a")).unavailable();
    inside.finish_post(post.body().as_bytes()).processed();
    client.submit(&match_begin(2, "a")).processed();
}

#[test]
fn a_producer_over_its_rate_limit_gets_a_retry_time() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path()).variable("ADMIT_LIMITS__REQUESTS_PER_SECOND_MAX", "2");
    let gate = launch.start();
    let mut client = gate.client();
    let reply =
        (1..=50).map(|n| client.submit(&match_begin(n, "a"))).find(|reply| !reply.is_processed());
    let reason = reply.expect("fifty at once are more than two a second").error(429);
    assert_eq!((reason.code.as_str(), reason.retryable), ("rate_limited", true));
}

#[test]
fn connections_over_the_limit_are_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch::on(folder.path()).variable("ADMIT_LIMITS__CONNECTIONS_MAX", "2");
    let gate = launch.start();
    let mut first = gate.client();
    let mut second = gate.client();
    // The connections of the readiness check may take a moment to close.
    wait_for("two connections are taken", TIMEOUT, || {
        let taken = first.submit(&match_begin(1, "a")).is_accepted();
        (taken && second.submit(&match_begin(2, "a")).is_accepted()).then_some(())
    });
    gate.client().submit(&match_begin(3, "a")).unavailable();
    first.submit(&match_begin(4, "a")).processed();
    drop(second);
    wait_for("the place is free again", TIMEOUT, || {
        gate.client().submit(&match_begin(3, "a")).is_accepted().then_some(())
    });
}

#[test]
fn a_chunked_body_is_accepted_and_measured_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).variable("ADMIT_LIMITS__BODY_BYTES_MAX", "4096").start();
    let head = "POST /plugin/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = |body: &[u8]| {
        let mut bytes = head.as_bytes().to_vec();
        for piece in body.chunks(100) {
            bytes.extend(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend([piece, b"\r\n"].concat());
        }
        bytes.extend(b"0\r\n\r\n");
        PixelReply::read(&reply_to_bytes(&gate, &bytes))
    };
    chunked(match_begin(1, "a").body().as_bytes()).processed();
    assert_eq!(code(chunked(&[b' '; 5000]).error(413)), "body_too_large");
    gate.client().submit(&match_begin(1, "a")).duplicate();
}

#[test]
fn the_request_timeout_starts_with_the_first_byte_of_the_head() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__HEADER_READ_MS_MAX", "15000")
        .variable("ADMIT_LIMITS__BODY_READ_MS_MAX", "3000")
        .variable("ADMIT_LIMITS__ANSWER_MS_MAX", "20000")
        .start();
    let body = match_begin(1, "a").body();
    let length = body.len();
    let request =
        format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    let line = "POST /plugin/events HTTP/1.1\r\nHost: localhost\r\n";
    let (most, rest) = request.split_at(request.len() - 1);
    let (pause, moment) = (Duration::from_millis(3_300), Duration::from_millis(50));

    let slow = [(line, pause), (most, moment), (rest, Duration::ZERO)];
    let reason = PixelReply::read(&reply_to_pieces(&gate, &slow)).error(408);
    assert_eq!((reason.code.as_str(), reason.retryable), ("request_timeout", true));

    // A request that is complete with its head delays nothing; the next request has its own timeout.
    let next = format!("{request}{line}Connection: close\r\n{most}");
    let pieces = [(line, pause), (&next, moment), (rest, Duration::ZERO)];
    let answer = reply_to_pieces(&gate, &pieces);
    let answers = String::from_utf8(answer.body).unwrap();
    assert_eq!((answer.status, answers.matches("HTTP/1.1 200").count()), (200, 1), "{answers}");
    gate.client().submit(&match_begin(1, "a")).duplicate();
}

/// Sends raw bytes on a new connection and reads the whole response.
fn reply_to_bytes(gate: &Gate, bytes: &[u8]) -> HttpResponse {
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.write_all(bytes).unwrap();
    all_of(stream)
}

/// Like `reply_to_bytes`, with a pause after each piece.
fn reply_to_pieces(gate: &Gate, pieces: &[(&str, Duration)]) -> HttpResponse {
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    for (piece, pause) in pieces {
        // After an early reply the gate may have closed its side.
        stream.write_all(piece.as_bytes()).unwrap_or_default();
        std::thread::sleep(*pause);
    }
    all_of(stream)
}

/// Reads to the end; everything after the first head is its body.
fn all_of(mut stream: TcpStream) -> HttpResponse {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut text = Vec::new();
    // A reset after the reply does not invalidate it.
    stream.read_to_end(&mut text).unwrap_or_default();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    HttpResponse { status, headers, body: body.as_bytes().to_vec() }
}

#[test]
fn invalid_request_heads_get_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path())
        .variable("ADMIT_LIMITS__HEADER_READ_MS_MAX", "300")
        .variable("ADMIT_LIMITS__HEADERS_BYTES_MAX", "8192")
        .start();
    let long =
        format!("POST {DOOR} HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(50_000));
    let unfinished = format!("POST {DOOR} HTTP/1.1\r\nHost: localhost\r\n");
    for bytes in [
        &b"nonsense\r\n\r\n"[..],
        b"POST /plugin/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
        b"POST /plugin/events HTTP/1.1\r\nno colon here\r\n\r\n",
        long.as_bytes(),
        unfinished.as_bytes(),
    ] {
        let answer = reply_to_bytes(&gate, bytes);
        let PixelReply::Error(status, reason) = PixelReply::read(&answer) else {
            panic!("{answer:?}")
        };
        assert!((400..500).contains(&status), "{status} {reason:?}");
    }
    gate.client().submit(&match_begin(1, "a")).processed();
}
