//! The ledger on PostgreSQL: any number of gates in front of one database.
//!
//! Each gate has one writer thread that does group commit ([`writer`]); the gates write one batch after the
//! other, because every transaction first locks the head of the ledger ([`head_lock`]). Reads go through a
//! bounded pool ([`reader`]). Each port is implemented in the file of its name. Readable by anyone with
//! `psql` while gates run; the tables have the same names as in the embedded ledger.

mod attachments;
mod batch;
mod bus_holder;
mod commit_token;
mod conn;
mod connect;
pub(crate) mod copy_target;
mod documents;
mod driver;
mod effect_store;
mod fault;
mod gate_poll;
mod head_lock;
mod health;
mod inbox;
mod issuing;
mod migrate;
mod nul_escape;
mod open;
mod partitions;
mod read_ports;
mod reader;
mod records;
mod retention;
mod session;
pub mod verify;
mod write_op;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use admit_core::{Age, Entry, Fault, Horizon, RecordedEntry, panic_guard};

use crate::SchemaMigration;
use crate::common::hang_watch::{COMMIT_MAX, HangWatch};
use crate::common::health::Health;
use crate::common::notifier::Notifier;
use crate::common::queue::Queue;
use crate::common::retention::Sweeper;
use crate::common::write_command;
use crate::gauges::Gauges;
use crate::port::{Admissions, BoxFuture};
use crate::tables;
use conn::Columns as _;
use connect::Connector;
use gate_poll::{ChangeMarker, poll_other_gates};
use migrate::Schema;
use partitions::Partitions;
use reader::Readers;
use write_op::{ErasedWriteOp, WriteOp};
use writer::{Epochs, GateLease, Writer};

pub use crate::common::RefusalQuota;
pub use attachments::reattach;
pub use open::OpenError;
pub use session::{Session, SessionError};

/// Includes a statement from the file of its name; the comments there give the reasons.
macro_rules! sql {
    (shared $name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queries/", $name, ".sql"))
    };
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/queries/", $name, ".sql"))
    };
}
use sql;

/// A command of this ledger's writer.
type WriteCommand = write_command::WriteCommand<Box<dyn ErasedWriteOp>>;

/// How to open the ledger.
#[derive(Clone)]
pub struct Options {
    /// Address of the database: `postgres://user@host:5432/name`.
    pub url: String,
    /// Password, if it is not part of the address.
    pub password: Option<String>,
    /// Trusted certificates; with them, only a verified server is accepted.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Schema of the tables; created if it does not exist.
    pub schema: String,
    /// Gate id, stored with its epochs.
    pub owner: String,
    /// Whether the gate id is exclusive to this gate. Then a start under it ends the lease of the previous
    /// process, so that its effects are recovered at once; and a process whose id was taken by another one
    /// stops.
    pub is_named: bool,
    /// Quota of stored refusals.
    pub refusal_quota: RefusalQuota,
    /// Maximum events per commit. More raise throughput and latency too.
    pub commit_events_max: usize,
    /// Maximum calls waiting for the writer; one more gets `overloaded`.
    pub waiting_max: usize,
    /// Retention age; `None` for ever. See [`Retention`](crate::Retention).
    pub retain: Option<Age>,
    /// Maximum concurrent queries, each on its own connection.
    pub readers_max: usize,
    /// How long a query waits for a connection before it gets `overloaded`.
    pub reader_wait: Duration,
    /// Timeout of connecting.
    pub connect_timeout: Duration,
    /// Statement timeout of the server.
    pub statement_timeout: Duration,
    /// Lock timeout; a gate that freezes in a transaction is disconnected after half of it.
    pub lock_timeout: Duration,
    /// Lease duration: how long a silent gate is treated as alive.
    pub lease: Duration,
    /// Seqs per partition.
    pub partition_places: u64,
    /// A commit that takes longer counts as hung, and the ledger as unhealthy until it ends.
    pub commit_max: Duration,
}

impl Options {
    /// The settings the gate runs with.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            tls: None,
            schema: "public".to_owned(),
            owner: "gate".to_owned(),
            is_named: false,
            refusal_quota: RefusalQuota::default(),
            commit_events_max: 1024,
            waiting_max: 16_384,
            retain: None,
            readers_max: 8,
            reader_wait: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            lease: Duration::from_secs(15),
            partition_places: 1_000_000,
            commit_max: COMMIT_MAX,
        }
    }
}

/// Omits secrets.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("schema", &self.schema)
            .field("owner", &self.owner)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// A gate's handle of the ledger. Dropping it finishes queued calls and ends the lease.
pub struct PostgresLedger {
    /// First field, so that queued calls finish before anything else is dropped.
    queue: Queue<Box<dyn ErasedWriteOp>>,
    readers: Readers,
    epochs: Arc<Epochs>,
    lease: Duration,
    health: Arc<Health>,
    gauges: Arc<Gauges>,
    notifier: Arc<Notifier>,
    horizon: Horizon,
    sweeper: tokio::sync::Mutex<Sweeper>,
    _watch: HangWatch,
}

/// State of an opened ledger.
struct OpenedLedger {
    tag: u32,
    epochs: Arc<Epochs>,
    marker: ChangeMarker,
    horizon: Horizon,
    sweeper: Sweeper,
}

impl PostgresLedger {
    /// Connects, migrates the tables and starts the threads. Blocks, as opening a file does. When it returns
    /// the doors may open.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let connector = Connector::new(&options)?;
        let (health, notifier) = (Arc::new(Health::new()), Arc::new(Notifier::default()));
        let gauges = Arc::new(Gauges::default());
        let (commands, waiting) = sync_channel(options.waiting_max);
        let (report, opened) = sync_channel(1);
        let writer = {
            let (options, connector) = (options.clone(), connector.clone());
            let shared = (health.clone(), gauges.clone(), notifier.clone());
            let health = health.clone();
            move || match start(&options, connector, shared) {
                Ok((writer, found)) => {
                    report.send(Ok(found)).unwrap_or_default();
                    panic_guard::run(|| serve(writer, &waiting), || health.panicked());
                }
                Err(error) => report.send(Err(error)).unwrap_or_default(),
            }
        };
        let failed = |source| OpenError::Thread { source };
        let watch = HangWatch::start(&health, options.commit_max).map_err(failed)?;
        let named = thread::Builder::new().name("ledger-writer".to_owned());
        let writer = named.spawn(writer).map_err(failed)?;
        let ended = |_| failed(std::io::Error::other("the writer ended before it began"));
        let OpenedLedger { tag, epochs, marker, horizon, sweeper } =
            opened.recv().map_err(ended)??;
        let ledger = Self {
            queue: Queue::new(commands, gauges.clone(), vec![writer]),
            readers: Readers::new(&options, &connector, tag)?,
            epochs,
            lease: options.lease,
            health,
            gauges,
            notifier,
            horizon,
            sweeper: tokio::sync::Mutex::new(sweeper),
            _watch: watch,
        };
        ledger.notifier.advance_newest(marker.last_seq);
        let notifier = Arc::downgrade(&ledger.notifier);
        ledger.readers.spawn(poll_other_gates(ledger.readers.pool_handle(), notifier, marker));
        Ok(ledger)
    }

    /// The current epoch of this gate. It changes when the lease ran out and was taken again.
    pub fn epoch(&self) -> u64 {
        self.epochs.current()
    }
}

type SharedParts = (Arc<Health>, Arc<Gauges>, Arc<Notifier>);

/// Opens the ledger on the writer's own thread.
fn start(
    options: &Options,
    connector: Connector,
    (health, gauges, notifier): SharedParts,
) -> Result<(Writer, OpenedLedger), OpenError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = Arc::new(runtime.map_err(|source| OpenError::Thread { source })?);
    let place = connector.place();
    let conn = connector
        .own(&runtime)
        .map_err(|error| OpenError::Unreachable { place: place.clone(), source: error.into() })?;
    Schema { place: &place, name: &options.schema }.migrate(&conn)?;
    let fail =
        |error: conn::Error| OpenError::Database { place: place.clone(), source: error.into() };
    let head = conn.query_one(sql!("head_get"), &[]).map_err(fail)?;
    let (tag, marker) =
        (head.small("tag").map_err(fail)?, ChangeMarker::read(&head).map_err(fail)?);
    let horizon = tables::retention::load_horizon(&conn, options.retain).map_err(fail)?;
    let sweeper = tables::retention::load_sweeper(&conn).map_err(fail)?;
    conn.execute(sql!("token_sweep"), &[]).map_err(fail)?;
    let lease = GateLease::take(&conn, options).map_err(fail)?;
    let opened =
        OpenedLedger { tag, epochs: lease.shared(), marker, horizon: horizon.clone(), sweeper };
    let writer = Writer {
        connector,
        runtime,
        conn: Some(conn),
        tag,
        lease,
        partitions: Partitions::new(options.partition_places),
        quota: options.refusal_quota,
        commit_events_max: options.commit_events_max,
        horizon,
        resolve_max: options.lock_timeout + options.connect_timeout,
        health,
        gauges,
        notifier,
        unresolved: None,
    };
    Ok((writer, opened))
}

fn serve(writer: Writer, waiting: &Receiver<WriteCommand>) {
    writer.run(waiting);
}

impl PostgresLedger {
    /// Runs a write operation in the next commit.
    async fn write<W: WriteOp>(&self, op: W) -> Result<W::Output, Fault> {
        let (op, result) = write_op::pending(op);
        self.queue.op(op, result).await
    }
}

impl Admissions for PostgresLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>> {
        self.queue.record(batch)
    }
}

/// A read-only ledger.
pub struct PostgresReader {
    readers: Readers,
}

impl PostgresReader {
    /// Opens an existing ledger for reading.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let connector = Connector::new(options)?;
        let tag = on_blocking_thread(|| {
            let (conn, place) = connect_once(&connector)?;
            Schema { place: &place, name: &options.schema }.check(&conn)?;
            let tag = conn.query_one(sql!("head_get"), &[]).and_then(|row| row.small("tag"));
            tag.map_err(|error| OpenError::Database { place, source: error.into() })
        })?;
        Ok(Self { readers: Readers::new(options, &connector, tag)? })
    }
}

/// Migrates the tables to the version of this build, and nothing else.
pub fn migrate(options: &Options) -> Result<SchemaMigration, OpenError> {
    let connector = Connector::new(options)?;
    on_blocking_thread(|| {
        let (conn, place) = connect_once(&connector)?;
        Schema { place: &place, name: &options.schema }.migrate(&conn)
    })
}

fn connect_once(connector: &Connector) -> Result<(conn::Conn, String), OpenError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = Arc::new(runtime.map_err(|source| OpenError::Thread { source })?);
    let place = connector.place();
    match connector.own(&runtime) {
        Ok(conn) => Ok((conn, place)),
        Err(error) => Err(OpenError::Unreachable { place, source: error.into() }),
    }
}

/// Runs on a thread without a runtime, so that it may block in any context of the caller.
fn on_blocking_thread<T: Send>(
    op: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<T, OpenError> {
    thread::scope(|scope| {
        let ended = |_| OpenError::Thread { source: std::io::Error::other("opening panicked") };
        scope.spawn(op).join().map_err(ended)?
    })
}
