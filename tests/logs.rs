//! Whatever becomes of its log, a gate answers, drains and ends as it should.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::process::Stdio;

use crate::support::events::match_begin;
use crate::support::gate::Launch;

/// A gate that logs every request into `log` answers a few hundred, and ends in good order.
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
fn a_log_on_a_full_disk_changes_nothing() {
    serves_as_ever("a full disk", OpenOptions::new().write(true).open("/dev/full").unwrap());
}

#[test]
fn a_log_whose_reader_is_gone_changes_nothing() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    serves_as_ever("a reader that is gone", writer);
}

#[test]
fn a_log_whose_reader_does_not_read_changes_nothing() {
    let (mut reader, writer) = io::pipe().unwrap();
    serves_as_ever("a reader that does not read", writer);
    let mut told = String::new();
    reader.read_to_string(&mut told).unwrap();
    assert!(told.contains("request completed"), "what found room is there: {told}");
}
