//! The embedded ledger on SQLite: `ledger.db` in the data folder.
//!
//! One writer thread does group commit ([`writer`]), a second one keeps the log short
//! ([`checkpoint`]), a few read connections answer questions ([`reader`]). Readable by anyone with
//! `sqlite3` while the gate runs; written by one process only ([`lock`]).

mod answers;
mod attachments;
mod backup;
mod batch;
mod beside;
mod checkpoint;
mod claims;
mod clock;
mod closures;
mod desk;
mod documents;
mod effects;
mod fault;
mod identity;
mod inbox;
mod issued;
mod issuing;
mod keys;
mod lock;
mod log_check;
mod mark_check;
mod open;
mod place;
mod queries;
mod reader;
mod records;
mod retention;
mod scenario_runs;
#[cfg(feature = "postgres")]
pub(crate) mod source;
mod streams;
mod sweep;
mod task;
pub mod verify;
mod verify_records;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use admit_core::effect::{By, Effect, Illegal, Step};
use admit_core::record::{Acceptance, Policy};
use admit_core::unwound;
use admit_core::{
    Age, Door, Entry, Fault, FaultKind, Horizon, Issue, Millis, Recorded, RunState, Seq,
};
use rusqlite::{Connection, OptionalExtension};

use crate::Migrated;
use crate::common::hang_watch::{COMMIT_MAX, HangWatch};
use crate::common::health::Health;
use crate::common::job;
use crate::common::news::News;
use crate::common::queue::Queue;
use crate::common::records::{Accepting, Relinking};
use crate::common::retention::Sweeper;
use crate::effects::{AdvanceError, Effects, Recovered};
use crate::gauges::Gauges;
use crate::issuance::{Copied, FileNote, Issuance, Issuing, Kept, Settled, Settlement};
use crate::port::{Accepted, Admissions, BoxFuture, Ledger, NotAccepted, Records, Relinked};
use crate::publications::{Offer, Publication, PublicationStep, Publications};
use batch::Position;
use checkpoint::Log;
use identity::InPlace;
use keys::KeyIndex;
use lock::FolderLock;
use reader::Readers;
use records::publications;
use task::{Task, Work};
use writer::Writer;

pub use crate::common::RefusalQuota;
pub use attachments::reattach;
pub use backup::Snapshot;
pub use beside::SqliteReader;
pub use keys::KeyIndexKind;
pub use open::OpenError;
pub use place::{accept_copy, is_copy, mark_as_copy};

/// A call of this ledger.
type Job = job::Job<Box<dyn Task>>;

/// How to open the ledger.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; it is created when it does not exist.
    pub dir: PathBuf,
    /// The name of this gate, for the epochs it writes down.
    pub owner: String,
    /// The time of opening.
    pub now: Millis,
    /// How keys are kept.
    pub key_index: KeyIndexKind,
    /// How much of refusals is kept.
    pub refusal_quota: RefusalQuota,
    /// At most so many events share a commit. More raise throughput a little and latency too.
    pub commit_events_max: usize,
    /// So many calls may wait for the writer; one more is answered `overloaded`.
    pub waiting_max: usize,
    /// How long things are kept; `None` is for ever. See [`Retention`](crate::Retention).
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
            commit_events_max: 1024,
            waiting_max: 16_384,
            retain: None,
            commit_max: COMMIT_MAX,
        }
    }
}

/// The embedded ledger. Dropping it finishes what was handed in and releases the folder.
pub struct SqliteLedger {
    /// First, so that what was handed in is finished before anything else is given up.
    queue: Queue<Box<dyn Task>>,
    readers: Readers,
    epoch: u64,
    health: Arc<Health>,
    gauges: Arc<Gauges>,
    news: Arc<News>,
    horizon: Horizon,
    sweeper: tokio::sync::Mutex<Sweeper>,
    _watch: HangWatch,
    _lock: FolderLock,
}

impl SqliteLedger {
    /// Takes the folder, recovers the file and starts the threads. When it returns, everything that
    /// was ever acknowledged is safely on disk and the doors may open.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let folder = |source| OpenError::Folder { path: options.dir.clone(), source };
        create_private(&options.dir).map_err(folder)?;
        let lock = FolderLock::take(&options.dir)?;
        let path = options.dir.join(open::FILE);
        identity::check(&options.dir, &path)?;
        let mut conn = open::recover(&path)?;
        let fail = |source| OpenError::from_sqlite(&path, source);
        let tag = tag(&conn).map_err(fail)?;
        identity::note(&options.dir, tag).map_err(folder)?;
        place::note(&options.dir).map_err(folder)?;
        let position = position(&conn).map_err(fail)?;
        let reach = mark_check::reach(&conn).map_err(fail)?;
        let mark = open::mark(&path, reach)?;
        admit_sqlite_log::mark_generations(&conn, &mark).map_err(fail)?;
        let epoch: u64 = conn
            .query_row(queries::GATE_START, (&options.owner, options.now.0), |row| row.get(0))
            .map_err(fail)?;
        conn.execute(queries::SR_LEASES_END, []).map_err(fail)?;
        let keys = KeyIndex::load(&conn, &path, options.key_index);
        let keys = keys.map_err(|error| OpenError::from_claims(&path, error))?;
        let horizon = retention::load_horizon(&conn, options.retain).map_err(fail)?;
        let sweeper = tokio::sync::Mutex::new(retention::load_sweeper(&conn).map_err(fail)?);
        let (health, news) = (Arc::new(Health::new()), Arc::new(News::default()));
        let gauges = Arc::new(Gauges::default());
        let page_bytes = open::page_bytes(&conn).map_err(fail)?;
        let (log, checkpointer) =
            Log::start(&path, page_bytes, &health, &gauges).map_err(folder)?;
        log.watch(&mut conn).map_err(fail)?;
        let writer = Writer {
            in_place: InPlace::of(&path).map_err(folder)?,
            path: path.clone(),
            conn,
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
            news: news.clone(),
        };
        let (jobs, waiting) = sync_channel(options.waiting_max);
        let watch = HangWatch::start(&health, options.commit_max).map_err(folder)?;
        let writer = thread::Builder::new()
            .name("ledger-writer".to_owned())
            .spawn({
                let health = health.clone();
                move || unwound::or_tell(|| writer.run(&waiting), || health.panicked())
            })
            .map_err(folder)?;
        Ok(Self {
            queue: Queue::new(jobs, gauges.clone(), vec![writer, checkpointer]),
            readers: Readers::new(&path, tag),
            epoch,
            health,
            gauges,
            news,
            horizon,
            sweeper,
            _watch: watch,
            _lock: lock,
        })
    }
}

impl SqliteLedger {
    /// Has the writer do a piece of work in its next commit.
    async fn write<W: Work>(&self, work: W) -> Result<W::Answer, Fault> {
        let (task, answer) = task::task(work);
        self.queue.task(task, answer).await
    }
}

impl Admissions for SqliteLedger {
    fn record(&self, batch: Vec<Entry>) -> BoxFuture<'_, Vec<Result<Recorded, Fault>>> {
        self.queue.record(batch)
    }
}

impl Effects for SqliteLedger {
    fn advance(
        &self,
        seq: Seq,
        step: Step,
        at: Millis,
    ) -> BoxFuture<'_, Result<Effect, AdvanceError>> {
        let work = effects::Advance { epoch: self.epoch, seq, step, at };
        Box::pin(async move { Ok(self.write(work).await??) })
    }

    fn recover(&self, at: Millis) -> BoxFuture<'_, Result<Recovered, Fault>> {
        Box::pin(self.write(effects::Recover { epoch: self.epoch, at }))
    }
}

impl Issuance for SqliteLedger {
    fn record_issuing(
        &self,
        batch: Vec<Entry>,
        issuing: Issuing,
    ) -> BoxFuture<'_, Vec<Result<Kept, Fault>>> {
        self.queue.record_issuing(batch, issuing)
    }

    fn settle(
        &self,
        batch: Vec<Settlement>,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Settled, Illegal>>, Fault>> {
        Box::pin(self.write(issuing::Settle { epoch: self.epoch, batch, issue, at }))
    }

    fn settle_copy(
        &self,
        copy: Recorded,
        first: Seq,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Copied, Fault>> {
        let work = issuing::SettleCopy { epoch: self.epoch, copy, first, issue, at };
        Box::pin(async move {
            let lost = "the first event under this key is not where it was left";
            self.write(work).await?.map_err(|_| Fault::new(FaultKind::Internal, lost))
        })
    }

    fn recover_issuing(
        &self,
        door: Door,
        issue: Arc<dyn Issue>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Effect>, Fault>> {
        Box::pin(self.write(issuing::RecoverDoor { epoch: self.epoch, door, issue, at }))
    }

    fn release(
        &self,
        run: String,
        id: String,
        how: &'static str,
        by: By,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(self.write(issuing::Release { epoch: self.epoch, run, id, how, by, at }))
    }

    /// Nobody else writes: whatever is there is of this process.
    fn issued_here(&self, after: u64, rows_max: usize) -> BoxFuture<'_, Result<Vec<u64>, Fault>> {
        Box::pin(self.readers.read(move |conn, _| issued::numbers(conn, after, rows_max)))
    }

    fn note_files(&self, note: FileNote) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.write(issuing::NoteFiles(note)))
    }

    fn turn_run(
        &self,
        id: String,
        from: RunState,
        to: RunState,
        at: Millis,
    ) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(self.write(issuing::TurnRun { id, from, to, at }))
    }
}

impl Records for SqliteLedger {
    fn accept(
        &self,
        door: String,
        policy: Arc<Policy>,
        seq: Seq,
        word: Acceptance,
    ) -> BoxFuture<'_, Result<Result<Accepted, NotAccepted>, Fault>> {
        Box::pin(self.write(Accepting { door, policy, seq, word }))
    }

    fn relink(
        &self,
        door: String,
        policy: Arc<Policy>,
        at: Millis,
        is_dry: bool,
    ) -> BoxFuture<'_, Result<Relinked, Fault>> {
        Box::pin(async move {
            let (mut all, mut after) = (Relinked::default(), Seq(0));
            loop {
                let (door, policy) = (door.clone(), Arc::clone(&policy));
                let slice = Relinking { door, policy, at, is_dry, after };
                let (relinked, next) = self.write(slice).await?;
                all.scanned += relinked.scanned;
                all.updated += relinked.updated;
                match next {
                    Some(next) => after = next,
                    None => return Ok(all),
                }
            }
        })
    }
}

impl Publications for SqliteLedger {
    fn offer(
        &self,
        batch: Vec<Offer>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Option<Publication>>, Fault>> {
        Box::pin(self.write(publications::Begin { epoch: self.epoch, batch, at }))
    }

    fn step_publications(
        &self,
        batch: Vec<PublicationStep>,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Result<Publication, Illegal>>, Fault>> {
        Box::pin(self.write(publications::Steps { epoch: self.epoch, batch, at }))
    }

    fn recover_publications(
        &self,
        door: String,
        at: Millis,
    ) -> BoxFuture<'_, Result<Vec<Publication>, Fault>> {
        Box::pin(self.write(publications::Recover { epoch: self.epoch, door, at }))
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

/// Brings the ledger in the data folder `dir` to what this build needs; makes it if there is none. No
/// gate may serve the folder.
pub fn migrate(dir: &Path) -> Result<Migrated, OpenError> {
    let folder = |source| OpenError::Folder { path: dir.to_owned(), source };
    create_private(dir).map_err(folder)?;
    let _lock = FolderLock::take(dir)?;
    let path = dir.join(open::FILE);
    identity::check(dir, &path)?;
    let from = open::version(&path)?;
    let conn = open::recover(&path)?;
    tag(&conn).map_err(|source| OpenError::from_sqlite(&path, source))?;
    keys::take_over(&conn).map_err(|error| OpenError::from_claims(&path, error))?;
    Ok(Migrated { from, to: open::version(&path)? })
}

/// Creates the data folder for this user only: raw bodies are nobody else's business. A folder that
/// is there keeps the rights it has.
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

/// Where the ledger stands on disk.
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
