//! Ingestion gate: a door whose events are published to the bus, with a receipt for every decision.
//!
//! ```text
//!  record commit: PUBLISH_IN_FLIGHT ─▶ publish ─▶ settle commit: ADMITTED + receipt ─▶ file ─▶ reply
//! ```
//!
//! Invariants: an event is in flight in the ledger before it is published; an attempt publishes at most
//! once; an outcome is not dropped before it is committed; a reply references files that are written,
//! or, with write-behind, queued in a bounded queue.

mod delivery_reply;
mod document_files;
mod governance;
mod health;
mod lookup;
mod publish;
mod publish_queue;
pub(crate) mod reconcile;
mod recovery;
pub(crate) mod release;
mod write_behind;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_artifacts::Artifacts;
use admit_bus::Bus;
use admit_contracts::ingestion_gate::health::HealthThresholds;
use admit_contracts::ingestion_gate::service_token::ServiceTokens;
use admit_contracts::ingestion_gate::{self, IngestionGate};
use admit_core::{Clock, Door, Issue, Millis};
use admit_ledger::{Issuance, IssueHandlers, Ledger};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::in_flight_effects::InFlightEffects;
use crate::metrics::Counter;
use crate::principals::{KnownPrincipal, Role};

pub(crate) use delivery_reply::admit;
use document_files::FileTracker;
use governance::QuarantineSpikes;
use health::ProbeCache;
use publish_queue::PublishQueue;
pub use write_behind::WriteBehind;
use write_behind::WriteBehindQueue;

/// Parts of an ingestion gate.
pub struct IngestParts {
    /// Contract of the door.
    pub contract: Arc<IngestionGate>,
    /// Ledger port that issues documents and settles effects.
    pub ledger: Arc<dyn Issuance>,
    /// The same ledger, for all other operations.
    pub reader: Arc<dyn Ledger>,
    /// Bus for admitted events.
    pub bus: Arc<dyn Bus>,
    /// Store for the files of documents.
    pub artifacts: Arc<dyn Artifacts>,
    /// Source of the time of day.
    pub clock: Arc<dyn Clock>,
    /// Settings of the ingestion gate.
    pub settings: IngestSettings,
}

/// Settings of an ingestion gate.
#[derive(Clone, Debug)]
pub struct IngestSettings {
    /// Maximum wait of a duplicate for the outcome of the event in flight.
    pub in_flight_wait: Duration,
    /// Timeout of a publish call.
    pub publish_wait: Duration,
    /// Interval of the health probes.
    pub probe_every: Duration,
    /// Thresholds for the results of the probes.
    pub rules: HealthThresholds,
    /// Delay of each request while the health is AMBER.
    pub amber_pause: Duration,
    /// Maximum number of messages in one publish call.
    pub publish_batch_max: usize,
    /// Maximum number of pushes in 60 seconds; 0 for no limit.
    pub pushes_per_minute_max: usize,
    /// Interval of file syncs.
    pub sync_every: Duration,
    /// Write-behind of files; `None` writes them before the reply.
    pub write_behind: Option<WriteBehind>,
    /// Service tokens, if producers send tokens instead of keys.
    pub tokens: Option<ServiceTokens>,
}

impl Default for IngestSettings {
    fn default() -> Self {
        Self {
            in_flight_wait: Duration::from_millis(2_000),
            publish_wait: Duration::from_secs(10),
            probe_every: Duration::from_secs(30),
            rules: HealthThresholds::default(),
            amber_pause: Duration::ZERO,
            publish_batch_max: 512,
            pushes_per_minute_max: 0,
            sync_every: Duration::from_secs(5),
            write_behind: None,
            tokens: None,
        }
    }
}

/// Running ingestion gate.
pub struct Ingest {
    pub(crate) contract: Arc<IngestionGate>,
    issue: Arc<dyn Issue>,
    pub(crate) ledger: Arc<dyn Issuance>,
    pub(crate) reader: Arc<dyn Ledger>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    clock: Arc<dyn Clock>,
    settings: IngestSettings,
    publish_queue: Arc<PublishQueue>,
    files: FileTracker,
    write_behind: Option<WriteBehindQueue>,
    health: ProbeCache,
    spikes: QuarantineSpikes,
    in_flight_effects: InFlightEffects,
    /// Tasks that outlive their request. The shutdown waits for them.
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Times of the pushes in the last minute, if they are limited.
    pushes: Mutex<VecDeque<Millis>>,
    /// Number of messages confirmed by the bus.
    pub published: Counter,
    /// Number of messages with an unknown outcome.
    pub ambiguous: Counter,
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Ingest {
    /// Creates an ingestion gate. Does nothing before [`recover`](Self::recover).
    pub fn new(parts: IngestParts) -> Arc<Self> {
        let IngestParts { contract, ledger, reader, bus, artifacts, clock, settings } = parts;
        Arc::new(Self {
            issue: contract.clone(),
            contract,
            ledger,
            reader,
            bus,
            artifacts,
            clock,
            write_behind: settings.write_behind.as_ref().map(WriteBehindQueue::new),
            settings,
            publish_queue: Arc::default(),
            files: FileTracker::default(),
            health: ProbeCache::default(),
            spikes: QuarantineSpikes::default(),
            in_flight_effects: InFlightEffects::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            pushes: Mutex::default(),
            published: Counter::default(),
            ambiguous: Counter::default(),
        })
    }

    /// Door of the ingestion gate.
    pub fn door() -> Door {
        Door::new(ingestion_gate::DOOR)
    }

    fn issue_handlers(&self) -> IssueHandlers {
        IssueHandlers { issue: self.issue.clone(), handover: self.publish_queue.clone() }
    }

    /// Additional time that a reply may take for the publish, or for the first delivery of a duplicate.
    pub(crate) fn effect_wait_max(&self) -> Duration {
        self.settings.publish_wait + self.settings.in_flight_wait + self.settings.amber_pause
    }

    /// Maximum duration of a publish, which a shutdown may have to wait for.
    pub(crate) fn publish_max(&self) -> Duration {
        self.settings.publish_wait
    }

    /// Starts the publish, probe and sync loops as tasks of the gate.
    pub(crate) fn start(self: &Arc<Self>, tasks: &TaskTracker) {
        self.start_write_behind();
        for work in [Self::run_publish_loop, Self::run_probe_loop, Self::run_sync_loop] {
            let ingest = Arc::clone(self);
            tasks.spawn(async move {
                let stop = ingest.stop.clone();
                // Publishes in flight at the stop are settled in tasks of their own.
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = work(ingest) => {}
                }
            });
        }
    }

    /// Stops the loops of [`start`](Self::start), after all events in flight have their reply.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.end_write_behind().await;
        self.sync_files().await;
    }

    /// Number of documents queued for the artifacts.
    pub(crate) fn files_waiting(&self) -> u64 {
        self.write_behind.as_ref().map_or(0, WriteBehindQueue::len)
    }

    /// Number of publishes with this outcome.
    pub(crate) fn settled(&self, outcome: &str) -> u64 {
        match outcome {
            "done" => self.published.get(),
            "ambiguous" => self.ambiguous.get(),
            _ => 0,
        }
    }

    /// Counts a push against the limit per minute. False over the limit.
    pub(crate) fn allows_push(&self) -> bool {
        let pushes_max = self.settings.pushes_per_minute_max;
        if pushes_max == 0 {
            return true;
        }
        let now = self.clock.now();
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        while pushes.front().is_some_and(|at| at.0 <= now.0 - 60_000) {
            pushes.pop_front();
        }
        let is_allowed = pushes.len() < pushes_max;
        if is_allowed {
            pushes.push_back(now);
        }
        is_allowed
    }

    /// Service tokens, if this door accepts them.
    pub(crate) fn tokens(&self) -> Option<&ServiceTokens> {
        self.settings.tokens.as_ref()
    }

    /// Whether a principal may query the health and the decisions of this door.
    pub(crate) fn may_query(known: &KnownPrincipal) -> bool {
        let roles = [Role::Produce, Role::Forward, Role::Read, Role::Operate];
        known.may_use(&Self::door()) && roles.into_iter().any(|role| known.has(role))
    }
}

/// A background loop.
type IngestLoop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
