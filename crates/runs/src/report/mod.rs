//! Reports of runs: counts computed from the ledger and the receipts, never from logs.
//!
//! Admissions and receipts come from the ledger; rows sent by streamers come from their records and
//! are reported next to them without comparison. Everything is read in pages, so the report of a
//! large run takes time, not memory.

mod document;
mod sent;
mod tally;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, ScopedArtifacts};
use admit_bus::Bus;
use admit_contracts::ingestion_gate::governance::{self, GovernanceFamily};
use admit_contracts::ingestion_gate::{self, ArtifactPaths};
use admit_core::hash::sha256_hex;
use admit_core::json::{Object, Value, write_object};
use admit_core::{Clock, Fault, FaultKind, Millis};
use admit_ledger::closures::{Closures, RunScope, UnsettledCounts};
use bytes::Bytes;
use tokio::sync::Semaphore;

pub use document::redacted;
pub(crate) use document::{ambiguities, ingress, notes, policies, quarantine, splits};
pub use sent::SentTotals;
pub use tally::{ReceiptTotals, Split};

/// Folders of reports, below a run.
pub const FOLDERS: &[&str] = &["obs"];

/// Component name in governance lines.
pub(crate) const COMPONENT: &str = "run_reporter";

/// Maximum concurrent reports and closings; each reads everything of a run.
const CONCURRENT_REPORTS_MAX: usize = 2;

/// JSON path of the run id in the facts of an event.
const RUN_IN_FACTS: &str = "$.envelope.platform_run_id";

/// Dependencies of reports and closures.
pub struct ReportParts {
    /// Ledger of runs and receipts.
    pub ledger: Arc<dyn Closures>,
    /// Artifact store.
    pub artifacts: Arc<dyn Artifacts>,
    /// Artifact layout.
    pub paths: ArtifactPaths,
    /// Bus of admitted events.
    pub bus: Arc<dyn Bus>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Settings.
    pub settings: Settings,
}

/// Metadata in reports, and timeouts of closing.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long closing waits for effects in flight and files being written.
    pub closing_wait: Duration,
    /// Effective settings, as shown in the report.
    pub knobs: Object<'static>,
    /// Release, configuration and build that made the report.
    pub provenance: Object<'static>,
    /// Locator of the ledger, [redacted] by the caller.
    pub locator: String,
    /// The config file, if any.
    pub profile: Option<String>,
    /// All topics that events are published to.
    pub topics: Vec<String>,
    /// All outputs of events; `None` if unknown.
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

/// Reports and closes runs.
pub struct RunReporter {
    pub(crate) ledger: Arc<dyn Closures>,
    pub(crate) artifacts: ScopedArtifacts,
    pub(crate) paths: ArtifactPaths,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// Runs that this process is closing.
    pub(crate) closing: Mutex<HashSet<String>>,
    permits: Semaphore,
}

impl fmt::Debug for RunReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunReporter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl RunReporter {
    /// Creates a reporter.
    pub fn new(parts: ReportParts) -> Self {
        let ReportParts { ledger, artifacts, paths, bus, clock, settings } = parts;
        Self {
            artifacts: ScopedArtifacts::new(artifacts, paths.prefix(), FOLDERS),
            ledger,
            paths,
            bus,
            clock,
            settings,
            closing: Mutex::default(),
            permits: Semaphore::new(CONCURRENT_REPORTS_MAX),
        }
    }

    /// Builds the report of a run, and writes it below the run. `None` if the run does not exist.
    ///
    /// # Errors
    /// When the ledger or the artifacts cannot be read.
    pub async fn report(&self, id: &str) -> Result<Option<Object<'static>>, Fault> {
        let Some(run) = self.ledger.run(id.to_owned()).await? else { return Ok(None) };
        let _permit = self.acquire_permit().await?;
        let facts = document::ReportInput {
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
        // Return the report even if its file cannot be written.
        let refs = match self.publish(id, &reference, &report, &digest, now).await {
            Ok(()) => vec![reference],
            Err(error) => {
                tracing::error!(run = id, %error, "failed to write the report file; the report is returned without it");
                Vec::new()
            }
        };
        report.push("artifact_refs", refs);
        Ok(Some(report))
    }

    /// Writes a report, and appends to the governance log if its content is new.
    async fn publish(
        &self,
        run: &str,
        reference: &str,
        report: &Object<'_>,
        digest: &str,
        now: Millis,
    ) -> Result<(), ArtifactsError> {
        let file = File::new(reference, line_of(report));
        for written in self.artifacts.show(vec![file]).await {
            written?;
        }
        let details = Object::from_iter([
            ("report_ref", Value::from(reference.to_owned())),
            ("content_digest", digest.to_owned().into()),
        ]);
        let dedupe_key = format!("run_report:{digest}");
        self.append_governance_line(
            GovernanceFamily::RunReportGenerated,
            run,
            &dedupe_key,
            now,
            details,
        )
        .await?;
        self.artifacts.compose(&self.paths.governance_log(run)).await
    }

    /// Appends to the governance log of a run, once. A line with a fixed time is deduplicated by
    /// the log itself, so that no crash can lose it; a line with a new time by its marker.
    pub(crate) async fn append_governance_line(
        &self,
        family: GovernanceFamily,
        run: &str,
        dedupe_key: &str,
        at: Millis,
        details: Object<'static>,
    ) -> Result<(), ArtifactsError> {
        let has_fixed_time = family != GovernanceFamily::RunReportGenerated;
        let markers = if has_fixed_time { Markers::Verified } else { Markers::Trusted };
        let line = governance::GovernanceLine {
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
        let appended = self.artifacts.append_lines(&log, lines, markers).await;
        appended.into_iter().try_for_each(|appended| appended.map(drop))
    }

    /// Counts of unsettled effects of a run.
    pub(crate) async fn unsettled(&self, run: &str) -> Result<UnsettledCounts, Fault> {
        let of = RunScope { door: ingestion_gate::DOOR, path: RUN_IN_FACTS, run };
        self.ledger.unsettled(of).await
    }

    /// Acquires a permit for a report or closing.
    pub(crate) async fn acquire_permit(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Fault> {
        let stopped = |_| Fault::new(FaultKind::Internal, "reports are stopped");
        self.permits.acquire().await.map_err(stopped)
    }

    pub(crate) fn closing(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object as a line of JSON.
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
    Fault::caused_by(FaultKind::Internal, "failed to read the files of the run; retry later", error)
}
