//! Several gates on one ledger in PostgreSQL, with a network between them that can be hurt.
//!
//! Every gate has a data folder and a file bus of its own; artifacts are shared. A message that
//! exists twice is therefore in two files or twice in one, and both are found.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use admit_testkit::postgres::Server;
use admit_testkit::proxy::{Faults, Proxy};
use tempfile::TempDir;

use super::gate::{self, Gate, Launch};
use super::ingest::{STREAM, published};
use super::machine::text;
use super::sql::{Database, FromCell, Row};
use super::{SOON, until};

/// How long a gate may be silent, in seconds.
pub(crate) const LEASE_SECONDS: u64 = 2;

/// A server, a proxy in front of it, and gates behind that.
pub(crate) struct Cluster {
    folder: TempDir,
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    gates: Vec<Mutex<Option<Gate>>>,
    variables: Vec<(String, String)>,
}

impl Cluster {
    /// So many gates, all running; `None` where there is no server, which has been said.
    pub(crate) fn start(gates: usize, variables: &[(&str, &str)]) -> Option<Self> {
        let server = Server::start()?;
        let proxy = Proxy::to(server.address(), Faults::default(), 0).unwrap();
        let gates = (0..gates).map(|_| Mutex::new(None)).collect();
        let folder = tempfile::tempdir().unwrap();
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let variables = variables.iter().map(own).collect();
        let cluster = Self { folder, server, proxy, gates, variables };
        for index in 0..cluster.len() {
            cluster.open(index);
        }
        Some(cluster)
    }

    pub(crate) fn len(&self) -> usize {
        self.gates.len()
    }

    /// The data folder of a gate.
    pub(crate) fn data(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("gate-{index}"))
    }

    /// Where the files that receipts name are.
    pub(crate) fn artifacts(&self) -> PathBuf {
        self.folder.path().join("artifacts")
    }

    /// The config of a gate, as variables.
    fn variables(&self, index: usize) -> Vec<(String, String)> {
        let url = format!("postgres://postgres@{}/postgres", self.proxy.address());
        let artifacts = format!("file:{}", self.artifacts().display());
        let own = [
            ("ADMIT_LEDGER__URL", url.as_str()),
            ("ADMIT_LEDGER__SCHEMA", "public"),
            ("ADMIT_LEDGER__GATE_ID", &format!("gate-{index}")),
            ("ADMIT_LEDGER__LEASE_SECONDS", &LEASE_SECONDS.to_string()),
            ("ADMIT_LEDGER__CONNECT_MS_MAX", "1000"),
            ("ADMIT_LEDGER__STATEMENT_MS_MAX", "3000"),
            ("ADMIT_LEDGER__LOCK_MS_MAX", "2000"),
            ("ADMIT_ARTIFACTS__URL", &artifacts),
            ("ADMIT_BUS__DELIVERY_TIMEOUT_MS", "50"),
            ("ADMIT_DOORS__INGESTION_GATE__ARTIFACTS_SYNC_MS", "50"),
        ];
        let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        own.chain(self.variables.iter().cloned()).collect()
    }

    fn launch(&self, index: usize) -> Launch {
        let launch = Launch::on(&self.data(index));
        let variables = self.variables(index);
        variables.iter().fold(launch, |launch, (name, value)| launch.variable(name, value))
    }

    /// Runs a command with the config of a gate; whether it went well, and what it printed.
    pub(crate) fn admit(&self, index: usize, words: &[&str]) -> (bool, String) {
        let data = self.data(index);
        let words = [words, &["--data", text(&data)]].concat();
        let output = gate::admit(words).envs(self.variables(index)).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Option<Gate>> {
        self.gates[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a gate, and again when the database or the network is away just then.
    pub(crate) fn open(&self, index: usize) {
        // Every gate has a file bus of its own, which no operator would want and the ledger does not
        // allow: each becomes the one of the ledger before its gate starts.
        let attach = ["ledger", "attach", "--bus", "--force"];
        let gate = until("the gate starts", SOON, || {
            self.admit(index, &["ledger", "migrate"]).0.then_some(())?;
            self.admit(index, &attach).0.then_some(())?;
            self.launch(index).try_start().ok()
        });
        *self.slot(index) = Some(gate);
    }

    /// Ends a gate as a power switch would.
    pub(crate) fn kill(&self, index: usize) {
        if let Some(gate) = self.slot(index).take() {
            gate.kill();
        }
    }

    /// Asks a gate to end and waits until it has, in peace.
    pub(crate) fn stop(&self, index: usize) {
        let gate = self.slot(index).take();
        gate.expect("the gate runs").stop();
    }

    /// Where a gate listens, while it runs.
    pub(crate) fn address(&self, index: usize) -> Option<SocketAddr> {
        self.slot(index).as_ref().map(Gate::address)
    }

    /// Does something with a gate that runs.
    pub(crate) fn with<T>(&self, index: usize, work: impl FnOnce(&Gate) -> T) -> T {
        work(self.slot(index).as_ref().expect("the gate runs"))
    }

    /// The database, beside the gates and not through the proxy.
    fn database(&self) -> Database {
        Database::at(&self.server.url("postgres"))
    }

    /// The rows of a question.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Row> {
        self.database().rows(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The only value of a question that has one.
    pub(crate) fn one<T: FromCell>(&self, sql: &str) -> T {
        self.rows(sql)[0].get(0)
    }

    /// How often each event is on a bus, all buses together.
    pub(crate) fn messages(&self) -> BTreeMap<String, usize> {
        let mut messages = BTreeMap::new();
        for index in 0..self.len() {
            for id in published(&self.data(index), STREAM) {
                *messages.entry(id).or_default() += 1;
            }
        }
        messages
    }

    /// Every gate says that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        (0..self.len()).all(|index| self.slot(index).as_ref().is_some_and(Gate::is_ready))
    }

    /// Ends every gate in peace.
    pub(crate) fn end(self) {
        for index in 0..self.len() {
            self.stop(index);
        }
    }
}

/// The document under a reference of a receipt.
pub(crate) fn document(artifacts: &Path, reference: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(artifacts.join(reference)).expect("the artifact is there");
    serde_json::from_str(&text).unwrap()
}
