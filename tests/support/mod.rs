//! What the tests share: a gate as a process, a client, events to send, and ways to hurt a disk.

pub(crate) mod cluster;
pub(crate) mod disks;
pub(crate) mod edge;
pub(crate) mod events;
pub(crate) mod gate;
pub(crate) mod gateway_stub;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod ingest;
pub(crate) mod intents;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod pack;
pub(crate) mod python;
pub(crate) mod rounds;
pub(crate) mod said;
pub(crate) mod skyra;
pub(crate) mod sql;
pub(crate) mod strace;
pub(crate) mod ws;

use std::thread;
use std::time::{Duration, Instant};

/// Looks again and again until there is something to see; fails when that takes too long.
pub(crate) fn until<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + at_most;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited {at_most:?} in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A patience that only a defect uses up, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(30);
