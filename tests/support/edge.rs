//! Edge agents and their outboxes, inspected from outside.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use admit_testkit::proxy::{Faults, Proxy};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::gate::admit;
use super::machine::text;
use super::{TIMEOUT, wait_for};

/// A proxy with a stable address for agents, in front of gates that are started and killed.
pub(crate) fn gate_proxy() -> Proxy {
    Proxy::to(closed_address(), Faults::default(), 1).unwrap()
}

/// An address on which no server listens.
pub(crate) fn closed_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

/// Path of the outbox of a door and a producer.
pub(crate) fn outbox(data: &Path, door: &str, producer: &str) -> PathBuf {
    data.join(door).join(producer).join("listener_outbox.db")
}

/// Returns the status of an outbox from `admit edge status --json`; `None` if there is no such outbox.
pub(crate) fn status(data: &Path, door: &str, producer: &str) -> Option<Value> {
    let output = admit(["edge", "status", "--json", "--data", text(data)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outboxes = document["outboxes"].as_array().expect("a list").clone();
    let is_wanted = |outbox: &Value| outbox["door"] == door && outbox["producer"] == producer;
    outboxes.into_iter().find(is_wanted).map(|outbox| outbox["status"].clone())
}

/// Returns the event ids in an outbox, in order; empty if the file does not exist.
pub(crate) fn ids(file: &Path) -> Vec<String> {
    let Ok(file) = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return Vec::new();
    };
    file.busy_timeout(TIMEOUT).unwrap();
    let Ok(mut rows) = file.prepare("SELECT event_id FROM event_outbox ORDER BY rowid") else {
        return Vec::new();
    };
    let ids = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
    ids.collect()
}

/// Waits until the outbox is empty.
pub(crate) fn wait_until_drained(file: &Path) {
    wait_for("the outbox is empty", TIMEOUT, || {
        (file.is_file() && ids(file).is_empty()).then_some(())
    });
}
