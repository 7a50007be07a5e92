//! Agents and their outboxes, as an operator sees them.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use admit_testkit::proxy::{Faults, Proxy};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::gate::admit;
use super::machine::text;
use super::{SOON, until};

/// A place for gates that come and go: what agents are told to connect to.
pub(crate) fn street() -> Proxy {
    Proxy::to(nowhere(), Faults::default(), 1).unwrap()
}

/// An address that nobody listens on.
pub(crate) fn nowhere() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 1))
}

/// The outbox of a door and a producer.
pub(crate) fn outbox(data: &Path, door: &str, producer: &str) -> PathBuf {
    data.join(door).join(producer).join("listener_outbox.db")
}

/// What `admit edge status --json` says of it; `None` when there is none.
pub(crate) fn status(data: &Path, door: &str, producer: &str) -> Option<Value> {
    let output = admit(["edge", "status", "--json", "--data", text(data)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let outboxes = said["outboxes"].as_array().expect("a list").clone();
    let is_it = |one: &Value| one["door"] == door && one["producer"] == producer;
    outboxes.into_iter().find(is_it).map(|one| one["status"].clone())
}

/// The ids in an outbox, in order; none when it is not there.
pub(crate) fn ids(file: &Path) -> Vec<String> {
    let Ok(file) = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return Vec::new();
    };
    file.busy_timeout(SOON).unwrap();
    let Ok(mut rows) = file.prepare("SELECT event_id FROM event_outbox ORDER BY rowid") else {
        return Vec::new();
    };
    let ids = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
    ids.collect()
}

/// Waits until nothing waits.
pub(crate) fn drained(file: &Path) {
    until("the outbox is empty", SOON, || (file.is_file() && ids(file).is_empty()).then_some(()));
}
