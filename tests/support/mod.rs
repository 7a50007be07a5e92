//! Shared test support: gate processes, clients, sample events, and fault injection for disks and networks.

pub(crate) mod assert_reply;
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
pub(crate) mod pages;
pub(crate) mod prometheus;
pub(crate) mod python;
pub(crate) mod rounds;
pub(crate) mod skyra;
pub(crate) mod sql;
pub(crate) mod strace;
pub(crate) mod ws;

use std::thread;
use std::time::{Duration, Instant};

/// Polls `probe` until it returns a value, and returns that; panics after `at_most`.
pub(crate) fn wait_for<T>(
    what: &str,
    at_most: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + at_most;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "timeout after {at_most:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Default timeout of [`wait_for`]: generous, because the machine is busy with other tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
