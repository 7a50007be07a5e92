//! Notices a commit that does not end: a disk or a database that hangs fails nothing.
//!
//! A thread of its own, because the one that waits for the disk cannot tell. Readiness reads what it found.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::health::Health;

/// How long a commit may take where nothing else is set: the gate's own limit for an answer.
pub(crate) const COMMIT_MAX: Duration = Duration::from_millis(4_000);

/// How often a ledger without traffic tries whether it can be written to.
pub(crate) const PROBE_IDLE_EVERY: Duration = Duration::from_secs(5);

/// Longest and shortest wait between two looks.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(500);
const LOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// The watching thread. It ends when this is dropped; nothing waits for it.
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
                health.look_for_hang(commit_max);
            }
        })?;
        Ok(Self { _end: end })
    }
}
