//! Opens the ledger of a config, SQLite or PostgreSQL.
//!
//! All other code uses the ports, so gate and commands are the same on every ledger.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_core::Clock as _;
use admit_gate::publisher::PublishedRecords;
use admit_gate::{StreamPorts, SystemClock};
use admit_ledger::closures::Closures;
use admit_ledger::port::{Attachments, Store, StoreId};
#[cfg(feature = "postgres")]
use admit_ledger::postgres::{self, PostgresLedger, PostgresReader};
use admit_ledger::scenario_runs::{ScenarioRunReader, ScenarioRuns};
use admit_ledger::sqlite::unreadable::{self, UnreadableCell};
use admit_ledger::sqlite::{self, SqliteLedger, SqliteReader};
use admit_ledger::verify::Verifier;
use admit_ledger::{
    DocumentReader, EffectReader, Inbox, Issuance, PublicationReader, Reader, RecordReader,
    SchemaMigration, Streams, WholeLedger,
};
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;
#[cfg(feature = "postgres")]
use crate::config::load_ledger_tls;
use crate::output::Failure;
#[cfg(feature = "postgres")]
use crate::output::with_cause;

/// A ledger with all ports of a gate.
pub(crate) trait GateLedger:
    WholeLedger + StreamPorts + Issuance + ScenarioRuns + Closures + PublishedRecords + Attachments
{
}

impl<L> GateLedger for L where
    L: WholeLedger
        + StreamPorts
        + Issuance
        + ScenarioRuns
        + Closures
        + PublishedRecords
        + Attachments
{
}

/// A ledger with all read ports; it can be opened while a gate is running.
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

/// Opens the ledger for a gate, with crash recovery. Relative files of the config start at `base`.
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
        wal_writes: config.ledger.wal_writes(),
        ..sqlite::Options::new(&config.data, SystemClock.now())
    };
    Ok(Arc::new(SqliteLedger::open(options).map_err(Failure::runtime)?))
}

/// Longest commit. After that the request has already returned `outcome_unknown`.
fn commit_max(config: &Config) -> Duration {
    Duration::from_millis(config.limits.answer_ms_max)
}

/// Opens the ledger read-only, with a runtime for its queries.
pub(crate) fn open_reader(
    config: &Config,
    base: &Path,
) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    config.ledger.check(base).map_err(Failure::usage)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("failed to start the async runtime: {error}")))?;
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        // Commands run their queries one at a time.
        let options = postgres::Options { readers_max: 2, ..postgres_options(config, base)? };
        let ledger = PostgresReader::open(&options).map_err(|error| with_cause(&error))?;
        return Ok((Box::new(ledger), runtime));
    }
    let ledger = SqliteReader::open(&config.data).map_err(|error| cannot_open(config, &error))?;
    Ok((Box::new(ledger), runtime))
}

/// A ledger without its unreadable rows, the runtime that reads it, and the cells that are not UTF-8.
pub(crate) type ReadableRows = (Box<dyn LedgerReader>, Runtime, Vec<UnreadableCell>);

/// Opens the ledger read-only without the rows that have a cell which is not UTF-8. Returns those cells;
/// PostgreSQL stores none.
pub(crate) fn open_readable_rows(config: &Config, base: &Path) -> Result<ReadableRows, Failure> {
    let (reader, runtime) = open_reader(config, base)?;
    if config.ledger.url.is_postgres() {
        return Ok((reader, runtime, Vec::new()));
    }
    let fail = |error| cannot_open(config, &error);
    let found = unreadable::find(&config.data).map_err(fail)?;
    let cells = found.cells.clone();
    let reader = SqliteReader::open_hiding(&config.data, found).map_err(fail)?;
    Ok((Box::new(reader), runtime, cells))
}

/// Opens the ledger for a consistency check. With `forgets`, retention has removed rows, so a missing
/// row is not an error.
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

/// Migrates the ledger to the schema version of this build.
pub(crate) fn migrate_ledger(config: &Config, base: &Path) -> Result<SchemaMigration, Failure> {
    #[cfg(feature = "postgres")]
    if config.ledger.url.is_postgres() {
        let options = postgres_options(config, base)?;
        return postgres::migrate(&options).map_err(|error| with_cause(&error));
    }
    #[cfg(not(feature = "postgres"))]
    let _ = base;
    sqlite::migrate(&config.data).map_err(Failure::runtime)
}

/// Attaches a store to the ledger in place of the previous one, which is returned.
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

/// PostgreSQL options of the config.
#[cfg(feature = "postgres")]
pub(crate) fn postgres_options(config: &Config, base: &Path) -> Result<postgres::Options, Failure> {
    let ledger = &config.ledger;
    let owner = match ledger.gate_id.as_str() {
        "" => format!("{}/{}", hostname(), std::process::id()),
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

/// Host name, or `gate` if it is unknown.
#[cfg(feature = "postgres")]
fn hostname() -> String {
    let kernel_name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = kernel_name.ok().or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    match name.trim() {
        "" => "gate".to_owned(),
        name => name.to_owned(),
    }
}

/// Failure for a ledger that cannot be opened.
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
