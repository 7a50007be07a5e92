//! Publisher of records: publishes each settled revision to the bus, at most once automatically.
//!
//! ```text
//!  enriched ─settled─▶ begin commit: in flight ─▶ publish ─▶ settle commit: done, or ambiguous
//! ```
//!
//! A record is published once it has not changed for a while, or has been changing for too long.
//! Intermediate revisions are not published, because the next one contains all their data. Nothing is
//! begun while the bus is down.

mod publish_loop;
mod reconcile;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admit_bus::Bus;
use admit_contracts::rounds::DOOR;
use admit_core::{Clock, Door};
use admit_ledger::{Ledger, Publications, RecordReader};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::Counter;

pub use reconcile::reference_of;

/// Ledger ports of the publisher.
pub trait PublishedRecords: Ledger + RecordReader + Publications {}

impl<L: Ledger + RecordReader + Publications> PublishedRecords for L {}

/// Parts of a publisher.
pub struct PublisherParts {
    /// Ledger with the records.
    pub ledger: Arc<dyn PublishedRecords>,
    /// Bus to publish to.
    pub bus: Arc<dyn Bus>,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
    /// Settings of the publisher.
    pub settings: PublisherSettings,
}

/// Settings of a publisher.
#[derive(Clone, Debug)]
pub struct PublisherSettings {
    /// Logical topic.
    pub topic: Arc<str>,
    /// Time without changes before a record is published.
    pub settle: Duration,
    /// Timeout of a publish call.
    pub publish_wait: Duration,
}

/// A running publisher.
pub struct Publisher {
    ledger: Arc<dyn PublishedRecords>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    settings: PublisherSettings,
    /// Wakes the publish loop.
    wakeup: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Publish calls, which may outlive their timeout.
    calls: TaskTracker,
    /// Cancels publish calls after their timeout, at shutdown.
    cancel_calls: CancellationToken,
    /// Publications whose publish call may still be in progress.
    active: Mutex<HashSet<u64>>,
    /// Number of messages confirmed by the bus.
    published: Counter,
    /// Number of messages with an unknown outcome.
    ambiguous: Counter,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Publisher {
    /// Creates a publisher. Does nothing before the gate serves.
    pub fn new(parts: PublisherParts) -> Arc<Self> {
        let PublisherParts { ledger, bus, clock, settings } = parts;
        Arc::new(Self {
            ledger,
            bus,
            clock,
            settings,
            wakeup: Notify::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            calls: TaskTracker::new(),
            cancel_calls: CancellationToken::new(),
            active: Mutex::default(),
            published: Counter::default(),
            ambiguous: Counter::default(),
        })
    }

    /// Door whose records it publishes.
    pub(crate) fn door() -> Door {
        Door::new(DOOR)
    }

    /// Wakes the publish loop after a record may have changed.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Maximum duration of a publish, which a shutdown may have to wait for.
    pub(crate) fn publish_max(&self) -> Duration {
        self.settings.publish_wait
    }

    /// Number of publications with this outcome.
    pub(crate) fn settled(&self, outcome: &str) -> u64 {
        match outcome {
            "done" => self.published.get(),
            "ambiguous" => self.ambiguous.get(),
            _ => 0,
        }
    }

    /// Starts publishing, until [`end`](Self::end).
    pub(crate) fn start(self: &Arc<Self>) {
        self.tasks.spawn(Arc::clone(self).run_publish_loop());
    }

    /// Stops the publish loop, after publications in flight are settled.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.cancel_calls.cancel();
        self.calls.close();
        self.calls.wait().await;
    }

    fn active(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
