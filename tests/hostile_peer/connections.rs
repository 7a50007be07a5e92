//! Connections and requests of peers without a key: they take nothing from those that have one.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::bodies::{gate, shop_sends, signed_event};
use crate::events::{configured, post, problem, receipt};
use crate::support::gate::{Gate, Launch};
use crate::support::http::Client;
use crate::support::ws::{Frame, PING, PONG, Socket};
use crate::support::{SOON, until};

const LOUD: (&str, &str) = ("Authorization", "Bearer loud-key-long-enough");
const SHOP: (&str, &str) = ("Authorization", "Bearer shop-key-long-enough");
const LINES: (&str, &str) = ("Content-Type", "application/x-ndjson");

#[test]
fn the_description_is_sent_with_a_tag_and_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    for path in ["/openapi.json", "/"] {
        let whole = gate.client().send("GET", path, &[], b"").unwrap();
        let tag = whole.header("etag").expect("a tag").to_owned();
        assert!(whole.status == 200 && tag.starts_with('"'), "{path}: a strong tag: {tag}");
        assert_eq!(whole.header("content-type"), Some("application/json"));
        let again = gate.client().send("GET", path, &[], b"").unwrap();
        assert_eq!((again.header("etag"), &again.body), (Some(&*tag), &whole.body), "{path}");
        let known = raw(&gate, "GET", path, &tag);
        assert!(known.starts_with("HTTP/1.1 304 ") && known.contains(&tag), "{path}: {known}");
        assert!(known.ends_with("\r\n\r\n"), "no body: {known}");
        let head = raw(&gate, "HEAD", path, "\"another\"");
        let length = format!("content-length: {}\r\n", whole.body.len());
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(&tag), "{path}: {head}");
        assert!(head.contains(&length) && head.ends_with("\r\n\r\n"), "{path}: {head}");
    }
}

/// All that comes back to a request without a body.
fn raw(gate: &Gate, method: &str, path: &str, tag: &str) -> String {
    use std::io::Write as _;
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
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
fn every_answer_forbids_a_browser_to_guess_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "");
    for (method, path) in [
        ("GET", "/livez"),
        ("GET", "/nowhere"),
        ("GET", "/v1/admissions"),
        ("POST", "/v1/events/orders"),
        ("GET", "/openapi.json"),
    ] {
        let answer = gate.client().send(method, path, &[], b"").unwrap();
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
    }
    let read = gate.client().send("GET", "/livez", &[], b"").unwrap();
    let policy = read.header("content-security-policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert_eq!(read.header("cross-origin-resource-policy"), Some("same-origin"));
    let answer = shop_sends(&gate, "a", 1);
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn unsigned_requests_do_not_spend_the_rate_of_the_principal_they_would_be_of() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "requests_per_second_max = 2\n");
    let mut stranger = gate.client();
    let mut seen = Vec::new();
    for _ in 0..60 {
        let answer = stranger.send("POST", "/v1/events/hooks", &[], b"{}").unwrap();
        assert!(matches!(answer.status, 401 | 429), "{answer:?}");
        seen.push(answer.status);
    }
    assert!(seen.contains(&401) && seen.contains(&429), "a bucket of their own: {seen:?}");
    receipt(&shop_sends(&gate, "with-a-key", 1));
    receipt(&signed_event(&gate));
    let counted = (0..50).any(|_| signed_event(&gate).status == 429);
    assert!(counted, "what is signed counts for its principal");
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
    let answer = send(&batch(0), "first");
    assert!(answer.status < 300, "a batch larger than a burst is let in: {answer:?}");
    // It owes 495 events, which is 99 seconds.
    let refused = send(&batch(500), "second");
    problem(&refused, 429, "rate_limited");
    let hint: u32 = refused.header("retry-after").expect("a hint").parse().expect("a number");
    assert!((80..=110).contains(&hint), "not before the debt is paid: {hint} s");
    problem(
        &post(&gate, "/v1/events/orders", &[LOUD, ("Idempotency-Key", "one")], "{}"),
        429,
        "rate_limited",
    );
    receipt(&shop_sends(&gate, "beside", 1));
}

/// A connection that has asked for something public and says nothing more.
fn idle(gate: &Gate) -> Client {
    let mut client = gate.client();
    assert_eq!(client.send("GET", "/livez", &[], b"").expect("an answer").status, 200);
    client
}

fn producer(client: &mut Client, key: &str) -> std::io::Result<u16> {
    let headers = [SHOP, ("Idempotency-Key", key)];
    let answer = client.send("POST", "/v1/events/orders", &headers, b"{}")?;
    Ok(answer.status)
}

#[test]
fn idle_connections_without_a_key_do_not_keep_the_port_closed() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "connections_max = 8\nunauthenticated_idle_ms_max = 500\n";
    let gate = gate(folder.path(), limits);
    let mut known = gate.client();
    until("the first producer is in", SOON, || {
        (producer(&mut known, "known").ok()? == 201).then_some(())
    });
    let strangers: Vec<Client> = (0..7).map(|_| idle(&gate)).collect();
    until("another producer finds a place", SOON, || {
        (producer(&mut gate.client(), "other").ok()? == 201).then_some(())
    });
    strangers.into_iter().for_each(Client::wait_for_end);
    // It has been idle for longer than they have, and is the same connection.
    assert_eq!(producer(&mut known, "known").expect("it is still open"), 201);
}

#[test]
fn connections_without_a_key_make_room_for_one_that_may_have_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "connections_max = 8\nunauthenticated_idle_ms_max = 60000\n");
    let mut known = gate.client();
    assert_eq!(producer(&mut known, "known").expect("an answer"), 201);
    let mut strangers: Vec<Client> = (0..20).map(|_| idle(&gate)).collect();
    assert_eq!(producer(&mut gate.client(), "other").expect("an answer"), 201, "at the first try");
    assert_eq!(producer(&mut known, "known").expect("it is still open"), 201);
    strangers.drain(..12).for_each(Client::wait_for_end);
}

#[test]
fn one_principal_does_not_take_the_connections_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let gate = gate(folder.path(), "connections_max = 8\n");
    let open = || {
        let mut client = gate.client();
        let headers = [LOUD, ("Idempotency-Key", "loud")];
        let answer = client.send("POST", "/v1/events/orders", &headers, b"{}").expect("an answer");
        assert_eq!(answer.status, 201, "the oldest idle one makes room: {answer:?}");
        client
    };
    let mut held: Vec<Client> = (0..12).map(|_| open()).collect();
    assert_eq!(producer(&mut gate.client(), "shop").expect("an answer"), 201);
    held.drain(..8).for_each(Client::wait_for_end);
}

/// A client at an address of its own.
fn client_at(source: &str, gate: &Gate) -> Option<TcpStream> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let source: SocketAddr = source.parse().expect("an address");
    let connecting = async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(source).ok()?;
        let stream = socket.connect(gate.address()).await.expect("the gate listens");
        Some(stream.into_std().expect("a socket of the system"))
    };
    let stream = runtime.block_on(connecting)?;
    stream.set_nonblocking(false).expect("a socket that waits");
    stream.set_read_timeout(Some(SOON)).expect("a time limit");
    Some(stream)
}

#[test]
fn an_address_has_so_many_connections_that_have_not_authenticated() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "connections_max = 100\nunauthenticated_connections_per_address_max = 10\n\
                  unauthenticated_idle_ms_max = 60000\n";
    let gate = gate(folder.path(), limits);
    // Those that have authenticated do not count.
    let mut known: Vec<Client> = (0..15).map(|_| gate.client()).collect();
    for client in &mut known {
        until("it is in", SOON, || (producer(client, "known").ok()? == 201).then_some(()));
    }
    let mut strangers: Vec<Client> = Vec::new();
    until("the address is full", SOON, || {
        let mut client = gate.client();
        let answer = client.send("GET", "/livez", &[], b"").expect("an answer");
        strangers.push(client);
        (answer.header("connection") == Some("close")).then_some(())
    });
    assert!((10..=12).contains(&strangers.len()), "{}", strangers.len());
    assert_eq!(producer(&mut gate.client(), "late").expect("an answer"), 503);
    for client in &mut known {
        assert_eq!(producer(client, "known").expect("it is still open"), 201);
    }
    match client_at("127.0.0.2:0", &gate) {
        Some(stream) => {
            let answer = Client::over(gate.address(), stream).send(
                "POST",
                "/v1/events/orders",
                &[SHOP, ("Idempotency-Key", "elsewhere")],
                b"{}",
            );
            assert_eq!(answer.expect("an answer").status, 201);
        }
        None => eprintln!("skipped: this machine has no second loopback address"),
    }
    drop(strangers);
    until("there is room again", SOON, || {
        (producer(&mut gate.client(), "late").ok()? == 201).then_some(())
    });
}

/// A gate that closes idle connections of strangers very soon.
fn impatient(data: &Path) -> Launch {
    Launch::on(data).variable("ADMIT_LIMITS__UNAUTHENTICATED_IDLE_MS_MAX", "400")
}

#[test]
fn where_there_are_no_keys_an_idle_connection_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let gate = impatient(folder.path()).start();
    let mut client = idle(&gate);
    sleep(Duration::from_millis(900));
    assert_eq!(client.send("GET", "/livez", &[], b"").expect("the same connection").status, 200);
}

#[test]
fn probes_over_one_connection_go_on_where_they_come_often_enough() {
    let folder = tempfile::tempdir().unwrap();
    let gate = configured(
        folder.path(),
        "[limits]\nunauthenticated_idle_ms_max = 2000\n\
         [[principals]]\nname = \"shop\"\nkeys = [\"shop-key-long-enough\"]\n",
    );
    let mut client = idle(&gate);
    for _ in 0..12 {
        sleep(Duration::from_millis(250));
        let answer = client.send("GET", "/readyz", &[], b"").expect("the same connection");
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn a_pong_carries_what_was_pinged_even_if_it_looks_like_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    let mut socket = Socket::open(gate.address());
    let payload = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    socket.send(PING, payload).unwrap();
    assert_eq!(socket.read().unwrap(), Frame { first: PONG, payload: payload.to_vec() });
}
