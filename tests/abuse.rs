//! Malicious bodies at a real door: each gets a typed error, and no event is lost.

use std::time::{Duration, Instant};

use crate::support::events::match_begin;
use crate::support::gate::Gate;
use crate::support::http::DOOR;
use crate::support::ledger::{assert_intact, receipts};
use crate::support::sql;

fn gate() -> (tempfile::TempDir, Gate) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(folder.path());
    (folder, gate)
}

/// Asserts that the door still works and the ledger is intact.
fn assert_unharmed(folder: &tempfile::TempDir, gate: Gate) {
    gate.client().submit(&match_begin(1, "unharmed")).processed();
    gate.stop();
    assert_intact(folder.path());
}

#[test]
fn a_hundred_thousand_brackets_are_rejected_quickly() {
    let (folder, gate) = gate();
    let begun = Instant::now();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let body = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let reason = gate.client().submit_bytes(body.as_bytes()).rejected();
        assert_eq!(reason.code, "invalid_json", "{reason:?}");
        assert!(reason.message.len() < 500, "the error must not repeat the body: {reason:?}");
        gate.client().submit_bytes(&body.as_bytes()[..100_000]).rejected();
    }
    let inside = match_begin(2, "a").body();
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let inside = inside.replace("\"arguments\":[]", &format!("\"arguments\":{deep}"));
    assert_eq!(gate.client().submit_bytes(inside.as_bytes()).rejected().code, "invalid_json");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_unharmed(&folder, gate);
}

#[test]
fn a_body_of_forty_megabytes_is_refused_and_the_producer_gets_the_reason() {
    let (folder, gate) = gate();
    let body = vec![b'x'; 40 * 1024 * 1024];
    // The gate may close before it has read all of it; `Expect: 100-continue` gets the response in time.
    let headers = [("Expect", "100-continue"), ("Content-Length", "41943040")];
    let response = gate.client().send("POST", DOOR, &headers, b"").unwrap();
    assert_eq!(response.status, 413);
    let mut client = gate.client();
    for bytes in [2, 4, 12] {
        let response = client.send("POST", DOOR, &[], &body[..bytes * 1024 * 1024]);
        match response {
            Ok(response) => assert_eq!(response.status, 413),
            // The gate discards only part of a refused body, then closes the connection.
            Err(error) => assert!(bytes > 4, "{bytes} MB: {error}"),
        }
        client = gate.client();
    }
    if let Ok(response) = client.send("POST", DOOR, &[], &body) {
        assert_eq!(response.status, 413);
    }
    assert!(receipts(gate.data()).is_empty(), "a refused body must not be stored");
    assert_unharmed(&folder, gate);
}

#[test]
fn a_gzip_bomb_is_not_unpacked() {
    let (folder, gate) = gate();
    // A gzip header and padding; the rest does not matter.
    let bomb = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0; 100_000]].concat();
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip"] {
        let headers = [("Content-Encoding", coding)];
        let response = gate.client().send("POST", DOOR, &headers, &bomb).unwrap();
        assert_eq!(response.status, 415, "{coding}");
    }
    let reason = gate.client().submit_bytes(&bomb).rejected();
    assert_eq!(reason.code, "invalid_json", "without the header the body is not unpacked");
    assert_unharmed(&folder, gate);
}

#[test]
fn invalid_utf_8_and_unpaired_surrogates_are_rejected() {
    let (folder, gate) = gate();
    let whole = match_begin(2, "LOGIN").body();
    let with = |login: &[u8]| {
        let at = whole.find("LOGIN").expect("the event has the login");
        [&whole.as_bytes()[..at], login, &whole.as_bytes()[at + "LOGIN".len()..]].concat()
    };
    for (login, name) in [
        (&b"\xff"[..], "a byte that is never in UTF-8"),
        (b"\xc0\xaf", "an overlong form"),
        (b"\xed\xa0\x80", "a surrogate in UTF-8"),
        (b"\xf4\x90\x80\x80", "beyond the last character"),
        (b"\xe2\x82", "half a character"),
        (b"\\ud800", "the first half of a pair"),
        (b"\\udc00", "the second half of a pair"),
        (b"\\ud800\\u0041", "half a pair and a letter"),
        (b"\0", "a raw NUL"),
        (b"\n", "a raw line end"),
        (b"\\x41", "an invalid escape"),
    ] {
        let reason = gate.client().submit_bytes(&with(login)).rejected();
        assert_eq!(reason.code, "invalid_json", "{name}: {reason:?}");
    }
    // The same characters as JSON escapes are valid.
    gate.client().submit_bytes(&with(b"\\u0000\\ud83d\\ude00")).processed();
    let server = gate.client().get("/v1/pixel/servers/local/%00%F0%9F%98%80");
    assert_eq!(server["login"], "\u{0}\u{1f600}");
    assert_unharmed(&folder, gate);
}

#[test]
fn of_a_repeated_json_member_the_last_counts_and_the_bytes_are_stored() {
    let (folder, gate) = gate();
    let body = match_begin(2, "a").body();
    let (other, own) = (match_begin(3, "a"), match_begin(2, "a"));
    let (other, own) = (
        other.text("/envelope/idempotency_key").to_owned(),
        own.text("/envelope/idempotency_key").to_owned(),
    );
    let member = format!("\"idempotency_key\":\"{own}\"");
    let twice = body.replace(&member, &format!("\"idempotency_key\":\"{other}\",{member}"));
    assert_ne!(twice, body);
    let ack = gate.client().submit_bytes(twice.as_bytes()).processed();
    assert_eq!(ack.idempotency_key, own);
    gate.client().submit_bytes(body.as_bytes()).duplicate();
    let stored: Vec<u8> =
        sql::query_one(folder.path(), "SELECT bytes FROM body ORDER BY seq LIMIT 1");
    assert_eq!(String::from_utf8(stored).unwrap(), twice, "the body is stored byte for byte");
    assert_unharmed(&folder, gate);
}
