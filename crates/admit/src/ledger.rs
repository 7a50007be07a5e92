//! Where the ledger comes from: the one place that knows which kind the config names.
//!
//! Everything else asks for the ports, so a gate and its commands are the same on every ledger.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Clock as _;
use admit_gate::publisher::PublishedRecords;
use admit_gate::{SystemClock, WayOut};
use admit_ledger::closures::Closures;
use admit_ledger::port::{Attachments, Store, StoreId};
#[cfg(feature = "postgres")]
use admit_ledger::postgres::{self, PostgresLedger, PostgresReader};
use admit_ledger::scenario_runs::{ScenarioRunReader, ScenarioRuns};
use admit_ledger::sqlite::{self, SqliteLedger, SqliteReader};
use admit_ledger::verify::Verifier;
use admit_ledger::{
    EffectReader, Inbox, Issuance, DocumentReader, Migrated, PublicationReader, Reader, RecordReader,
    Streams, WholeLedger,
};
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;
#[cfg(feature = "postgres")]
use crate::config::load_ledger_tls;
use crate::output::Failure;
#[cfg(feature = "postgres")]
use crate::output::with_cause;

/// A ledger with every port that a gate writes through.
pub(crate) trait GateLedger:
    WholeLedger + WayOut + Issuance + ScenarioRuns + Closures + PublishedRecords + Attachments
{
}

impl<L> GateLedger for L where
    L: WholeLedger + WayOut + Issuance + ScenarioRuns + Closures + PublishedRecords + Attachments
{
}

/// A ledger with every port that only asks, beside a running gate too.
pub(crate) trait LedgerReader:
    Reader
    + EffectReader
    + DocumentReader
    + Inbox
    + RecordReader
    + PublicationReader
    + ScenarioRunReader
    + Streams
{
}

impl<L> LedgerReader for L where
    L: Reader
        + EffectReader
        + DocumentReader
        + Inbox
        + RecordReader
        + PublicationReader
        + ScenarioRunReader
        + Streams
{
}

/// Opens the ledger for a gate, and recovers what the last one left. `base` is where the config's
/// relative files start.
pub(crate) fn open_ledger(config: &Config, base: &Path) -> Result<Arc<dyn GateLedger>, Failure> {
    config.ledger.check(base).map_err(Failure::usage)?;
    let retain = config.ledger.retain().map_err(Failure::usage)?;
    let refusal_quota = config.ledger.refusal_quota();
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let commit_max = commit_max(config);
        let options = postgres_options(config, base)?;
        let options = postgres::Options { retain, refusal_quota, commit_max, ..options };
        return Ok(Arc::new(PostgresLedger::open(options).map_err(|error| with_cause(&error))?));
    }
    let options = sqlite::Options {
        retain,
        commit_max: commit_max(config),
        refusal_quota,
        ..sqlite::Options::new(&config.data, SystemClock.now())
    };
    Ok(Arc::new(SqliteLedger::open(options).map_err(Failure::runtime)?))
}

/// A commit that takes longer has been answered `outcome_unknown` already.
fn commit_max(config: &Config) -> Duration {
    Duration::from_millis(config.limits.answer_ms_max)
}

/// Opens the ledger for questions, and a runtime to ask them on.
pub(crate) fn open_reader(
    config: &Config,
    base: &Path,
) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    config.ledger.check(base).map_err(Failure::usage)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))?;
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        // A command asks one thing after the other.
        let options = postgres::Options { readers_max: 2, ..postgres_options(config, base)? };
        let ledger = PostgresReader::open(&options).map_err(|error| with_cause(&error))?;
        return Ok((Box::new(ledger), runtime));
    }
    let ledger = SqliteReader::open(&config.data).map_err(|error| cannot_open(config, &error))?;
    Ok((Box::new(ledger), runtime))
}

/// Opens the ledger for checking it against itself. `forgets` is whether retention has removed
/// something, so that what is missing proves nothing.
pub(crate) fn open_verifier(
    config: &Config,
    base: &Path,
    forgets: bool,
) -> Result<Verifier, Failure> {
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let options = postgres_options(config, base)?;
        let opened = postgres::verify::verifier(&options, forgets);
        return opened.map_err(|error| with_cause(&error));
    }
    #[cfg(not(feature = "postgres"))]
    let _ = base;
    let opened = sqlite::verify::verifier(&config.data, forgets);
    opened.map_err(|error| cannot_open(config, &error))
}

/// Brings the ledger to what this build needs, and nothing else.
pub(crate) fn migrate_ledger(config: &Config, base: &Path) -> Result<Migrated, Failure> {
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let options = postgres_options(config, base)?;
        return postgres::migrate(&options).map_err(|error| with_cause(&error));
    }
    #[cfg(not(feature = "postgres"))]
    let _ = base;
    sqlite::migrate(&config.data).map_err(Failure::runtime)
}

/// Records a store in the place of the one that belonged to the ledger, which is returned.
pub(crate) fn reattach(
    config: &Config,
    base: &Path,
    store: Store,
    id: StoreId,
) -> Result<Option<StoreId>, Failure> {
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let options = postgres_options(config, base)?;
        let attached = postgres::reattach(&options, store, id);
        return attached.map_err(|error| with_cause(&error));
    }
    #[cfg(not(feature = "postgres"))]
    let _ = base;
    sqlite::reattach(&config.data, store, id).map_err(|error| cannot_open(config, &error))
}

/// How the config wants a ledger on PostgreSQL to be opened.
#[cfg(feature = "postgres")]
pub(crate) fn postgres_options(config: &Config, base: &Path) -> Result<postgres::Options, Failure> {
    let ledger = &config.ledger;
    let owner = match ledger.gate_id.as_str() {
        "" => format!("{}/{}", machine(), std::process::id()),
        id => id.to_owned(),
    };
    Ok(postgres::Options {
        password: ledger.password(base).map_err(Failure::usage)?,
        tls: load_ledger_tls(ledger, base).map_err(Failure::usage)?,
        schema: ledger.schema.clone(),
        owner,
        is_named: !ledger.gate_id.is_empty(),
        readers_max: ledger.connections_max,
        reader_wait: Duration::from_millis(ledger.connection_wait_ms_max),
        connect_timeout: Duration::from_millis(ledger.connect_ms_max),
        statement_timeout: Duration::from_millis(ledger.statement_ms_max),
        lock_timeout: Duration::from_millis(ledger.lock_ms_max),
        lease: Duration::from_secs(ledger.lease_seconds),
        partition_places: ledger.partition_places,
        ..postgres::Options::new(ledger.url.as_str())
    })
}

/// What this machine is called, as far as it can be told.
#[cfg(feature = "postgres")]
fn machine() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = told.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    match name.trim() {
        "" => "gate".to_owned(),
        name => name.to_owned(),
    }
}

/// Why the ledger of this config is not open.
fn cannot_open(config: &Config, error: &sqlite::OpenError) -> Failure {
    if let sqlite::OpenError::Folder { source, .. } = error
        && source.kind() == io::ErrorKind::NotFound
    {
        let data = config.data.display();
        return Failure::runtime(format!(
            "there is no ledger in {data}\n  name the gate's folder with --data, or its config \
             with --config"
        ));
    }
    Failure::runtime(error)
}
