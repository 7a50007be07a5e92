//! The ingestion gate: a door whose events are published, with a receipt for every decision.
//!
//! ```text
//!  record commit: PUBLISH_IN_FLIGHT ─▶ publish ─▶ settle commit: ADMITTED + receipt ─▶ file ─▶ reply
//! ```
//!
//! Invariants: what is handed to the bus is in flight in the ledger first; nothing is published
//! twice for one attempt; an outcome is not let go before it is committed; a reply names files that
//! are there, or, where the store is far away, on their way there in a queue of bounded length.

mod answer;
mod behind;
mod files;
mod flights;
mod governance;
mod health;
mod lookup;
mod publish;
pub(crate) mod reconcile;
mod recover;
pub(crate) mod release;

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

use crate::in_work::InWork;
use crate::metrics::Counter;
use crate::principals::{Known, Role};

pub(crate) use answer::admit;
use behind::Behind;
pub use behind::WriteBehind;
use files::Files;
use flights::Flights;
use governance::Spikes;
use health::Health;

/// What a door that publishes needs, beside what every door needs.
pub struct IngestParts {
    /// The contract.
    pub contract: Arc<IngestionGate>,
    /// Where documents are kept, and effects settled.
    pub ledger: Arc<dyn Issuance>,
    /// The same ledger, for everything else.
    pub reader: Arc<dyn Ledger>,
    /// Where admitted events go.
    pub bus: Arc<dyn Bus>,
    /// Where the files of documents go.
    pub artifacts: Arc<dyn Artifacts>,
    /// Where the time of day comes from.
    pub clock: Arc<dyn Clock>,
    /// How it behaves.
    pub settings: IngestSettings,
}

/// How a door that publishes behaves.
#[derive(Clone, Debug)]
pub struct IngestSettings {
    /// How long a copy of an event in flight waits for its outcome.
    pub in_flight_wait: Duration,
    /// How long the answer of the bus is waited for.
    pub publish_wait: Duration,
    /// How long what the probes found is believed.
    pub probe_every: Duration,
    /// What is made of what they found.
    pub rules: HealthThresholds,
    /// The pause before an event is taken while the health is AMBER.
    pub amber_pause: Duration,
    /// Most messages in one call to the bus.
    pub publish_batch_max: usize,
    /// Most pushes in any 60 seconds; 0 is no limit.
    pub pushes_per_minute_max: usize,
    /// How often files are brought to stable storage.
    pub sync_every: Duration,
    /// Whether files are written behind the reply, and how far; `None` writes them before it.
    pub behind: Option<WriteBehind>,
    /// Whom tokens prove, where producers show tokens instead of keys.
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
            behind: None,
            tokens: None,
        }
    }
}

/// A door that publishes, while it runs.
pub struct Ingest {
    pub(crate) contract: Arc<IngestionGate>,
    issue: Arc<dyn Issue>,
    pub(crate) ledger: Arc<dyn Issuance>,
    pub(crate) reader: Arc<dyn Ledger>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    clock: Arc<dyn Clock>,
    settings: IngestSettings,
    flights: Arc<Flights>,
    files: Files,
    behind: Option<Behind>,
    health: Health,
    spikes: Spikes,
    in_work: InWork,
    /// Work that outlives the request that began it; the gate waits for it when it drains.
    tasks: TaskTracker,
    stop: CancellationToken,
    /// When the pushes of the last minute came, where they are limited.
    pushes: Mutex<VecDeque<Millis>>,
    /// Messages the bus has confirmed.
    pub published: Counter,
    /// Messages nobody knows the fate of.
    pub ambiguous: Counter,
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Ingest {
    /// Puts the parts together. Nothing happens before [`recover`](Self::recover).
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
            behind: settings.behind.as_ref().map(Behind::new),
            settings,
            flights: Arc::default(),
            files: Files::default(),
            health: Health::default(),
            spikes: Spikes::default(),
            in_work: InWork::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            pushes: Mutex::default(),
            published: Counter::default(),
            ambiguous: Counter::default(),
        })
    }

    /// The door this is.
    pub fn door() -> Door {
        Door::new(ingestion_gate::DOOR)
    }

    fn issuing(&self) -> IssueHandlers {
        IssueHandlers { issue: self.issue.clone(), handover: self.flights.clone() }
    }

    /// The longest an answer waits for the bus, or for the first of its kind.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.publish_wait + self.settings.in_flight_wait + self.settings.amber_pause
    }

    /// The longest a publish takes; a shutdown may have to wait for it.
    pub(crate) fn publish_max(&self) -> Duration {
        self.settings.publish_wait
    }

    /// Starts publishing, probing and syncing, in tasks of the gate.
    pub(crate) fn start(self: &Arc<Self>, tasks: &TaskTracker) {
        self.start_writing();
        for work in [Self::keep_publishing, Self::keep_probing, Self::keep_syncing] {
            let ingest = Arc::clone(self);
            tasks.spawn(async move {
                let stop = ingest.stop.clone();
                // What is in flight when it stops is settled in tasks of its own.
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = work(ingest) => {}
                }
            });
        }
    }

    /// Ends what [`start`](Self::start) began, once everything inside has been answered.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.end_writing().await;
        self.sync_files().await;
    }

    /// Documents that are not in the artifacts yet.
    pub(crate) fn files_waiting(&self) -> u64 {
        self.behind.as_ref().map_or(0, Behind::waiting)
    }

    /// How many publishes had this outcome, by its word.
    pub(crate) fn settled(&self, outcome: &str) -> u64 {
        match outcome {
            "done" => self.published.get(),
            "ambiguous" => self.ambiguous.get(),
            _ => 0,
        }
    }

    /// Whether one more push fits into the last minute.
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
        let is_room = pushes.len() < pushes_max;
        if is_room {
            pushes.push_back(now);
        }
        is_room
    }

    /// Whom tokens prove, where this door takes tokens.
    pub(crate) fn tokens(&self) -> Option<&ServiceTokens> {
        self.settings.tokens.as_ref()
    }

    /// Whether a principal may ask this door how it is doing, or what it has decided.
    pub(crate) fn may_ask(known: &Known) -> bool {
        let roles = [Role::Produce, Role::Forward, Role::Read, Role::Operate];
        known.may_use(&Self::door()) && roles.into_iter().any(|role| known.has(role))
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
