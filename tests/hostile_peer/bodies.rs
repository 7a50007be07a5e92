//! Bodies that never end, or that are announced and never sent. They count against the sender's share
//! of the body limit, or without a key against a small shared pool.

use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;

use crate::events::{configured, post, problem, receipt};
use crate::support::gate::Gate;
use crate::support::http::HttpResponse;
use crate::support::{TIMEOUT, wait_for};

const LOUD: (&str, &str) = ("Authorization", "Bearer loud-key-long-enough");
pub(super) const SHOP: (&str, &str) = ("Authorization", "Bearer shop-key-long-enough");

/// Sample of the Standard Webhooks libraries; the configured tolerance accepts its old timestamp.
const SIGNED: [(&str, &str); 3] = [
    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
    ("webhook-timestamp", "1614265330"),
    ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
];
const SIGNED_BODY: &str = r#"{"test": 2432232314}"#;

/// Limits with room for four bodies of maximum size, two per principal, and long timeouts.
pub(super) const LIMITS: &str = "body_bytes_max = 1048576\nbody_bytes_in_flight_max = 4194304\n\
    unauthenticated_body_bytes_in_flight_max = 1048576\nbody_read_ms_max = 60000\n\
    answer_ms_max = 70000\n";

/// A gate with three producers and a stream that also accepts signed requests without a key.
pub(super) fn gate(folder: &Path, limits: &str) -> Gate {
    configured(
        folder,
        &format!(
            "[limits]\n{limits}\n[[doors.events]]\nname = \"orders\"\n\
             [[doors.events]]\nname = \"hooks\"\nwebhook_tolerance_seconds = 4294967295\n\
             webhook_secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n\
             webhook_principal = \"shop\"\n\
             [[principals]]\nname = \"loud\"\nkeys = [\"loud-key-long-enough\"]\n\
             [[principals]]\nname = \"brash\"\nkeys = [\"brash-key-long-enough\"]\n\
             [[principals]]\nname = \"shop\"\nkeys = [\"shop-key-long-enough\"]\n"
        ),
    )
}

/// Sends an event of the well-behaved principal.
pub(super) fn shop_sends(gate: &Gate, key: &str, bytes: usize) -> HttpResponse {
    let body = format!("{{\"note\":\"{}\"}}", "x".repeat(bytes));
    post(gate, "/v1/events/orders", &[SHOP, ("Idempotency-Key", key)], &body)
}

pub(super) fn signed_event(gate: &Gate) -> HttpResponse {
    post(gate, "/v1/events/hooks", &SIGNED, SIGNED_BODY)
}

/// A request with an unfinished body.
pub(super) struct PartialRequest(BufReader<TcpStream>);

impl PartialRequest {
    /// Sends a head; returns the status of the response, 100 if the gate is ready for the body.
    pub(super) fn begin(gate: &Gate, path: &str, headers: &str) -> (Self, u16) {
        let stream = TcpStream::connect(gate.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut request = Self(BufReader::new(stream));
        request.write(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Idempotency-Key: unfinished\r\nExpect: 100-continue\r\n{headers}\r\n\r\n"
        ));
        let status = request.status();
        (request, status)
    }

    fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Writes part of a body; the gate may close the connection meanwhile.
    pub(super) fn write_until_refused(&mut self, body: &[u8]) {
        if let Err(error) = self.0.get_mut().write_all(body) {
            let kind = error.kind();
            assert!(
                matches!(kind, ConnectionReset | BrokenPipe),
                "unexpected write error: {error}"
            );
        }
    }

    /// Reads the status of the next response; skips the rest of its head.
    fn status(&mut self) -> u16 {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {line:?}"));
        while line != "\r\n" {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "incomplete response head");
        }
        status
    }
}

const CHUNKED: &str = "Transfer-Encoding: chunked";

/// Prepends the key of the principal `name` to `headers`.
pub(super) fn with_key_of(name: &str, headers: &str) -> String {
    format!("Authorization: Bearer {name}-key-long-enough\r\n{headers}")
}

fn with_key(headers: &str) -> String {
    with_key_of("loud", headers)
}

#[test]
fn chunked_bodies_that_never_end_do_not_affect_other_principals() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let held: Vec<PartialRequest> = (0..40)
        .map(|number| {
            let (mut request, status) =
                PartialRequest::begin(&gate, "/v1/events/orders", &with_key(CHUNKED));
            assert_eq!(status, 100, "body {number} is accepted");
            request.write("1\r\n{\r\n");
            request
        })
        .collect();
    receipt(&shop_sends(&gate, "large", 900_000));
    drop(held);
}

#[test]
fn a_principal_that_fills_its_share_is_refused_and_others_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let announced = with_key("Content-Length: 1048576");
    let begin = || PartialRequest::begin(&gate, "/v1/events/orders", &announced);
    let mut held: Vec<_> = (0..2).map(|_| begin()).collect();
    for (request, status) in &mut held {
        assert_eq!(*status, 100);
        request.write(&"x".repeat(1_048_575));
    }
    wait_for("a third body exceeds half of the limit", TIMEOUT, || {
        (begin().1 == 503).then_some(())
    });
    receipt(&shop_sends(&gate, "shop-event", 900_000));
    drop(held);
    wait_for("the share is free again", TIMEOUT, || (begin().1 == 100).then_some(()));
}

#[test]
fn bodies_without_a_key_have_a_pool_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let begin = |headers| PartialRequest::begin(&gate, "/v1/events/hooks", headers);
    let held: Vec<_> = (0..40).map(|_| begin(CHUNKED)).collect();
    assert!(held.iter().all(|(_, status)| *status == 100), "no bytes of these bodies have arrived");
    let announced: Vec<_> = (0..10).map(|_| begin("Content-Length: 1048576")).collect();
    assert!(
        announced.iter().all(|(_, status)| *status == 100),
        "no bytes of these bodies have arrived"
    );
    receipt(&signed_event(&gate));
    // Only received bytes fill the pool: the second body does not fit.
    let piece = "x".repeat(700_000);
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    let first = wait_for("the pool is full", TIMEOUT, || {
        // The first to arrive fits, so both requests are new in each attempt.
        let (mut first, _) = begin(CHUNKED);
        first.write(&chunk);
        let (mut second, status) = begin(CHUNKED);
        assert_eq!(status, 100);
        second.write(&chunk);
        second.write("0\r\n\r\n");
        // With room in the pool the whole body is read, and refused as unsigned.
        match second.status() {
            503 => Some(first),
            401 => None,
            status => panic!("{status}"),
        }
    });
    receipt(&shop_sends(&gate, "shop-event", 900_000));
    drop((first, held, announced));
    wait_for("the pool is free again", TIMEOUT, || {
        let (mut body, _) = begin(CHUNKED);
        body.write(&chunk);
        body.write("0\r\n\r\n");
        (body.status() == 401).then_some(())
    });
}

/// Minimal HTTP/2 client.
struct Http2(TcpStream);

impl Http2 {
    fn connect(gate: &Gate) -> Self {
        let mut stream = TcpStream::connect(gate.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut connection = Self(stream);
        connection.frame(4, 0, 0, &[]);
        connection
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.0.write_all(&[&head, payload].concat()).unwrap();
    }

    /// Sends the head of a POST with a body.
    fn begin(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let usual = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/v1/events/orders"),
            (":authority", "localhost"),
            ("content-type", "application/json"),
            ("authorization", LOUD.1),
        ];
        let mut block = Vec::new();
        for (name, value) in usual.iter().chain(headers) {
            // HPACK literal with a new name, neither indexed nor compressed.
            block.push(0);
            for text in [name, value] {
                block.push(u8::try_from(text.len()).unwrap());
                block.extend_from_slice(text.as_bytes());
            }
        }
        const END_HEADERS: u8 = 4;
        self.frame(1, END_HEADERS, stream, &block);
    }
}

fn in_flight(gate: &Gate) -> u64 {
    gate.client().get("/healthz?verbose")["load"]["events_in_flight"].as_u64().unwrap()
}

#[test]
fn http_2_streams_that_announce_bodies_and_never_send_them_do_not_affect_other_principals() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), LIMITS);
    let mut unknown = Http2::connect(&gate);
    (0..200).for_each(|number| unknown.begin(2 * number + 1, &[]));
    wait_for("200 open requests", TIMEOUT, || (in_flight(&gate) == 200).then_some(()));
    let mut announced = Http2::connect(&gate);
    (0..200).for_each(|number| announced.begin(2 * number + 1, &[("content-length", "1048576")]));
    wait_for("400 open requests", TIMEOUT, || (in_flight(&gate) == 400).then_some(()));
    receipt(&shop_sends(&gate, "first", 900_000));
    drop(unknown);
    wait_for("200 requests are closed", TIMEOUT, || (in_flight(&gate) == 200).then_some(()));
    receipt(&shop_sends(&gate, "second", 900_000));
}

#[test]
fn a_full_share_is_refused_with_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), &format!("{LIMITS}events_in_flight_max = 2\n"));
    let (held, status) = PartialRequest::begin(&gate, "/v1/events/orders", &with_key(CHUNKED));
    assert_eq!(status, 100);
    let response = post(&gate, "/v1/events/orders", &[LOUD, ("Idempotency-Key", "a")], "{}");
    problem(&response, 503, "overloaded");
    assert!(response.header("retry-after").is_some());
    receipt(&shop_sends(&gate, "shop-event", 10));
    drop(held);
}
