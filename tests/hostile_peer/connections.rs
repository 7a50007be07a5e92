//! Connections and requests without a key must not use up the limits of authenticated principals.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::bodies::{gate, shop_sends, signed_event};
use crate::events::{configured, post, problem, receipt};
use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::machine::skip;
use crate::support::ws::{Frame, PING, PONG, Socket};
use crate::support::{TIMEOUT, wait_for};

const LOUD: (&str, &str) = ("Authorization", "Bearer loud-key-long-enough");
const SHOP: (&str, &str) = ("Authorization", "Bearer shop-key-long-enough");
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

#[test]
fn the_openapi_document_has_an_etag_and_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for path in ["/openapi.json", "/"] {
        let whole = gate.client().send("GET", path, &[], b"").unwrap();
        let tag = whole.header("etag").expect("an etag").to_owned();
        assert!(
            whole.status == 200 && tag.starts_with('"'),
            "{path}: expected a strong etag: {tag}"
        );
        assert_eq!(whole.header("content-type"), Some("application/json"));
        let again = gate.client().send("GET", path, &[], b"").unwrap();
        assert_eq!((again.header("etag"), &again.body), (Some(&*tag), &whole.body), "{path}");
        let known = send_raw(&gate, "GET", path, &tag);
        assert!(known.starts_with("HTTP/1.1 304 ") && known.contains(&tag), "{path}: {known}");
        assert!(known.ends_with("\r\n\r\n"), "a 304 response has no body: {known}");
        let head = send_raw(&gate, "HEAD", path, "\"another\"");
        let length = format!("content-length: {}\r\n", whole.body.len());
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(&tag), "{path}: {head}");
        assert!(head.contains(&length) && head.ends_with("\r\n\r\n"), "{path}: {head}");
    }
}

/// Sends a request without a body; returns the raw response.
fn send_raw(gate: &Gate, method: &str, path: &str, tag: &str) -> String {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn every_response_forbids_content_sniffing() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "");
    for (method, path) in [
        ("GET", "/livez"),
        ("GET", "/nowhere"),
        ("GET", "/v1/admissions"),
        ("POST", "/v1/events/orders"),
        ("GET", "/openapi.json"),
    ] {
        let response = gate.client().send(method, path, &[], b"").unwrap();
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
    }
    let read = gate.client().send("GET", "/livez", &[], b"").unwrap();
    let policy = read.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(read.header("cross-origin-resource-policy"), Some("same-origin"));
    let response = shop_sends(&gate, "a", 1);
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn unsigned_requests_do_not_use_the_rate_limit_of_the_webhook_principal() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "requests_per_second_max = 2\n");
    let mut stranger = gate.client();
    let mut seen = Vec::new();
    for _ in 0..60 {
        let response = stranger.send("POST", "/v1/events/hooks", &[], b"{}").unwrap();
        assert!(matches!(response.status, 401 | 429), "{response:?}");
        seen.push(response.status);
    }
    assert!(seen.contains(&401) && seen.contains(&429), "expected a separate rate limit: {seen:?}");
    receipt(&shop_sends(&gate, "with-a-key", 1));
    receipt(&signed_event(&gate));
    let counted = (0..50).any(|_| signed_event(&gate).status == 429);
    assert!(counted, "signed requests count for their principal");
}

#[test]
fn a_batch_counts_as_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "requests_per_second_max = 5\n");
    let batch = |first: usize| {
        let line = |number| format!("{{\"idempotency_key\":\"line-{number}\"}}\n");
        (first..first + 500).map(line).collect::<String>()
    };
    let send = |body: &str, key: &str| {
        post(&gate, "/v1/events/orders", &[LOUD, LINES, ("Idempotency-Key", key)], body)
    };
    let response = send(&batch(0), "first");
    assert!(response.status < 300, "a batch larger than the burst is accepted: {response:?}");
    // The excess is 495 events, which takes 99 seconds at the limit.
    let refused = send(&batch(500), "second");
    problem(&refused, 429, "rate_limited");
    let hint: u32 = refused.header("retry-after").expect("a retry hint").parse().expect("a number");
    assert!((80..=110).contains(&hint), "the retry hint must cover the excess: {hint} s");
    problem(
        &post(&gate, "/v1/events/orders", &[LOUD, ("Idempotency-Key", "one")], "{}"),
        429,
        "rate_limited",
    );
    receipt(&shop_sends(&gate, "shop-event", 1));
}

/// An idle connection after one public request.
fn idle(gate: &Gate) -> Client {
    let mut client = gate.client();
    assert_eq!(client.send("GET", "/livez", &[], b"").expect("a response").status, 200);
    client
}

fn producer(client: &mut Client, key: &str) -> std::io::Result<u16> {
    let headers = [SHOP, ("Idempotency-Key", key)];
    let response = client.send("POST", "/v1/events/orders", &headers, b"{}")?;
    Ok(response.status)
}

#[test]
fn idle_connections_without_a_key_do_not_keep_the_port_closed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "connections_max = 8\nunauthenticated_idle_ms_max = 500\n";
    let gate = gate(folder.path(), limits);
    let mut known = gate.client();
    wait_for("the first producer is accepted", TIMEOUT, || {
        (producer(&mut known, "known").ok()? == 201).then_some(())
    });
    let strangers: Vec<Client> = (0..7).map(|_| idle(&gate)).collect();
    wait_for("another producer is accepted", TIMEOUT, || {
        (producer(&mut gate.client(), "other").ok()? == 201).then_some(())
    });
    strangers.into_iter().for_each(Client::wait_for_end);
    // Idle for longer than the strangers, but authenticated: still the same connection.
    assert_eq!(producer(&mut known, "known").expect("the connection is still open"), 201);
}

#[test]
fn connections_without_a_key_are_closed_for_a_new_connection() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "connections_max = 8\nunauthenticated_idle_ms_max = 60000\n");
    let mut known = gate.client();
    assert_eq!(producer(&mut known, "known").expect("a response"), 201);
    let mut strangers: Vec<Client> = (0..20).map(|_| idle(&gate)).collect();
    assert_eq!(
        producer(&mut gate.client(), "other").expect("a response"),
        201,
        "accepted at the first attempt"
    );
    assert_eq!(producer(&mut known, "known").expect("the connection is still open"), 201);
    strangers.drain(..12).for_each(Client::wait_for_end);
}

#[test]
fn one_principal_cannot_use_up_the_connections_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "connections_max = 8\n");
    let open = || {
        let mut client = gate.client();
        let headers = [LOUD, ("Idempotency-Key", "loud")];
        let response =
            client.send("POST", "/v1/events/orders", &headers, b"{}").expect("a response");
        assert_eq!(
            response.status, 201,
            "the oldest idle connection should be closed for this one: {response:?}"
        );
        client
    };
    let mut held: Vec<Client> = (0..12).map(|_| open()).collect();
    assert_eq!(producer(&mut gate.client(), "shop").expect("a response"), 201);
    held.drain(..8).for_each(Client::wait_for_end);
}

/// Connects from the given source address; `None` if the machine does not have it.
fn client_at(source: &str, gate: &Gate) -> Option<TcpStream> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let source: SocketAddr = source.parse().expect("an address");
    let connecting = async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(source).ok()?;
        let stream = socket.connect(gate.address()).await.expect("the gate listens");
        Some(stream.into_std().expect("a std socket"))
    };
    let stream = runtime.block_on(connecting)?;
    stream.set_nonblocking(false).expect("a blocking socket");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a read timeout");
    Some(stream)
}

#[test]
fn unauthenticated_connections_are_limited_per_address() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "connections_max = 100\nunauthenticated_connections_per_address_max = 10\n\
                  unauthenticated_idle_ms_max = 60000\n";
    let gate = gate(folder.path(), limits);
    // Authenticated connections do not count.
    let mut known: Vec<Client> = (0..15).map(|_| gate.client()).collect();
    for client in &mut known {
        wait_for("the producer is accepted", TIMEOUT, || {
            (producer(client, "known").ok()? == 201).then_some(())
        });
    }
    let mut strangers: Vec<Client> = Vec::new();
    wait_for("the limit of the address is reached", TIMEOUT, || {
        let mut client = gate.client();
        let response = client.send("GET", "/livez", &[], b"").expect("a response");
        strangers.push(client);
        (response.header("connection") == Some("close")).then_some(())
    });
    assert!((10..=12).contains(&strangers.len()), "{}", strangers.len());
    assert_eq!(producer(&mut gate.client(), "late").expect("a response"), 503);
    for client in &mut known {
        assert_eq!(producer(client, "known").expect("the connection is still open"), 201);
    }
    match client_at("127.0.0.2:0", &gate) {
        Some(stream) => {
            let response = Client::over(gate.address(), stream).send(
                "POST",
                "/v1/events/orders",
                &[SHOP, ("Idempotency-Key", "elsewhere")],
                b"{}",
            );
            assert_eq!(response.expect("a response").status, 201);
        }
        None => skip("this machine has no second loopback address"),
    }
    drop(strangers);
    wait_for("a new connection is accepted again", TIMEOUT, || {
        (producer(&mut gate.client(), "late").ok()? == 201).then_some(())
    });
}

/// A gate with a short idle timeout for unauthenticated connections.
fn launch_fast(data: &Path) -> Launch {
    Launch::on(data).variable("ADMIT_LIMITS__UNAUTHENTICATED_IDLE_MS_MAX", "400")
}

#[test]
fn without_principals_idle_connections_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = launch_fast(folder.path()).start();
    let mut client = idle(&gate);
    sleep(Duration::from_millis(900));
    assert_eq!(client.send("GET", "/livez", &[], b"").expect("the same connection").status, 200);
}

#[test]
fn frequent_probes_keep_their_connection_open() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(
        folder.path(),
        "[limits]\nunauthenticated_idle_ms_max = 2000\n\
         [[principals]]\nname = \"shop\"\nkeys = [\"shop-key-long-enough\"]\n",
    );
    let mut client = idle(&gate);
    for _ in 0..12 {
        sleep(Duration::from_millis(250));
        let response = client.send("GET", "/readyz", &[], b"").expect("the same connection");
        assert_eq!(response.status, 200);
    }
}

#[test]
fn a_pong_repeats_the_ping_payload_even_if_it_looks_like_an_http_response() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut socket = Socket::open(gate.address());
    let payload = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    socket.send(PING, payload).unwrap();
    assert_eq!(socket.read().unwrap(), Frame { first: PONG, payload: payload.to_vec() });
}
