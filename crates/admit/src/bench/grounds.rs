//! Where the bench's ledgers are: in its temporary folder, or in a database of the operator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::{Config, LedgerConfig};
use crate::ledger::{GateLedger, open_ledger};
use crate::output::Failure;

/// The folder of this run, and which kind of ledger is measured.
pub(super) struct Grounds {
    dir: PathBuf,
    ledger: LedgerConfig,
}

impl Grounds {
    /// Ledgers at `url`, which is checked; `None` is the embedded one.
    pub(super) fn new(dir: &Path, url: Option<&str>) -> Result<Self, Failure> {
        let mut ledger = LedgerConfig::default();
        if let Some(url) = url {
            ledger.url = url.into();
        }
        ledger.check(Path::new("")).map_err(Failure::usage)?;
        Ok(Self { dir: dir.to_owned(), ledger })
    }

    /// A folder of its own for one line.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The database, where there is one.
    #[cfg(feature = "postgres")]
    pub(super) fn database(&self) -> Option<&str> {
        self.ledger.url.is_postgres().then(|| self.ledger.url.as_str())
    }

    /// The schema of one line. Nobody else's tables are touched.
    pub(super) fn schema(name: &str) -> String {
        let name = name.replace('-', "_");
        format!("admit_bench_{}_{name}", std::process::id())
    }

    /// Opens a ledger for one line; opened again it is the same one.
    pub(super) fn open(&self, name: &str) -> Result<Arc<dyn GateLedger>, Failure> {
        let mut ledger = self.ledger.clone();
        ledger.schema = Self::schema(name);
        ledger.gate_id = "bench".to_owned();
        let config = Config { data: self.dir(name), ledger, ..Config::default() };
        open_ledger(&config, Path::new(""))
    }
}
