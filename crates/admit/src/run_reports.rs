//! Builds the run reporter of a gate: run reports, and closing of runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_core::Fault;
use admit_core::closure::Manifest;
use admit_core::effect::Attribution;
use admit_core::json::{Object, Value};
use admit_gate::SystemClock;
use admit_gate::run_reports::{ReportFuture, RunCloseError, RunReports};
use admit_runs::closure;
use admit_runs::report::{self, ReportParts, RunReporter, Settings};

use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;
use crate::{artifacts, bus};

/// Longest time to read all data of a run.
const REPORT_MAX: Duration = Duration::from_secs(600);

/// Run reports behind the gate's routes.
pub(crate) struct RunReportService {
    reporter: Arc<RunReporter>,
    timeout: Duration,
}

/// Builds the run reports of the config; they contain the build's `commit`.
pub(crate) fn open(
    config: &Config,
    base: &Path,
    ledger: Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
    commit: &str,
) -> Result<Arc<RunReportService>, Failure> {
    let ingestion = &config.doors.ingestion_gate;
    let paths = config.artifacts_location().map_err(Failure::usage)?.paths();
    let is_open = config.principals.is_empty();
    let contract = ingestion
        .contract(base, paths, is_open, config.limits.json_depth_max)
        .map_err(Failure::usage)?;
    let mut provenance = contract.provenance();
    provenance.push("build_version", env!("CARGO_PKG_VERSION"));
    provenance.push("build_commit", commit.to_owned());
    let closing_wait = Duration::from_millis(ingestion.closing_wait_ms);
    let reporter = RunReporter::new(ReportParts {
        ledger,
        artifacts: artifacts::open(config)?,
        paths: contract.paths().clone(),
        bus,
        clock: Arc::new(SystemClock),
        settings: Settings {
            closing_wait,
            knobs: settings_of(config),
            provenance,
            locator: report::redacted(config.ledger.url.as_str()),
            profile: std::env::var(crate::config::CONFIG_FILE).ok().filter(|path| !path.is_empty()),
            topics: bus::run_topics(config, contract.topics()),
            outputs: Some(contract.policy().event_types().into_iter().map(str::to_owned).collect()),
        },
    });
    Ok(Arc::new(RunReportService {
        reporter: Arc::new(reporter),
        timeout: REPORT_MAX + closing_wait,
    }))
}

/// Settings in force on this gate, for the report. The streamer's are those of this config; a streamer
/// on another machine or with flags may use others.
fn settings_of(config: &Config) -> Object<'static> {
    let (gate, stream) = (&config.doors.ingestion_gate, &config.stream);
    let gate = Object::from_iter([
        ("in_flight_wait_ms", Value::from(gate.in_flight_wait_ms)),
        ("publish_wait_ms", gate.publish_wait_ms.into()),
        ("publish_batch_max", gate.publish_batch_max.into()),
        ("bus_delivery_timeout_ms", config.bus.delivery_timeout_ms.into()),
        ("bus_publish_failure_threshold", gate.bus_publish_failure_threshold.into()),
        ("health_probe_interval_seconds", gate.health_probe_interval_seconds.into()),
        ("health_deny_on_amber", gate.health_deny_on_amber.into()),
        ("push_rate_limit_per_minute", gate.push_rate_limit_per_minute.into()),
        ("artifacts_sync_ms", gate.artifacts_sync_ms.into()),
        ("closing_wait_ms", gate.closing_wait_ms.into()),
    ]);
    let stream = Object::from_iter([
        ("max_events_per_output", Value::from(stream.max_events_per_output)),
        ("ready_max_messages", stream.max_messages.into()),
        ("ig_retry_max_attempts", stream.retry_max_attempts.into()),
        ("ig_retry_base_delay_ms", stream.retry_base_delay_ms.into()),
        ("ig_retry_max_delay_ms", stream.retry_max_delay_ms.into()),
        ("checkpoint_every", stream.checkpoint_every.into()),
        ("in_flight", stream.in_flight.into()),
        ("output_concurrency", stream.concurrency.into()),
        ("stream_speedup", stream.speedup.0.into()),
        ("poll_ms", stream.poll_ms.into()),
    ]);
    Object::from_iter([("gate", Value::from(gate)), ("streamer", stream.into())])
}

impl RunReports for RunReportService {
    fn recover(self: Arc<Self>) -> ReportFuture<Result<(), Fault>> {
        Box::pin(async move { self.reporter.recover().await })
    }

    fn report(
        self: Arc<Self>,
        run: String,
    ) -> ReportFuture<Result<Option<Object<'static>>, Fault>> {
        Box::pin(async move { self.reporter.report(&run).await })
    }

    fn close(
        self: Arc<Self>,
        run: String,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> ReportFuture<Result<Object<'static>, RunCloseError>> {
        Box::pin(async move {
            match self.reporter.close(&run, manifest, by).await {
                Ok(closed) => {
                    let mut document = closed.document;
                    document.push("closure_ref", closed.reference);
                    Ok(document)
                }
                Err(closure::CloseError::Unknown) => Err(RunCloseError::Unknown),
                Err(closure::CloseError::InProgress) => Err(RunCloseError::InWork),
                Err(closure::CloseError::Refused { state, objections }) => {
                    Err(RunCloseError::Refused { state, objections })
                }
                Err(closure::CloseError::Fault(fault)) => Err(RunCloseError::Fault(fault)),
            }
        })
    }

    fn duration_max(&self) -> Duration {
        self.timeout
    }
}
