//! Puts the books of runs together: what reports say of this gate, and who may close runs by them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_core::Fault;
use admit_core::closure::Manifest;
use admit_core::effect::Attribution;
use admit_core::json::{Object, Value};
use admit_gate::SystemClock;
use admit_gate::accounts::{Accounts, NotClosed, Work};
use admit_runs::closure;
use admit_runs::report::{self, RunReporter, Parts, Settings};

use crate::artifacts;
use crate::config::Config;
use crate::ledger::GateLedger;
use crate::output::Failure;

/// The longest that reading everything of a run may take.
const ACCOUNT_MAX: Duration = Duration::from_secs(600);

/// The books behind the routes of the gate.
pub(crate) struct RunBooks {
    books: Arc<RunReporter>,
    patience: Duration,
}

/// The books of the runs that the config describes; reports name `commit`.
pub(crate) fn open(
    config: &Config,
    base: &Path,
    ledger: Arc<dyn GateLedger>,
    bus: Arc<dyn Bus>,
    commit: &str,
) -> Result<Arc<RunBooks>, Failure> {
    let ingestion = &config.doors.ingestion_gate;
    let paths = config.artifacts_place().map_err(Failure::usage)?.paths();
    let is_open = config.principals.is_empty();
    let contract = ingestion
        .contract(base, paths, is_open, config.limits.json_depth_max)
        .map_err(Failure::usage)?;
    let mut provenance = contract.provenance();
    provenance.push("build_version", env!("CARGO_PKG_VERSION"));
    provenance.push("build_commit", commit.to_owned());
    let closing_wait = Duration::from_millis(ingestion.closing_wait_ms);
    let books = RunReporter::new(Parts {
        ledger,
        artifacts: artifacts::open(config)?,
        paths: contract.paths().clone(),
        bus,
        clock: Arc::new(SystemClock),
        settings: Settings {
            closing_wait,
            knobs: knobs(config),
            provenance,
            locator: report::redacted(config.ledger.url.as_str()),
            profile: std::env::var(crate::config::CONFIG_FILE).ok().filter(|path| !path.is_empty()),
            topics: contract.topics(),
            outputs: Some(contract.policy().event_types().into_iter().map(str::to_owned).collect()),
        },
    });
    Ok(Arc::new(RunBooks { books: Arc::new(books), patience: ACCOUNT_MAX + closing_wait }))
}

/// The knobs in force on this gate. Those of the streamer are what its config says here; a streamer
/// elsewhere, or with flags, may run with others.
fn knobs(config: &Config) -> Object<'static> {
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

impl Accounts for RunBooks {
    fn recover(self: Arc<Self>) -> Work<Result<(), Fault>> {
        Box::pin(async move { self.books.recover().await })
    }

    fn report(self: Arc<Self>, run: String) -> Work<Result<Option<Object<'static>>, Fault>> {
        Box::pin(async move { self.books.report(&run).await })
    }

    fn close(
        self: Arc<Self>,
        run: String,
        manifest: Option<Manifest>,
        by: Attribution,
    ) -> Work<Result<Object<'static>, NotClosed>> {
        Box::pin(async move {
            match self.books.close(&run, manifest, by).await {
                Ok(closed) => {
                    let mut document = closed.document;
                    document.push("closure_ref", closed.reference);
                    Ok(document)
                }
                Err(closure::NotClosed::Unknown) => Err(NotClosed::Unknown),
                Err(closure::NotClosed::InWork) => Err(NotClosed::InWork),
                Err(closure::NotClosed::Refused { state, objections }) => {
                    Err(NotClosed::Refused { state, objections })
                }
                Err(closure::NotClosed::Fault(fault)) => Err(NotClosed::Fault(fault)),
            }
        })
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
