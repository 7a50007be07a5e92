//! Detects a commit that hangs: a disk or database that hangs returns no error.
//!
//! Runs on its own thread, because the one waiting for the disk is blocked. Readiness reads the result.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::health::Health;

/// Default commit timeout: the gate's own reply timeout.
pub(crate) const COMMIT_MAX: Duration = Duration::from_millis(4_000);

/// How often an idle ledger probes whether it can be written to.
pub(crate) const PROBE_IDLE_EVERY: Duration = Duration::from_secs(5);

/// Bounds of the polling interval.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// The watchdog thread. It ends when this is dropped; nothing waits for it.
pub(crate) struct HangWatch {
    _end: SyncSender<()>,
}

impl HangWatch {
    pub(crate) fn start(health: &Arc<Health>, commit_max: Duration) -> io::Result<Self> {
        let (end, ended) = sync_channel::<()>(1);
        let health = Arc::clone(health);
        let every = (commit_max / 8).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX);
        thread::Builder::new().name("ledger-watch".to_owned()).spawn(move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                health.check_for_hang(commit_max);
            }
        })?;
        Ok(Self { _end: end })
    }
}
