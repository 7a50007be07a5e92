//! The ledger on PostgreSQL: any number of gates in front of one database.
//!
//! Each gate has one writer thread that does group commit ([`writer`]); all gates write one group
//! after the other, because every transaction first locks the head of the ledger ([`head`]). Reads
//! go through a bounded pool ([`reader`]). Every port is kept in the file of its subject. Readable by
//! anyone with `psql` while gates run; the tables have the names they have in the embedded ledger.

mod answers;
mod attachments;
mod batch;
mod bus_holder;
mod claims;
mod clock;
mod closures;
mod conn;
mod connect;
mod desk;
mod documents;
mod effects;
mod fault;
mod growth;
mod head;
mod health;
mod inbox;
mod issued;
mod issuing;
mod migrate;
mod open;
mod reader;
mod records;
mod retention;
mod scenario_runs;
mod session;
mod streams;
mod sweep;
pub(crate) mod target;
mod task;
mod text;
mod token;
pub mod verify;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use admit_core::{Age, Entry, Fault, Horizon, Recorded, unwound};

use crate::Migrated;
use crate::common::hang_watch::{COMMIT_MAX, HangWatch};
use crate::common::health::Health;
use crate::common::job;
use crate::common::news::News;
use crate::common::queue::Queue;
use crate::common::retention::Sweeper;
use crate::gauges::Gauges;
use crate::port::{Admissions, BoxFuture};
use conn::Columns as _;
use connect::Connector;
use growth::Growth;
use migrate::Schema;
use reader::Readers;
use streams::{Turn, look_for_news};
use task::{Task, Work};
use writer::{Epochs, Lease, Writer};

pub use crate::common::RefusalQuota;
pub use attachments::reattach;
pub use open::OpenError;
pub use session::{Session, SessionError};

/// A statement, from the file of its name; the comments there say why.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/queries/", $name, ".sql"))
    };
}
use sql;

/// A call of this ledger.
type Job = job::Job<Box<dyn Task>>;

/// How to open the ledger.
#[derive(Clone)]
pub struct Options {
    /// Where the database is: `postgres://user@host:5432/name`.
    pub url: String,
    /// The password, where it does not stand in the address.
    pub password: Option<String>,
    /// Whom to trust; with it, only a server that can be checked is talked to.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The schema that holds the tables; it is created when it does not exist.
    pub schema: String,
    /// The name of this gate, for the epochs it writes down.
    pub owner: String,
    /// Whether the name is this gate's alone. Then a start under it ends the lease of whoever had it
    /// before, so that what a crash left is looked after at once; and a process that finds its name
    /// taken stops.
    pub is_named: bool,
    /// How much of refusals is kept.
    pub refusal_quota: RefusalQuota,
    /// At most so many events share a commit. More raise throughput and latency too.
    pub commit_events_max: usize,
    /// So many calls may wait for the writer; one more is answered `overloaded`.
    pub waiting_max: usize,
    /// How long things are kept; `None` is for ever. See [`Retention`](crate::Retention).
    pub retain: Option<Age>,
    /// So many questions are answered at a time, each on a connection of its own.
    pub readers_max: usize,
    /// How long a question waits for a connection before it is answered `overloaded`.
    pub reader_wait: Duration,
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long the server works on one statement before it gives up.
    pub statement_timeout: Duration,
    /// How long a statement waits for a lock; a gate that freezes in a transaction is cut off after
    /// half of it.
    pub lock_timeout: Duration,
    /// How long a gate that is silent is believed to be alive.
    pub lease: Duration,
    /// Places in one partition of what grows with time.
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

/// Secrets stay out of logs.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("schema", &self.schema)
            .field("owner", &self.owner)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// A gate's end of the ledger. Dropping it finishes what was handed in and gives up the lease.
pub struct PostgresLedger {
    /// First, so that what was handed in is finished before anything else is given up.
    queue: Queue<Box<dyn Task>>,
    readers: Readers,
    epochs: Arc<Epochs>,
    lease: Duration,
    health: Arc<Health>,
    gauges: Arc<Gauges>,
    news: Arc<News>,
    horizon: Horizon,
    sweeper: tokio::sync::Mutex<Sweeper>,
    _watch: HangWatch,
}

/// What the writer found when it opened the ledger.
struct Opened {
    tag: u32,
    epochs: Arc<Epochs>,
    turn: Turn,
    horizon: Horizon,
    sweeper: Sweeper,
}

impl PostgresLedger {
    /// Connects, brings the tables up to date and starts the threads. It blocks, as opening a file
    /// does. When it returns the doors may open.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let connector = Connector::new(&options)?;
        let (health, news) = (Arc::new(Health::new()), Arc::new(News::default()));
        let gauges = Arc::new(Gauges::default());
        let (jobs, waiting) = sync_channel(options.waiting_max);
        let (told, opened) = sync_channel(1);
        let writer = {
            let (options, connector) = (options.clone(), connector.clone());
            let shared = (health.clone(), gauges.clone(), news.clone());
            let health = health.clone();
            move || match start(&options, connector, shared) {
                Ok((writer, found)) => {
                    told.send(Ok(found)).unwrap_or_default();
                    unwound::or_tell(|| serve(writer, &waiting), || health.panicked());
                }
                Err(error) => told.send(Err(error)).unwrap_or_default(),
            }
        };
        let failed = |source| OpenError::Thread { source };
        let watch = HangWatch::start(&health, options.commit_max).map_err(failed)?;
        let named = thread::Builder::new().name("ledger-writer".to_owned());
        let writer = named.spawn(writer).map_err(failed)?;
        let ended = |_| failed(std::io::Error::other("the writer ended before it began"));
        let Opened { tag, epochs, turn, horizon, sweeper } = opened.recv().map_err(ended)??;
        let ledger = Self {
            queue: Queue::new(jobs, gauges.clone(), vec![writer]),
            readers: Readers::new(&options, &connector, tag)?,
            epochs,
            lease: options.lease,
            health,
            gauges,
            news,
            horizon,
            sweeper: tokio::sync::Mutex::new(sweeper),
            _watch: watch,
        };
        ledger.news.known_to(turn.last_seq);
        let heard = Arc::downgrade(&ledger.news);
        ledger.readers.beside(look_for_news(ledger.readers.asking(), heard, turn));
        Ok(ledger)
    }

    /// Which start of this gate writes. It changes when the lease ran out and was taken again.
    pub fn epoch(&self) -> u64 {
        self.epochs.current()
    }
}

type Shared = (Arc<Health>, Arc<Gauges>, Arc<News>);

/// Opens the ledger on the writer's own thread.
fn start(
    options: &Options,
    connector: Connector,
    (health, gauges, news): Shared,
) -> Result<(Writer, Opened), OpenError> {
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
    let (tag, turn) = (head.small("tag").map_err(fail)?, Turn::read(&head).map_err(fail)?);
    let horizon = retention::load_horizon(&conn, options.retain).map_err(fail)?;
    let sweeper = retention::load_sweeper(&conn).map_err(fail)?;
    conn.execute(sql!("token_sweep"), &[]).map_err(fail)?;
    let lease = Lease::take(&conn, options).map_err(fail)?;
    let opened = Opened { tag, epochs: lease.shared(), turn, horizon: horizon.clone(), sweeper };
    let writer = Writer {
        connector,
        runtime,
        conn: Some(conn),
        tag,
        lease,
        growth: Growth::new(options.partition_places),
        quota: options.refusal_quota,
        commit_events_max: options.commit_events_max,
        horizon,
        fate_max: options.lock_timeout + options.connect_timeout,
        health,
        gauges,
        news,
        last_company: 0,
        unknown: None,
    };
    Ok((writer, opened))
}

fn serve(writer: Writer, waiting: &Receiver<Job>) {
    writer.run(waiting);
}

impl PostgresLedger {
    /// Has the writer do a piece of work in its next commit.
    async fn write<W: Work>(&self, work: W) -> Result<W::Answer, Fault> {
        let (task, answer) = task::task(work);
        self.queue.task(task, answer).await
    }
}

impl Admissions for PostgresLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<Recorded, Fault>>> {
        self.queue.record(batch)
    }
}

/// A ledger that is only read. It creates nothing and changes nothing.
pub struct PostgresReader {
    readers: Readers,
}

impl PostgresReader {
    /// Opens the ledger for questions; it must be there.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let connector = Connector::new(options)?;
        let tag = aside(|| {
            let (conn, place) = connect_once(&connector)?;
            Schema { place: &place, name: &options.schema }.check(&conn)?;
            let tag = conn.query_one(sql!("head_get"), &[]).and_then(|row| row.small("tag"));
            tag.map_err(|error| OpenError::Database { place, source: error.into() })
        })?;
        Ok(Self { readers: Readers::new(options, &connector, tag)? })
    }
}

/// Brings the tables to the version of this build, and nothing else.
pub fn migrate(options: &Options) -> Result<Migrated, OpenError> {
    let connector = Connector::new(options)?;
    aside(|| {
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

/// Runs on a thread that belongs to no runtime, so that it may block wherever the caller lives.
fn aside<T: Send>(work: impl FnOnce() -> Result<T, OpenError> + Send) -> Result<T, OpenError> {
    thread::scope(|scope| {
        let ended = |_| OpenError::Thread { source: std::io::Error::other("opening panicked") };
        scope.spawn(work).join().map_err(ended)?
    })
}
