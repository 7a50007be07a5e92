//! The embedded ledger on SQLite: `ledger.db` in the data folder.
//!
//! One writer thread does group commit ([`writer`]), a second one checkpoints the WAL ([`checkpoint`]),
//! a few read-only connections serve queries ([`reader`]). Readable by anyone with `sqlite3` while the
//! gate runs; written by one process only ([`lock`]).

mod attachments;
mod backup;
mod batch;
mod checkpoint;
mod copy_check;
#[cfg(feature = "postgres")]
pub(crate) mod copy_source;
mod documents;
mod driver;
mod effect_store;
mod fault;
mod identity;
mod inbox;
mod issuing;
mod keys;
mod lock;
mod mark_check;
mod open;
#[cfg(test)]
mod plan_tests;
mod queries;
mod read_only;
mod reader;
mod records;
mod retention;
pub mod unreadable;
pub mod verify;
mod wal_check;
mod write_op;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use admit_core::panic_guard;
use admit_core::{Age, Door, Entry, Fault, Horizon, Millis, RecordedEntry, Seq};
use rusqlite::{Connection, OptionalExtension};
use tokio::sync::watch;

use crate::SchemaMigration;
use crate::common::hang_watch::{COMMIT_MAX, HangWatch};
use crate::common::health::Health;
use crate::common::notifier::Notifier;
use crate::common::queue::Queue;
use crate::common::retention::Sweeper;
use crate::common::write_command;
use crate::gauges::Gauges;
use crate::port::{Admissions, BoxFuture, Ledger, StreamNotifier};
use crate::tables;
use batch::Position;
use checkpoint::WalHandle;
use identity::OpenedFile;
use keys::KeyIndex;
use lock::FolderLock;
use reader::Readers;
use write_op::{ErasedWriteOp, WriteOp};
use writer::Writer;

pub use crate::common::RefusalQuota;
pub use admit_sqlite_log::WalWrites;
pub use attachments::reattach;
pub use backup::Snapshot;
pub use copy_check::{accept_copy, is_copy, mark_as_copy};
pub use keys::KeyIndexKind;
pub use open::OpenError;
pub use read_only::SqliteReader;

/// A command of this ledger's writer.
type WriteCommand = write_command::WriteCommand<Box<dyn ErasedWriteOp>>;

/// How to open the ledger.
#[derive(Clone, Debug)]
pub struct Options {
    /// Data folder; created if it does not exist.
    pub dir: PathBuf,
    /// Gate id, stored with its epochs.
    pub owner: String,
    /// Time of opening.
    pub now: Millis,
    /// Kind of key index.
    pub key_index: KeyIndexKind,
    /// Quota of stored refusals.
    pub refusal_quota: RefusalQuota,
    /// How the WAL is written.
    pub wal_writes: WalWrites,
    /// Maximum events per commit. More raise throughput a little and latency too.
    pub commit_events_max: usize,
    /// Maximum calls waiting for the writer; one more gets `overloaded`.
    pub waiting_max: usize,
    /// Retention age; `None` for ever. See [`Retention`](crate::Retention).
    pub retain: Option<Age>,
    /// A commit that takes longer counts as hung, and the ledger as unhealthy until it ends.
    pub commit_max: Duration,
}

impl Options {
    /// The settings the gate runs with.
    pub fn new(dir: impl Into<PathBuf>, now: Millis) -> Self {
        Self {
            dir: dir.into(),
            owner: "gate".to_owned(),
            now,
            key_index: KeyIndexKind::default(),
            refusal_quota: RefusalQuota::default(),
            wal_writes: WalWrites::Buffered,
            commit_events_max: 1024,
            waiting_max: 16_384,
            retain: None,
            commit_max: COMMIT_MAX,
        }
    }
}

/// The embedded ledger. Dropping it finishes queued calls and releases the folder.
pub struct SqliteLedger {
    /// First field, so that queued calls finish before anything else is dropped.
    queue: Queue<Box<dyn ErasedWriteOp>>,
    readers: Readers,
    epoch: u64,
    health: Arc<Health>,
    gauges: Arc<Gauges>,
    notifier: Arc<Notifier>,
    horizon: Horizon,
    sweeper: tokio::sync::Mutex<Sweeper>,
    _watch: HangWatch,
    _lock: FolderLock,
}

impl SqliteLedger {
    /// Locks the folder, recovers the file and starts the threads. When it returns, everything ever
    /// acknowledged is safely on disk and the doors may open.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { path: options.dir.clone(), source };
        create_private(&options.dir).map_err(folder)?;
        let lock = FolderLock::take(&options.dir)?;
        let path = options.dir.join(open::FILE);
        identity::check(&options.dir, &path)?;
        let mut conn = open::recover_for_gate(&path, options.wal_writes)?;
        let fail = |source| OpenError::from_sqlite(&path, source);
        let tag = tag(&conn).map_err(fail)?;
        identity::note(&options.dir, tag).map_err(folder)?;
        copy_check::note(&options.dir).map_err(folder)?;
        let position = position(&conn).map_err(fail)?;
        let reach = mark_check::reach(&conn).map_err(fail)?;
        let mark = open::mark(&path, reach)?;
        open::mark_generations(&conn, options.wal_writes, &mark).map_err(fail)?;
        let epoch: u64 = conn
            .query_row(queries::GATE_START, (&options.owner, options.now.0), |row| row.get(0))
            .map_err(fail)?;
        conn.execute(queries::SR_LEASES_END, []).map_err(fail)?;
        let keys = KeyIndex::load(&conn, &path, options.key_index);
        let keys = keys.map_err(|error| OpenError::from_claims(&path, error))?;
        let horizon = tables::retention::load_horizon(&*conn, options.retain).map_err(fail)?;
        let sweeper =
            tokio::sync::Mutex::new(tables::retention::load_sweeper(&*conn).map_err(fail)?);
        let (health, notifier) = (Arc::new(Health::new()), Arc::new(Notifier::default()));
        let gauges = Arc::new(Gauges::default());
        let page_bytes = open::page_bytes(&conn).map_err(fail)?;
        let (log, checkpointer) =
            WalHandle::start(&path, page_bytes, &mark, &health, &gauges).map_err(folder)?;
        log.watch(&mut conn).map_err(fail)?;
        let writer = Writer {
            opened_file: OpenedFile::of(&path).map_err(folder)?,
            path: path.clone(),
            conn,
            wal_writes: options.wal_writes,
            mark,
            keys,
            position,
            task_commits: reach.tasks,
            tag,
            epoch,
            quota: options.refusal_quota,
            commit_events_max: options.commit_events_max,
            log,
            health: health.clone(),
            gauges: gauges.clone(),
            notifier: notifier.clone(),
        };
        let (commands, waiting) = sync_channel(options.waiting_max);
        let watch = HangWatch::start(&health, options.commit_max).map_err(folder)?;
        let writer = thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn({
                let health = health.clone();
                move || panic_guard::run(|| writer.run(&waiting), || health.panicked())
            })
            .map_err(folder)?;
        Ok(Self {
            queue: Queue::new(commands, gauges.clone(), vec![writer, checkpointer]),
            readers: Readers::new(&path, tag),
            epoch,
            health,
            gauges,
            notifier,
            horizon,
            sweeper,
            _watch: watch,
            _lock: lock,
        })
    }
}

impl SqliteLedger {
    /// Runs a write operation in the next commit.
    async fn write<W: WriteOp>(&self, op: W) -> Result<W::Output, Fault> {
        let (op, result) = write_op::pending(op);
        self.queue.op(op, result).await
    }
}

impl Admissions for SqliteLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<RecordedEntry, Fault>>> {
        self.queue.record(batch)
    }
}

impl StreamNotifier for SqliteLedger {
    fn subscribe(&self, door: &Door) -> watch::Receiver<Seq> {
        self.notifier.subscribe(door)
    }
}

impl Ledger for SqliteLedger {
    fn is_healthy(&self) -> bool {
        self.health.is_healthy()
    }

    fn trouble(&self) -> Option<&'static str> {
        self.health.trouble()
    }

    fn must_stop(&self) -> BoxFuture<'_, Fault> {
        Box::pin(self.health.until_must_stop())
    }

    fn gauges(&self) -> Option<&Gauges> {
        Some(&self.gauges)
    }
}

/// Migrates the ledger in the data folder `dir` to the schema of this build, or creates it. No gate
/// may serve the folder.
pub fn migrate(dir: &Path) -> Result<SchemaMigration, OpenError> {
    let folder = |source| OpenError::Folder { path: dir.to_owned(), source };
    create_private(dir).map_err(folder)?;
    let _lock = FolderLock::take(dir)?;
    let path = dir.join(open::FILE);
    identity::check(dir, &path)?;
    let from = open::version(&path)?;
    let conn = open::recover(&path)?;
    tag(&conn).map_err(|source| OpenError::from_sqlite(&path, source))?;
    keys::migrate_plain_index(&conn).map_err(|error| OpenError::from_claims(&path, error))?;
    Ok(SchemaMigration { from, to: open::version(&path)? })
}

/// Creates the data folder for this user only, because it holds raw bodies. An existing folder
/// keeps its permissions.
fn create_private(dir: &Path) -> std::io::Result<()> {
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder.create(dir)
}

/// The number that names this ledger, drawn once.
fn tag(conn: &Connection) -> rusqlite::Result<u32> {
    let known = conn.query_row(queries::META_GET, ["tag"], |row| row.get(0)).optional()?;
    if let Some(tag) = known {
        return Ok(tag);
    }
    let drawn = getrandom::u32().map_err(|error| {
        rusqlite::Error::ToSqlConversionFailure(format!("no randomness: {error}").into())
    })?;
    conn.execute(queries::META_PUT, ("tag", drawn))?;
    Ok(drawn)
}

/// Loads the counters of the ledger.
fn position(conn: &Connection) -> rusqlite::Result<Position> {
    let value = |name: &str| {
        let known =
            conn.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0)).optional()?;
        Ok::<_, rusqlite::Error>(known.unwrap_or(0))
    };
    Ok(Position {
        last_seq: Seq(value("last_seq")?),
        admissions: value("admissions")?,
        sightings: value("sightings")?,
        keys: value("keys")?,
    })
}
