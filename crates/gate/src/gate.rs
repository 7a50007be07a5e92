//! What a server knows while it runs, shared by all of its requests.

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

use crate::accounts::Accounts;
use crate::connections::PrincipalConnections;
use crate::http::FixedDocument;
use crate::in_work::InWork;
use crate::ingest::Ingest;
use crate::limits::{Hint, Limits};
use crate::metrics::Metrics;
use crate::parts::{DoorMount, GateError, Parts, Place, check_doors};
use crate::perform;
use crate::principals::Principals;
use crate::publisher::Publisher;
use crate::rate::{RateExceeded, Rates};
use crate::reserve::DiskReserve;
use crate::retention::RetentionSweep;
use crate::room::Room;
use crate::runs::ScenarioRunner;
use crate::standing::UnauthenticatedConnections;
use crate::tls::Tls;
use crate::vetting::VettingPool;
use crate::way_out::WayOut;

/// Between two log lines about the same kind of trouble, so that an outage is not also a flood.
const FAULT_LOG_PAUSE_MS: i64 = 1_000;

/// The default stream answers at the short path and under its own name.
pub(crate) const DEFAULT_STREAM_PATH: &str = "/v1/events";
const DEFAULT_STREAM_ALIAS: &str = "/v1/events/default";

/// A server's knowledge: its parts, what it counts and what is inside.
pub struct Gate {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) doors: Vec<Arc<DoorMount>>,
    pub(crate) principals: Principals,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) room: Arc<Room>,
    pub(crate) rates: Rates,
    /// Requests at webhook streams whose signature was not valid: a bucket for each door.
    unsigned_rates: Rates,
    pub(crate) unauthenticated: Arc<UnauthenticatedConnections>,
    pub(crate) authenticated: Arc<PrincipalConnections>,
    pub(crate) vetting: VettingPool,
    /// Work that outlives the request that began it. Waited for at shutdown.
    pub(crate) tasks: TaskTracker,
    pub(crate) in_work: InWork,
    /// What was intended before the start, until [`crate::serve`] takes it up.
    unfinished: Mutex<Vec<Effect>>,
    pub(crate) tls: Option<Tls>,
    pub(crate) way_out: Option<Arc<dyn WayOut>>,
    pub(crate) records: Option<Arc<dyn Records>>,
    pub(crate) publications: Option<Arc<dyn Publications>>,
    pub(crate) publisher: Option<Arc<Publisher>>,
    pub(crate) runner: Option<Arc<dyn ScenarioRunner>>,
    pub(crate) accounts: Option<Arc<dyn Accounts>>,
    pub(crate) retention: Option<RetentionSweep>,
    pub(crate) reserve: Option<Arc<DiskReserve>>,
    /// Cancelled when draining begins: whatever only watches ends.
    pub(crate) drain: CancellationToken,
    /// What `/openapi.json` and `/` answer; rendered once, because they need no key.
    pub(crate) openapi: OnceLock<FixedDocument>,
    pub(crate) index: OnceLock<FixedDocument>,
    commit: &'static str,
    metrics: Metrics,
    draining: AtomicBool,
    tickets: AtomicU32,
    fault_logged_at: AtomicI64,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("doors", &self.doors).finish_non_exhaustive()
    }
}

impl Gate {
    /// Puts a gate together, or says why the parts do not fit.
    pub fn new(parts: Parts) -> Result<Self, GateError> {
        let Parts { ledger, doors, principals, limits, clock } = parts;
        limits.check()?;
        let places: Vec<Place> = doors.iter().map(Place::from).collect();
        check_doors(&places)?;
        let vouched: Vec<&str> =
            doors.iter().filter_map(|mount| mount.contract.signature_principal()).collect();
        let is_shared = principals.are_several(&vouched);
        Ok(Self {
            metrics: Metrics::new(doors.iter().map(|mount| &mount.door)),
            room: Room::new(&limits, principals.places(), is_shared),
            rates: Rates::new(limits.requests_per_second_max, principals.places(), clock.now()),
            unsigned_rates: Rates::new(limits.requests_per_second_max, doors.len(), clock.now()),
            authenticated: PrincipalConnections::new(
                &limits,
                principals.places(),
                // A key of any role can hold connections.
                principals.are_many(),
            ),
            unauthenticated: UnauthenticatedConnections::new(
                limits.unauthenticated_connections_max(),
                limits.unauthenticated_connections_per_address_max,
            ),
            vetting: VettingPool::new(is_shared),
            doors: doors.into_iter().map(Arc::new).collect(),
            ledger,
            principals,
            limits,
            clock,
            tasks: TaskTracker::new(),
            in_work: InWork::default(),
            unfinished: Mutex::default(),
            tls: None,
            way_out: None,
            records: None,
            publications: None,
            publisher: None,
            runner: None,
            accounts: None,
            retention: None,
            reserve: None,
            drain: CancellationToken::new(),
            openapi: OnceLock::new(),
            index: OnceLock::new(),
            commit: "unknown",
            draining: AtomicBool::new(false),
            tickets: AtomicU32::new(0),
            fault_logged_at: AtomicI64::new(i64::MIN),
        })
    }

    /// Looks after the effects that earlier processes left. Call it once, before the doors open: what
    /// was in flight is ambiguous then, and what was intended is taken up when the gate serves.
    pub async fn recover(&self) -> Result<(), Fault> {
        // First those that have more places to put in order than the effect itself.
        for ingest in self.ingests() {
            ingest.recover().await?;
        }
        if let Some(accounts) = &self.accounts {
            Arc::clone(accounts).recover().await?;
        }
        self.recover_publications().await?;
        let recovered = perform::recover(self).await?;
        *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner) = recovered.intended;
        Ok(())
    }

    /// Makes ambiguous what gates that are gone had on its way to the bus.
    pub(crate) async fn recover_publications(&self) -> Result<(), Fault> {
        let Some(publications) = &self.publications else { return Ok(()) };
        let door = Publisher::door().to_string();
        let lost = publications.recover_publications(door, self.clock.now()).await?;
        if !lost.is_empty() {
            tracing::warn!(
                count = lost.len(),
                "publications were in flight when their gate stopped, see admit reconcile"
            );
        }
        Ok(())
    }

    /// What is behind the doors that publish.
    pub(crate) fn ingests(&self) -> impl Iterator<Item = &Arc<Ingest>> {
        self.doors.iter().filter_map(|mount| mount.outward.ingest.as_ref())
    }

    /// What is to be taken up, once.
    pub(crate) fn take_unfinished(&self) -> Vec<Effect> {
        std::mem::take(&mut *self.unfinished.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The longest any effect takes; an answer or a shutdown may have to wait for it.
    pub(crate) fn call_max(&self) -> Duration {
        let published = self.publisher.iter().map(|publisher| publisher.publish_max());
        self.doors
            .iter()
            .map(|mount| mount.outward.call_max())
            .chain(published)
            .max()
            .unwrap_or_default()
    }

    /// The same gate with TLS on its listener.
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same gate with a way out of its streams.
    pub fn with_way_out(self, way_out: Arc<dyn WayOut>) -> Self {
        Self { way_out: Some(way_out), ..self }
    }

    /// The same gate with records that can be read and linked again.
    pub fn with_records(self, records: Arc<dyn Records>) -> Self {
        Self { records: Some(records), ..self }
    }

    /// The same gate with records that may have been published; what an earlier process had in
    /// flight is looked after, whether or not this one publishes.
    pub fn with_publications(self, publications: Arc<dyn Publications>) -> Self {
        Self { publications: Some(publications), ..self }
    }

    /// The same gate, whose records are published.
    pub fn with_publisher(self, publisher: Arc<Publisher>) -> Self {
        Self { publisher: Some(publisher), ..self }
    }

    /// The same gate with a scenario runner.
    pub fn with_runner(self, runner: Arc<dyn ScenarioRunner>) -> Self {
        Self { runner: Some(runner), ..self }
    }

    /// The same gate with somebody who keeps the books of runs.
    pub fn with_accounts(self, accounts: Arc<dyn Accounts>) -> Self {
        Self { accounts: Some(accounts), ..self }
    }

    /// The same gate, which shows how retention stands and takes a person's word for the clock.
    pub fn with_retention(self, retention: RetentionSweep) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// The same gate, which takes nothing new while its disk is below its reserve.
    pub fn with_reserve(self, reserve: Arc<DiskReserve>) -> Self {
        Self { reserve: Some(reserve), ..self }
    }

    /// The same gate, built from `commit`, which it says to whoever may read its metrics.
    pub fn built_from(self, commit: &'static str) -> Self {
        Self { commit, ..self }
    }

    pub(crate) fn commit(&self) -> &'static str {
        self.commit
    }

    /// What has been counted so far.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// How many events are between the door and their answer.
    pub fn events_in_flight(&self) -> usize {
        self.room.events()
    }

    /// Whether the gate is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.drain.cancel();
    }

    /// The door mounted at `path`.
    pub(crate) fn door_at(&self, path: &str) -> Option<&Arc<DoorMount>> {
        let path = if path == DEFAULT_STREAM_ALIAS { DEFAULT_STREAM_PATH } else { path };
        self.doors.iter().find(|mount| mount.is_at(path))
    }

    /// Counts another request without a valid signature at `door`, if that is within its rate.
    pub(crate) fn allow_unsigned(&self, door: &DoorMount) -> Result<(), RateExceeded> {
        let place = self.doors.iter().position(|mount| mount.door == door.door);
        self.unsigned_rates.allow(place.unwrap_or(usize::MAX), self.clock.now())
    }

    /// A hint for a retry that fails before `wait_seconds` are over.
    pub(crate) fn hint_after(&self, wait_seconds: u32) -> Hint {
        Hint { seed: self.ticket(), wait_seconds }
    }

    /// A seed for the retry hint of something that has no key and no body: each gets the next, so
    /// that a crowd turned away together is spread evenly.
    pub(crate) fn ticket(&self) -> u32 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Turns a request away at a door, in its contract's words, and counts it.
    pub(crate) fn refuse(
        &self,
        door: &DoorMount,
        code: Code,
        message: &str,
        hint: impl Into<Hint>,
    ) -> Reply {
        self.refuse_about(door, &[], code, message, hint)
    }

    /// Turns a submission away at a door, in its contract's words, and counts it.
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
        self.say_about(door, body, code, message, hint)
    }

    /// Says `code` about a submission in the words of the door's contract, with the hint where a
    /// retry helps.
    pub(crate) fn say_about(
        &self,
        door: &DoorMount,
        body: &[u8],
        code: Code,
        message: &str,
        hint: impl Into<Hint>,
    ) -> Reply {
        let retry_after =
            if code.is_retryable() { self.limits.retry_after(hint.into()) } else { 0 };
        let about = RefusalContext { body, now: self.clock.now() };
        let mut reply = door.contract.refuse_about(about, code, message, retry_after);
        add_retry_after(&mut reply, retry_after);
        reply
    }

    /// Whether trouble should be logged now, or has just been.
    pub(crate) fn may_log_fault(&self) -> bool {
        let now = self.clock.now().0;
        let last = self.fault_logged_at.load(Ordering::Relaxed);
        let paused = now.saturating_sub(last) >= FAULT_LOG_PAUSE_MS || now < last;
        paused
            && self
                .fault_logged_at
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// The header says the same as the body, for whoever reads only headers.
pub(crate) fn add_retry_after(reply: &mut Reply, seconds: u32) {
    let wants = matches!(reply.status, 429 | 503) && seconds > 0;
    if wants && !reply.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("retry-after")) {
        reply.headers.push(("retry-after", seconds.to_string()));
    }
}
