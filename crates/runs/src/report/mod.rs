//! What became of a run, in numbers: computed from the ledger and the receipts, never from logs.
//!
//! Truth order: what is admitted and receipted comes from the ledger; what a streamer has sent comes
//! from its records and stands beside it, compared with nothing. Everything is read in pages, so an
//! account of a large run takes time, not memory.

mod document;
mod sent;
mod tally;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_artifacts::{Artifacts, ArtifactsError, File, Limited, Line, Markers};
use admit_bus::Bus;
use admit_contracts::ingestion_gate::governance::{self, Family};
use admit_contracts::ingestion_gate::{self, Paths};
use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value, write_object};
use admit_core::{Clock, Fault, FaultKind, Millis};
use admit_ledger::closures::{Closures, OfRun, Unsettled};
use bytes::Bytes;
use tokio::sync::Semaphore;

pub use document::redacted;
pub(crate) use document::{ambiguities, ingress, notes, policies, quarantine, splits};
pub use sent::Sent;
pub use tally::{Split, Tally};

/// Where accounts are written, below a run.
pub const FOLDERS: &[&str] = &["obs"];

/// Who says it, in governance lines.
pub(crate) const COMPONENT: &str = "run_reporter";

/// Accounts that are made at once; more wait. Each reads everything a run has.
const ACCOUNTS_MAX: usize = 2;

/// Where the run of an event stands in its facts.
const RUN_IN_FACTS: &str = "$.envelope.platform_run_id";

/// What reports and closures are made with.
pub struct Parts {
    /// Where runs and receipts are.
    pub ledger: Arc<dyn Closures>,
    /// Where their files are.
    pub artifacts: Arc<dyn Artifacts>,
    /// Where files of a run lie.
    pub paths: Paths,
    /// Where admitted events are.
    pub bus: Arc<dyn Bus>,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// The rest.
    pub settings: Settings,
}

/// What a report says of its surroundings, and how long closing waits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long closing waits for what is in flight, and for files that are being written.
    pub closing_wait: Duration,
    /// The knobs in force, as the report shows them.
    pub knobs: Object<'static>,
    /// Which release, configuration and build made the report.
    pub provenance: Object<'static>,
    /// Where admissions are kept. Whoever gives it has [redacted] it.
    pub locator: String,
    /// The config file, where there is one.
    pub profile: Option<String>,
    /// Every topic that events are published to.
    pub topics: Vec<String>,
    /// Every output that an event can be of; nothing where that is not known.
    pub outputs: Option<BTreeSet<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            closing_wait: Duration::from_secs(10),
            knobs: Object::new(),
            provenance: Object::new(),
            locator: "sqlite:".to_owned(),
            profile: None,
            topics: Vec::new(),
            outputs: None,
        }
    }
}

/// The books of runs: reports on them, and closes them.
pub struct Books {
    pub(crate) ledger: Arc<dyn Closures>,
    pub(crate) artifacts: Limited,
    pub(crate) paths: Paths,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// Runs that somebody here is closing.
    pub(crate) closing: Mutex<HashSet<String>>,
    places: Semaphore,
}

impl fmt::Debug for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Books").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Books {
    /// Opens the books.
    pub fn new(parts: Parts) -> Self {
        let Parts { ledger, artifacts, paths, bus, clock, settings } = parts;
        Self {
            artifacts: Limited::new(artifacts, paths.prefix(), FOLDERS),
            ledger,
            paths,
            bus,
            clock,
            settings,
            closing: Mutex::default(),
            places: Semaphore::new(ACCOUNTS_MAX),
        }
    }

    /// The report of a run, written down under it as well. `None` when nobody has named such a run.
    ///
    /// # Errors
    /// When the ledger or the artifacts cannot be read.
    pub async fn report(&self, id: &str) -> Result<Option<Object<'static>>, Fault> {
        let Some(run) = self.ledger.run(id.to_owned()).await? else { return Ok(None) };
        let _place = self.place().await?;
        let facts = document::Facts {
            tally: self.tally(id).await?,
            unsettled: self.unsettled(id).await?,
            sent: self.sent(id).await?,
            refused_while_closing: self.ledger.refused_while_closing(id.to_owned()).await?,
            ambiguities: self.ledger.ambiguities(id.to_owned()).await?,
            closure: self.ledger.closure(id.to_owned()).await?.map(|closure| closure.path),
            run,
        };
        let now = self.clock.now();
        let (mut report, digest) = document::report(&facts, &self.paths, &self.settings, now);
        let reference = self.paths.of_run(id, "obs/platform_run_report.json");
        // Whoever is in trouble needs the numbers most; a file that cannot be written is no reason
        // to keep them back.
        let refs = match self.publish(id, &reference, &report, &digest, now).await {
            Ok(()) => vec![reference],
            Err(error) => {
                tracing::error!(run = id, %error, "the report could not be written under its run");
                Vec::new()
            }
        };
        report.push("artifact_refs", refs);
        Ok(Some(report))
    }

    /// Writes a report down, and tells whoever watches over the run that it says something new.
    async fn publish(
        &self,
        run: &str,
        reference: &str,
        report: &Object<'_>,
        digest: &str,
        now: Millis,
    ) -> Result<(), ArtifactsError> {
        let file = File::new(reference, line_of(report));
        for shown in self.artifacts.show(vec![file]).await {
            shown?;
        }
        let details = Object::from_iter([
            ("report_ref", Value::from(reference.to_owned())),
            ("content_digest", digest.to_owned().into()),
        ]);
        let dedupe_key = format!("run_report:{digest}");
        self.tell(Family::RunReportGenerated, run, &dedupe_key, now, details).await?;
        self.artifacts.compose(&self.paths.governance_log(run)).await
    }

    /// Appends to the governance log of a run, once. What is told again with the same time is looked
    /// for in the log itself, so that no crash can lose it; what is told with a new one is known by
    /// its marker.
    pub(crate) async fn tell(
        &self,
        family: Family,
        run: &str,
        dedupe_key: &str,
        at: Millis,
        details: Object<'static>,
    ) -> Result<(), ArtifactsError> {
        let is_timeless = family != Family::RunReportGenerated;
        let markers = if is_timeless { Markers::Doubted } else { Markers::Believed };
        let line = governance::Line {
            family,
            run,
            scenario_run: None,
            component: COMPONENT,
            dedupe_key,
            at,
            actor: Object::from_iter([("actor_id", Value::from(format!("SYSTEM::{COMPONENT}")))]),
            provenance: self.settings.provenance.clone(),
            details,
        };
        let marker = self.paths.governance_marker(run, &line.event_id());
        let mut text = line_of(&line.to_object());
        let marker = File::new(marker, text.clone());
        text.pop();
        let lines = vec![Line { text: Bytes::from(text), marker }];
        let log = self.paths.governance_log(run);
        let put = self.artifacts.append_lines(&log, lines, markers).await;
        put.into_iter().try_for_each(|put| put.map(drop))
    }

    /// What is not settled of a run.
    pub(crate) async fn unsettled(&self, run: &str) -> Result<Unsettled, Fault> {
        let of = OfRun { door: ingestion_gate::DOOR, path: RUN_IN_FACTS, run };
        self.ledger.unsettled(of).await
    }

    /// A place among those who make accounts.
    pub(crate) async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Fault> {
        let gone = |_| Fault::new(FaultKind::Internal, "accounts are not made any more");
        self.places.acquire().await.map_err(gone)
    }

    pub(crate) fn closing(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object as a line of a file.
pub(crate) fn line_of(object: &Object<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(1024);
    write_object(object, &mut text);
    text.push(b'\n');
    text
}

pub(crate) fn digest_of(object: &Object<'_>) -> String {
    let mut text = Vec::with_capacity(1024);
    write_object(object, &mut text);
    sha256_hex(&text)
}

pub(crate) fn unreadable(error: ArtifactsError) -> Fault {
    Fault::caused_by(FaultKind::Internal, "the files of the run cannot be read just now", error)
}
