//! Several gates on one PostgreSQL ledger, connected through a proxy that can inject faults.
//!
//! Every gate has a data folder and a file bus of its own; artifacts are shared. A message published
//! twice is therefore in two files or twice in one; [`Cluster::messages`] counts both.

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
use super::{TIMEOUT, wait_for};

/// Lease of a gate, in seconds.
pub(crate) const LEASE_SECONDS: u64 = 2;

/// A PostgreSQL server, a proxy in front of it, and gates that connect through the proxy.
pub(crate) struct Cluster {
    folder: TempDir,
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
    gates: Vec<Mutex<Option<Gate>>>,
    variables: Vec<(String, String)>,
}

impl Cluster {
    /// Starts `gates` gates; `None` (reported as skipped) where PostgreSQL is not installed.
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

    /// The artifacts folder that all gates share.
    pub(crate) fn artifacts(&self) -> PathBuf {
        self.folder.path().join("artifacts")
    }

    /// Config of a gate as environment variables.
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

    /// Runs a command with the config of a gate; returns whether it succeeded, and its output.
    pub(crate) fn admit(&self, index: usize, arguments: &[&str]) -> (bool, String) {
        let data = self.data(index);
        let arguments = [arguments, &["--data", text(&data)]].concat();
        let output = gate::admit(arguments).envs(self.variables(index)).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn slot(&self, index: usize) -> MutexGuard<'_, Option<Gate>> {
        self.gates[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a gate; retries while the database or the network is unavailable.
    pub(crate) fn open(&self, index: usize) {
        // A ledger accepts only one bus. Attach this gate's own file bus by force before each start.
        let attach = ["ledger", "attach", "--bus", "--force"];
        let gate = wait_for("the gate starts", TIMEOUT, || {
            self.admit(index, &["ledger", "migrate"]).0.then_some(())?;
            self.admit(index, &attach).0.then_some(())?;
            self.launch(index).try_start().ok()
        });
        *self.slot(index) = Some(gate);
    }

    /// Kills a gate with SIGKILL.
    pub(crate) fn kill(&self, index: usize) {
        if let Some(gate) = self.slot(index).take() {
            gate.kill();
        }
    }

    /// Stops a gate with SIGTERM and waits for a clean exit.
    pub(crate) fn stop(&self, index: usize) {
        let gate = self.slot(index).take();
        gate.expect("the gate runs").stop();
    }

    /// Address of a gate, while it runs.
    pub(crate) fn address(&self, index: usize) -> Option<SocketAddr> {
        self.slot(index).as_ref().map(Gate::address)
    }

    /// Calls `work` with a running gate.
    pub(crate) fn with<T>(&self, index: usize, work: impl FnOnce(&Gate) -> T) -> T {
        work(self.slot(index).as_ref().expect("the gate runs"))
    }

    /// Connects to the database directly, not through the proxy.
    fn database(&self) -> Database {
        Database::at(&self.server.url("postgres"))
    }

    /// Returns the rows of a query.
    pub(crate) fn rows(&self, sql: &str) -> Vec<Row> {
        self.database().rows(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Returns the first value of the first row.
    pub(crate) fn query_one<T: FromCell>(&self, sql: &str) -> T {
        self.rows(sql)[0].get(0)
    }

    /// Number of messages per event id, over all buses.
    pub(crate) fn messages(&self) -> BTreeMap<String, usize> {
        let mut messages = BTreeMap::new();
        for index in 0..self.len() {
            for id in published(&self.data(index), STREAM) {
                *messages.entry(id).or_default() += 1;
            }
        }
        messages
    }

    /// Whether every gate is ready.
    pub(crate) fn is_ready(&self) -> bool {
        (0..self.len()).all(|index| self.slot(index).as_ref().is_some_and(Gate::is_ready))
    }

    /// Stops every gate with SIGTERM.
    pub(crate) fn stop_all(self) {
        for index in 0..self.len() {
            self.stop(index);
        }
    }
}

/// Reads the artifact at `reference` as JSON.
pub(crate) fn document(artifacts: &Path, reference: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(artifacts.join(reference)).expect("the artifact exists");
    serde_json::from_str(&text).unwrap()
}
