//! Where the ledger comes from: the one place that knows which kind the config names.
//!
//! Everything else asks for the ports, so a gate and its commands are the same on every ledger.

use std::io;
use std::sync::Arc;

use admit_core::Clock as _;
use admit_gate::{SystemClock, WayOut};
use admit_ledger::closures::Closures;
use admit_ledger::scenario_runs::{ScenarioRunReader, ScenarioRuns};
use admit_ledger::sqlite::{self, SqliteLedger, SqliteReader};
use admit_ledger::{
    EffectReader, Inbox, Issuance, IssuedReader, Reader, RecordReader, Streams, WholeLedger,
};
use tokio::runtime::{Builder, Runtime};

use crate::config::Config;
use crate::output::Failure;

/// A ledger with every port that a gate writes through.
pub(crate) trait GateLedger:
    WholeLedger + WayOut + Issuance + ScenarioRuns + Closures
{
}

impl<L: WholeLedger + WayOut + Issuance + ScenarioRuns + Closures> GateLedger for L {}

/// A ledger with every port that only asks, beside a running gate too.
pub(crate) trait LedgerReader:
    Reader + EffectReader + IssuedReader + Inbox + RecordReader + ScenarioRunReader + Streams
{
}

impl<L> LedgerReader for L where
    L: Reader + EffectReader + IssuedReader + Inbox + RecordReader + ScenarioRunReader + Streams
{
}

/// Opens the ledger for a gate, and recovers what the last one left.
pub(crate) fn open_ledger(config: &Config) -> Result<Arc<dyn GateLedger>, Failure> {
    let retain = config.ledger.retain().map_err(Failure::usage)?;
    let options =
        sqlite::Options { retain, ..sqlite::Options::new(&config.data, SystemClock.now()) };
    Ok(Arc::new(SqliteLedger::open(options).map_err(Failure::runtime)?))
}

/// Opens the ledger for questions, and a runtime to ask them on.
pub(crate) fn open_reader(config: &Config) -> Result<(Box<dyn LedgerReader>, Runtime), Failure> {
    let ledger = SqliteReader::open(&config.data).map_err(|error| cannot_open(config, &error))?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start: {error}")))?;
    Ok((Box::new(ledger), runtime))
}

/// Why the ledger of this config is not open.
pub(crate) fn cannot_open(config: &Config, error: &sqlite::OpenError) -> Failure {
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
