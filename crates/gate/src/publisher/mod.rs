//! The publisher: each revision of a record goes to the bus, at most once by itself.
//!
//! ```text
//!  enriched ─settled─▶ offer commit: in flight ─▶ publish ─▶ settle commit: done, or ambiguous
//! ```
//!
//! A record is published once it has not changed for a while, or has been changing for too long;
//! revisions that were replaced before that are never handed over, because the next one says all
//! they said. Nothing is begun while the bus says that it is down.

mod reconcile;
mod work;

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

pub use reconcile::place_of;

/// What the publisher needs of a ledger.
pub trait PublishedRecords: Ledger + RecordReader + Publications {}

impl<L: Ledger + RecordReader + Publications> PublishedRecords for L {}

/// What a publisher is put together from.
pub struct PublisherParts {
    /// Where the records are.
    pub ledger: Arc<dyn PublishedRecords>,
    /// Where they go.
    pub bus: Arc<dyn Bus>,
    /// Where the time of day comes from.
    pub clock: Arc<dyn Clock>,
    /// How it behaves.
    pub settings: PublisherSettings,
}

/// How records are published.
#[derive(Clone, Debug)]
pub struct PublisherSettings {
    /// The logical topic.
    pub topic: Arc<str>,
    /// How long a record must not have changed before it is published.
    pub settle: Duration,
    /// How long the answer of the bus is waited for.
    pub publish_wait: Duration,
}

/// A publisher, while it runs.
pub struct Publisher {
    ledger: Arc<dyn PublishedRecords>,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    settings: PublisherSettings,
    /// A sign that there may be something to publish.
    woken: Notify,
    work: TaskTracker,
    stop: CancellationToken,
    /// Calls, which may go on after they were given up on.
    calls: TaskTracker,
    /// Ends calls that nobody waits for.
    cut: CancellationToken,
    /// Publications that the bus may still be working on.
    alive: Mutex<HashSet<u64>>,
    /// Messages the bus has confirmed.
    published: Counter,
    /// Messages nobody knows the fate of.
    ambiguous: Counter,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Publisher {
    /// Puts the parts together. Nothing happens before the gate serves.
    pub fn new(parts: PublisherParts) -> Arc<Self> {
        let PublisherParts { ledger, bus, clock, settings } = parts;
        Arc::new(Self {
            ledger,
            bus,
            clock,
            settings,
            woken: Notify::new(),
            work: TaskTracker::new(),
            stop: CancellationToken::new(),
            calls: TaskTracker::new(),
            cut: CancellationToken::new(),
            alive: Mutex::default(),
            published: Counter::default(),
            ambiguous: Counter::default(),
        })
    }

    /// The door whose records it publishes.
    pub(crate) fn door() -> Door {
        Door::new(DOOR)
    }

    /// Something was told of a record.
    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }

    /// The longest a publish takes; a shutdown may have to wait for it.
    pub(crate) fn publish_max(&self) -> Duration {
        self.settings.publish_wait
    }

    /// How many publications had this outcome, by its word.
    pub(crate) fn settled(&self, outcome: &str) -> u64 {
        match outcome {
            "done" => self.published.get(),
            "ambiguous" => self.ambiguous.get(),
            _ => 0,
        }
    }

    /// Starts publishing, until [`end`](Self::end).
    pub(crate) fn start(self: &Arc<Self>) {
        self.work.spawn(Arc::clone(self).keep_publishing());
    }

    /// Ends what [`start`](Self::start) began: what is on its way is settled first.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.work.close();
        self.work.wait().await;
        self.cut.cancel();
        self.calls.close();
        self.calls.wait().await;
    }

    fn alive(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
