//! Shared state of a running server.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use admit_contracts::{RefusalContext, Reply};
use admit_core::effect::Effect;
use admit_core::{Clock, Code, Fault};
use admit_ledger::{Ledger, Publications, Records};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission_limiter::AdmissionLimiter;
use crate::builder::{DoorMount, DoorPath, GateError, GateParts, check_doors};
use crate::connections::PrincipalConnections;
use crate::gateway_delivery;
use crate::http::FixedDocument;
use crate::in_flight_effects::InFlightEffects;
use crate::ingest::Ingest;
use crate::limits::{Hint, Limits};
use crate::metrics::Metrics;
use crate::principals::Principals;
use crate::publisher::Publisher;
use crate::rate_limit::{RateExceeded, RateLimiter};
use crate::reserve::DiskReserve;
use crate::retention::RetentionSweep;
use crate::run_reports::RunReports;
use crate::scenario_runner::ScenarioRunner;
use crate::stream_ports::StreamPorts;
use crate::tls::Tls;
use crate::unauthenticated_connections::UnauthenticatedConnections;
use crate::vetting::VettingPools;

/// Minimum interval between log lines about faults, so that an outage does not flood the log.
const FAULT_LOG_PAUSE_MS: i64 = 1_000;

/// The default stream is served at the short path and at its full path.
pub(crate) const DEFAULT_STREAM_PATH: &str = "/v1/events";
const DEFAULT_STREAM_ALIAS: &str = "/v1/events/default";

/// State of a server: its parts, metrics, and work in progress.
pub struct Gate {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) doors: Vec<Arc<DoorMount>>,
    pub(crate) principals: Principals,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) admission_limiter: Arc<AdmissionLimiter>,
    pub(crate) rates: RateLimiter,
    /// Rate limits of requests with an invalid signature at webhook streams: one bucket per door.
    unsigned_rates: RateLimiter,
    pub(crate) unauthenticated: Arc<UnauthenticatedConnections>,
    pub(crate) authenticated: Arc<PrincipalConnections>,
    pub(crate) vetting: VettingPools,
    /// Tasks that outlive their request. The shutdown waits for them.
    pub(crate) tasks: TaskTracker,
    pub(crate) in_flight_effects: InFlightEffects,
    /// Effects intended before the start, until [`crate::serve`] resumes them.
    unfinished: Mutex<Vec<Effect>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) stream_ports: Option<Arc<dyn StreamPorts>>,
    pub(crate) records: Option<Arc<dyn Records>>,
    pub(crate) publications: Option<Arc<dyn Publications>>,
    pub(crate) publisher: Option<Arc<Publisher>>,
    pub(crate) runner: Option<Arc<dyn ScenarioRunner>>,
    pub(crate) run_reports: Option<Arc<dyn RunReports>>,
    pub(crate) retention: Option<RetentionSweep>,
    pub(crate) reserve: Option<Arc<DiskReserve>>,
    /// Cancelled when draining begins; ends long polls and streams.
    pub(crate) drain: CancellationToken,
    /// Documents at `/openapi.json` and `/`; rendered once, because they need no key.
    pub(crate) openapi: OnceLock<FixedDocument>,
    pub(crate) index: OnceLock<FixedDocument>,
    commit: &'static str,
    metrics: Metrics,
    draining: AtomicBool,
    hint_seeds: AtomicU32,
    fault_logged_at: AtomicI64,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("doors", &self.doors).finish_non_exhaustive()
    }
}

impl Gate {
    /// Creates a gate from its parts, after checking them.
    pub fn new(parts: GateParts) -> Result<Self, GateError> {
        let GateParts { ledger, doors, principals, limits, clock } = parts;
        limits.check()?;
        let paths: Vec<DoorPath> = doors.iter().map(DoorPath::from).collect();
        check_doors(&paths)?;
        let signing: Vec<&str> =
            doors.iter().filter_map(|mount| mount.contract.signature_principal()).collect();
        let is_shared = principals.has_several_senders(&signing);
        Ok(Self {
            metrics: Metrics::new(doors.iter().map(|mount| &mount.door)),
            admission_limiter: AdmissionLimiter::new(&limits, principals.index_count(), is_shared),
            rates: RateLimiter::new(
                limits.requests_per_second_max,
                principals.index_count(),
                clock.now(),
            ),
            unsigned_rates: RateLimiter::new(
                limits.requests_per_second_max,
                doors.len(),
                clock.now(),
            ),
            authenticated: PrincipalConnections::new(
                &limits,
                principals.index_count(),
                // A key of any role can open connections.
                principals.has_several(),
            ),
            unauthenticated: UnauthenticatedConnections::new(
                limits.unauthenticated_connections_max(),
                limits.unauthenticated_connections_per_address_max,
            ),
            vetting: VettingPools::new(is_shared),
            doors: doors.into_iter().map(Arc::new).collect(),
            ledger,
            principals,
            limits,
            clock,
            tasks: TaskTracker::new(),
            in_flight_effects: InFlightEffects::default(),
            unfinished: Mutex::default(),
            tls: None,
            stream_ports: None,
            records: None,
            publications: None,
            publisher: None,
            runner: None,
            run_reports: None,
            retention: None,
            reserve: None,
            drain: CancellationToken::new(),
            openapi: OnceLock::new(),
            index: OnceLock::new(),
            commit: "unknown",
            draining: AtomicBool::new(false),
            hint_seeds: AtomicU32::new(0),
            fault_logged_at: AtomicI64::new(i64::MIN),
        })
    }

    /// Recovers the effects of earlier processes. Call it once, before the doors open: effects in flight
    /// become ambiguous, and intended ones are resumed when the gate serves.
    pub async fn recover(&self) -> Result<(), Fault> {
        // First those that have state outside the effects table.
        for ingest in self.ingests() {
            ingest.recover().await?;
        }
        if let Some(reports) = &self.run_reports {
            Arc::clone(reports).recover().await?;
        }
        self.recover_publications().await?;
        let recovered = gateway_delivery::recover(self).await?;
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = recovered.intended;
        Ok(())
    }

    /// Marks publications that dead gates had in flight as ambiguous.
    pub(crate) async fn recover_publications(&self) -> Result<(), Fault> {
        let Some(publications) = &self.publications else { return Ok(()) };
        let door = Publisher::door().to_string();
        let lost = publications.recover_publications(door, self.clock.now()).await?;
        if !lost.is_empty() {
            tracing::warn!(
                count = lost.len(),
                "publications were in flight when their gate stopped and are now ambiguous, see admit reconcile"
            );
        }
        Ok(())
    }

    /// Ingestion gates of the doors that publish.
    pub(crate) fn ingests(&self) -> impl Iterator<Item = &Arc<Ingest>> {
        self.doors.iter().filter_map(|mount| mount.effect_target.ingest.as_ref())
    }

    /// Takes the effects to resume.
    pub(crate) fn take_unfinished(&self) -> Vec<Effect> {
        std::mem::take(&mut *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Maximum duration of an effect, which a reply or a shutdown may have to wait for.
    pub(crate) fn call_max(&self) -> Duration {
        let published = self.publisher.iter().map(|publisher| publisher.publish_max());
        self.doors
            .iter()
            .map(|mount| mount.effect_target.call_max())
            .chain(published)
            .max()
            .unwrap_or_default()
    }

    /// Adds TLS to the listener.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Adds routes for consumers of streams and of the inbox.
    pub fn with_stream_ports(self, stream_ports: Arc<dyn StreamPorts>) -> Self {
        Self { stream_ports: Some(stream_ports), ..self }
    }

    /// Adds routes to read and relink records.
    pub fn with_records(self, records: Arc<dyn Records>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// Adds recovery of published records, whether or not this gate publishes.
    pub fn with_publications(self, publications: Arc<dyn Publications>) -> Self {
        Self { publications: Some(publications), ..self }
    }

    /// Adds a publisher of records.
    pub fn with_publisher(self, publisher: Arc<Publisher>) -> Self {
        Self { publisher: Some(publisher), ..self }
    }

    /// Adds a scenario runner.
    pub fn with_runner(self, runner: Arc<dyn ScenarioRunner>) -> Self {
        Self { runner: Some(runner), ..self }
    }

    /// Adds run reports and run closing.
    pub fn with_run_reports(self, reports: Arc<dyn RunReports>) -> Self {
        Self { run_reports: Some(reports), ..self }
    }

    /// Adds retention metrics, and the route by which an operator confirms the clock.
    pub fn with_retention(self, retention: RetentionSweep) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// Adds a disk reserve, below which new events are refused.
    pub fn with_reserve(self, reserve: Arc<DiskReserve>) -> Self {
        Self { reserve: Some(reserve), ..self }
    }

    /// Sets the build commit shown in the metrics.
    pub fn built_from(self, commit: &'static str) -> Self {
        Self { commit, ..self }
    }

    pub(crate) fn commit(&self) -> &'static str {
        self.commit
    }

    /// Counters of the gate.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Number of events between door and reply.
    pub fn events_in_flight(&self) -> usize {
        self.admission_limiter.in_flight()
    }

    /// Whether the gate is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.drain.cancel();
    }

    /// Returns the door mounted at `path`.
    pub(crate) fn door_at(&self, path: &str) -> Option<&Arc<DoorMount>> {
        let path = if path == DEFAULT_STREAM_ALIAS { DEFAULT_STREAM_PATH } else { path };
        self.doors.iter().find(|mount| mount.is_at(path))
    }

    /// Counts a request without a valid signature at `door` against the door's rate limit.
    pub(crate) fn allow_unsigned(&self, door: &DoorMount) -> Result<(), RateExceeded> {
        let index = self.doors.iter().position(|mount| mount.door == door.door);
        self.unsigned_rates.allow(index.unwrap_or(usize::MAX), self.clock.now())
    }

    /// Hint for a retry after at least `wait_seconds`.
    pub(crate) fn hint_after(&self, wait_seconds: u32) -> Hint {
        Hint { seed: self.next_hint_seed(), wait_seconds }
    }

    /// Next seed for the retry hint of a request without key and body. Sequential, so that the retries of
    /// requests refused together are spread evenly.
    pub(crate) fn next_hint_seed(&self) -> u32 {
        self.hint_seeds.fetch_add(1, Ordering::Relaxed)
    }

    /// Refuses a request at a door, in the format of its contract, and counts it.
    pub(crate) fn refuse(
        &self,
        door: &DoorMount,
        code: Code,
        message: &str,
        hint: impl Into<Hint>,
    ) -> Reply {
        self.refuse_about(door, &[], code, message, hint)
    }

    /// Refuses a submission at a door, in the format of its contract, and counts it.
    pub(crate) fn refuse_about(
        &self,
        door: &DoorMount,
        body: &[u8],
        code: Code,
        message: &str,
        hint: impl Into<Hint>,
    ) -> Reply {
        if let Some(counters) = self.metrics.door(&door.door) {
            counters.refusals.of(code).add_one();
        }
        self.render_refusal(door, body, code, message, hint)
    }

    /// Renders `code` for a submission in the format of the door's contract, with a retry hint if a retry
    /// helps.
    pub(crate) fn render_refusal(
        &self,
        door: &DoorMount,
        body: &[u8],
        code: Code,
        message: &str,
        hint: impl Into<Hint>,
    ) -> Reply {
        let retry_after =
            if code.is_retryable() { self.limits.retry_after(hint.into()) } else { 0 };
        let context = RefusalContext { body, now: self.clock.now() };
        let mut reply = door.contract.refuse_about(context, code, message, retry_after);
        add_retry_after(&mut reply, retry_after);
        reply
    }

    /// Whether a fault may be logged now, or was logged a moment ago.
    pub(crate) fn may_log_fault(&self) -> bool {
        let now = self.clock.now().0;
        let last = self.fault_logged_at.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(last) >= FAULT_LOG_PAUSE_MS || now < last;
        is_due
            && self
                .fault_logged_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Adds the `retry-after` header, for clients that do not read the hint in the body.
pub(crate) fn add_retry_after(reply: &mut Reply, seconds: u32) {
    let is_retryable = matches!(reply.status, 429 | 503) && seconds > 0;
    if is_retryable
        && !reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("retry-after"))
    {
        reply.headers.push(("retry-after", seconds.to_string()));
    }
}
