//! The gate replies, drains and stops normally whatever happens to its log.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::process::Stdio;

use crate::support::events::match_begin;
use crate::support::gate::Launch;

/// Runs a gate that logs every request into `log`, sends a few hundred requests, and stops it.
fn serves_as_ever(what: &str, log: impl Into<Stdio>) {
    let folder = tempfile::tempdir().unwrap();
    let gate = Launch::on(folder.path()).variable("ADMIT_LOG__LEVEL", "debug").log_to(log).start();
    let mut client = gate.client();
    for n in 1..=600 {
        client.submit(&match_begin(n, "a")).processed();
    }
    client.submit(&match_begin(1, "a")).duplicate();
    let metrics = gate.client().send("GET", "/metrics", &[], b"").expect("response from the gate");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    assert!(metrics.contains("admit_panics_total 0"), "{what}: {metrics}");
    gate.terminate();
    let ended = gate.wait_for_exit();
    assert_eq!(ended.status.code(), Some(0), "{what}");
}

#[test]
fn a_log_on_a_full_disk_does_not_affect_the_gate() {
    serves_as_ever("a full disk", OpenOptions::new().write(true).open("/dev/full").unwrap());
}

#[test]
fn a_log_with_a_closed_reader_does_not_affect_the_gate() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    serves_as_ever("a reader that is gone", writer);
}

#[test]
fn a_log_with_a_blocked_reader_does_not_affect_the_gate() {
    let (mut reader, writer) = io::pipe().unwrap();
    serves_as_ever("a reader that does not read", writer);
    let mut log_text = String::new();
    reader.read_to_string(&mut log_text).unwrap();
    assert!(log_text.contains("request completed"), "what found room is there: {log_text}");
}
