//! Workspace of a benchmark run: its temporary folder, and the location of its ledgers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admit_core::Clock as _;
use admit_gate::SystemClock;
use admit_ledger::sqlite::{self, KeyIndexKind, SqliteLedger};

use crate::config::{Config, LedgerConfig};
use crate::ledger::{GateLedger, open_ledger};
use crate::output::Failure;

/// Folder of a run, and the kind of ledger to measure.
pub(super) struct BenchWorkspace {
    dir: PathBuf,
    ledger: LedgerConfig,
}

impl BenchWorkspace {
    /// Checks the ledger's `url`; `None` for the embedded ledger.
    pub(super) fn new(dir: &Path, url: Option<&str>) -> Result<Self, Failure> {
        let mut ledger = LedgerConfig::default();
        if let Some(url) = url {
            ledger.url = url.into();
        }
        ledger.check(Path::new("")).map_err(Failure::usage)?;
        Ok(Self { dir: dir.to_owned(), ledger })
    }

    /// Folder of one line.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// URL of the database, with a PostgreSQL ledger.
    #[cfg(feature = "postgres")]
    pub(super) fn database(&self) -> Option<&str> {
        self.ledger.url.is_postgres().then(|| self.ledger.url.as_str())
    }

    /// Schema of one line, unique to this process.
    pub(super) fn schema(name: &str) -> String {
        let name = name.replace('-', "_");
        format!("admit_bench_{}_{name}", std::process::id())
    }

    /// Opens an embedded ledger that inserts each key into a unique index at once, without merging.
    pub(super) fn open_with_unique_index(
        &self,
        name: &str,
    ) -> Result<Arc<dyn GateLedger>, Failure> {
        let options = sqlite::Options {
            key_index: KeyIndexKind::Plain,
            ..sqlite::Options::new(self.dir(name), SystemClock.now())
        };
        Ok(Arc::new(SqliteLedger::open(options).map_err(Failure::runtime)?))
    }

    /// Opens the ledger of one line; opening it again opens the same ledger.
    pub(super) fn open(&self, name: &str) -> Result<Arc<dyn GateLedger>, Failure> {
        let mut ledger = self.ledger.clone();
        ledger.schema = Self::schema(name);
        ledger.gate_id = "bench".to_owned();
        let config = Config { data: self.dir(name), ledger, ..Config::default() };
        open_ledger(&config, Path::new(""))
    }
}
