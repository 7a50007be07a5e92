//! File bus: one JSONL file per topic, for a single machine; readable with `tail -f`.
//!
//! One writer thread. All pending calls form one batch: written topic by topic, one sync per file,
//! then acknowledged. Outcomes of a message:
//!
//! ```text
//! invalid message, or its log cannot be opened    -> not written
//! disk full before its first byte                 -> not written
//! written in part                                 -> unknown; the log is reopened and the torn
//!                                                    line is cut off before the next append
//! written, and the sync fails                     -> unknown; the state of the disk is unknown:
//!                                                    the bus stops, and so should the process
//! written and synced                              -> committed at its line
//! ```
//!
//! One process writes to a folder; others may read it at the same time ([`FileReader`]). File
//! layout: [`log`]; line format: [`mod@line`].

mod check;
mod head;
mod index;
mod line;
mod lock;
mod log;
mod read_only;
mod search;
mod snapshot;
mod storage;
mod writer;
#[cfg(test)]
mod writer_tests;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use admit_core::panic_guard;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::name;
use crate::port::{
    BoxFuture, Bus, BusError, BusHealth, Message, OffsetKind, PublishOutcome, SearchQuery,
    SearchResult, StoredMessage,
};
use check::BackgroundCheck;
use lock::RootLock;
use log::{Log, LogOptions};
use writer::{ClosedLog, FileBusWriter, LogSlot, TopicViews, WriterCommand};

pub use read_only::{FileReader, LogMessages};
pub use snapshot::{LogLengths, copy_log, cut_unknown_end};

/// The only partition of a topic.
const PARTITION: u32 = 0;
/// Approximate limit of bytes per sync.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Upper limit of `message_bytes_max`.
pub const MESSAGE_BYTES_CEILING: usize = 4 << 20;
/// Longest line: the payload, the longest keys with every character escaped, and the framing.
const LINE_BYTES_MAX: u64 = MESSAGE_BYTES_CEILING as u64 + 4096;
/// Most bytes that an interrupted batch can leave in one log.
const TORN_BYTES_MAX: u64 = BATCH_BYTES_MAX as u64 + LINE_BYTES_MAX;
/// Bytes per index block: the minimum a search reads, and the maximum a start reads.
const BLOCK_BYTES: u64 = 256 << 10;
/// Maximum lines per [`Bus::read`].
pub const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a [`Bus::read`] returns early.
pub const READ_BYTES_MAX: usize = 16 << 20;

/// Instruction appended to every error about a damaged log.
const DAMAGED_LOG_HELP: &str = "nothing was changed; stop the gate, restore the log from a copy or fill the \
                       lost lines (docs/bus/file.md, A damaged log), then start again";

/// Options of a file bus.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; created if it does not exist.
    pub root: PathBuf,
    /// Largest payload, in bytes; at most [`MESSAGE_BYTES_CEILING`].
    pub message_bytes_max: usize,
    /// Calls that may wait for the writer. Further calls wait for capacity (backpressure).
    pub waiting_max: usize,
    /// Maximum number of topics. Each keeps three files open.
    pub topics_max: usize,
    /// Bytes a search may read per topic before it gives up with [`SearchResult::Unknown`].
    pub find_bytes_max: u64,
    /// How long a search, read or probe waits for the writer to finish its current batch.
    pub query_timeout: Duration,
    /// See [`Bus::delivery_timeout`].
    pub delivery_timeout: Duration,
    /// Acknowledged messages per topic, known from elsewhere (the ledger). A topic with fewer is
    /// damaged, and nothing is published to it.
    pub acknowledged: BTreeMap<String, u64>,
}

impl Options {
    /// The defaults, in `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            message_bytes_max: 1 << 20,
            waiting_max: 256,
            topics_max: 128,
            find_bytes_max: 1 << 30,
            query_timeout: Duration::from_secs(5),
            delivery_timeout: Duration::from_secs(30),
            acknowledged: BTreeMap::new(),
        }
    }
}

/// Why a file bus could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder, or a file in it, cannot be used.
    #[error("the bus folder {} cannot be used", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock of the folder.
    #[error(
        "the bus folder {} is in use by process {holder}; stop that process, or use another folder",
        root.display()
    )]
    InUse {
        /// The folder.
        root: PathBuf,
        /// The process id, as far as it could be read.
        holder: String,
    },
    /// A log could not be opened.
    #[error("the bus topic {topic} cannot be opened")]
    Topic {
        /// The topic.
        topic: String,
        /// The cause.
        #[source]
        source: BusError,
    },
    /// More topics than `topics_max`.
    #[error("the bus folder {} holds {topics} topics, at most {topics_max} are allowed; raise the limit or move topics away", root.display())]
    TooManyTopics {
        /// The folder.
        root: PathBuf,
        /// The number of topics.
        topics: usize,
        /// The limit.
        topics_max: usize,
    },
}

/// Bus in a folder.
#[derive(Debug)]
pub struct FileBus {
    options: Options,
    /// `None` only while it is dropped.
    commands: Option<mpsc::Sender<WriterCommand>>,
    stopped: watch::Receiver<Option<String>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Damage found while the bus was open. It stays until a restart.
    damage: Arc<OnceLock<String>>,
    _check: BackgroundCheck,
    _lock: RootLock,
}

impl FileBus {
    /// Opens the bus in a folder, recovers its logs after a crash, and starts the writer.
    ///
    /// # Errors
    /// When another process holds the folder, or the folder or a log cannot be used. A damaged log
    /// is not an error: nothing is published to its topic and the bus is [`BusHealth::Down`], so
    /// that the rest of the gate keeps working.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let log_options = LogOptions { block_bytes: BLOCK_BYTES, storage: storage::files() };
        Self::open_with(options, log_options)
    }

    fn open_with(options: Options, log_options: LogOptions) -> Result<Self, OpenError> {
        let root = &options.root;
        let folder = |source| OpenError::Folder { path: root.clone(), source };
        fs::create_dir_all(root).map_err(folder)?;
        let lock = RootLock::take(root)?;
        let topics = topics_in(root).map_err(folder)?;
        if topics.len() > options.topics_max {
            let (topics, topics_max) = (topics.len(), options.topics_max);
            return Err(OpenError::TooManyTopics { root: root.clone(), topics, topics_max });
        }
        let (mut logs, mut unchecked) = (HashMap::new(), Vec::new());
        let mut acknowledged: HashMap<Arc<str>, u64> = HashMap::new();
        for (topic, lines) in &options.acknowledged {
            acknowledged.insert(topic.as_str().into(), *lines);
        }
        let is_lost = |topic: &&String| !topics.contains(topic) && name::check_topic(topic).is_ok();
        let lost = options.acknowledged.keys().filter(is_lost).cloned();
        for topic in topics.iter().cloned().chain(lost) {
            let lines = acknowledged.get(topic.as_str()).copied().unwrap_or(0);
            let slot = match Log::open(root, &topic, &log_options, lines) {
                Ok(log) => {
                    unchecked.push((log.view(), log.unchecked));
                    LogSlot::Open(log)
                }
                Err(error @ BusError::Damaged { .. }) => {
                    LogSlot::Closed(ClosedLog::new(root, &topic, &error))
                }
                Err(source) => return Err(OpenError::Topic { topic, source }),
            };
            logs.insert(topic.as_str().into(), slot);
        }
        let (commands, receiver) = mpsc::channel(options.waiting_max.max(1));
        let (stop, stopped) = watch::channel(None);
        let stop_on_panic = stop.clone();
        let on_panic = move || {
            stop_on_panic.send_replace(Some("the writer of the bus ended by a panic".to_owned()));
        };
        let writer =
            FileBusWriter { options: options.clone(), log_options, logs, acknowledged, stop };
        let writer = thread::Builder::new()
            .name("bus-writer".to_owned())
            .spawn(move || panic_guard::run(|| writer.run(receiver), on_panic))
            .map_err(folder)?;
        let writer = Mutex::new(Some(writer));
        let damage = Arc::new(OnceLock::new());
        let check = BackgroundCheck::start(unchecked, Arc::clone(&damage)).map_err(folder)?;
        let (commands, _check, _lock) = (Some(commands), check, lock);
        Ok(Self { options, commands, stopped, writer, damage, _check, _lock })
    }

    /// Gets the writer's view of these topics, after all earlier publishes. The error message
    /// states why there is none.
    async fn view_topics(&self, topics: Vec<String>, is_probe: bool) -> Result<TopicViews, String> {
        let request = async {
            let (reply, response) = oneshot::channel();
            let commands = self.commands.as_ref()?;
            commands.send(WriterCommand::ViewTopics { topics, is_probe, reply }).await.ok()?;
            response.await.ok()
        };
        match timeout(self.options.query_timeout, request).await {
            Ok(Some(views)) => Ok(views),
            Ok(None) => Err(self.why_stopped()),
            Err(_) => Err(format!(
                "timeout: the writer was busy with earlier messages for more than {} ms",
                self.options.query_timeout.as_millis()
            )),
        }
    }

    fn why_stopped(&self) -> String {
        let reason = self.stopped.borrow().clone();
        reason.unwrap_or_else(|| "the bus has stopped".to_owned())
    }
}

impl Drop for FileBus {
    fn drop(&mut self) {
        self.commands = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the bus ended by a panic");
        }
    }
}

impl Bus for FileBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<PublishOutcome>> {
        Box::pin(async move {
            let messages = batch.len();
            if messages == 0 {
                return Vec::new();
            }
            let (reply, response) = oneshot::channel();
            let sent = match &self.commands {
                Some(commands) => {
                    commands.send(WriterCommand::Publish { batch, reply }).await.is_ok()
                }
                None => false,
            };
            if !sent {
                let reason = format!("{}, nothing was written", self.why_stopped());
                return vec![PublishOutcome::NotWritten { reason }; messages];
            }
            response.await.unwrap_or_else(|_| {
                let reason = "the writer of the bus ended before it acknowledged".to_owned();
                vec![PublishOutcome::Unknown { reason }; messages]
            })
        })
    }

    fn find(&self, queries: Vec<SearchQuery>) -> BoxFuture<'_, Vec<SearchResult>> {
        Box::pin(async move {
            let query_count = queries.len();
            let unknown = |reason: String| vec![SearchResult::Unknown { reason }; query_count];
            if query_count == 0 {
                return Vec::new();
            }
            let mut topics: Vec<String> = queries.iter().map(|query| query.topic.clone()).collect();
            topics.sort_unstable();
            topics.dedup();
            let views = match self.view_topics(topics.clone(), false).await {
                Ok(views) => topics.into_iter().zip(views).collect(),
                Err(reason) => return unknown(reason),
            };
            let bytes_max = self.options.find_bytes_max;
            let search = spawn_blocking(move || search::find(&views, &queries, bytes_max));
            search.await.unwrap_or_else(|_| unknown("the search was interrupted".to_owned()))
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredMessage>, BusError>> {
        let checked = check_read(topic, partition, from);
        let topic = topic.to_owned();
        let rows_max = rows_max.min(READ_ROWS_MAX);
        Box::pin(async move {
            let from = checked?;
            let unavailable = |reason| BusError::Unavailable { reason, source: None };
            let views = self.view_topics(vec![topic], false).await.map_err(unavailable)?;
            let view = match views.into_iter().next() {
                Some(Ok(Some(view))) => view,
                Some(Err(reason)) => return Err(unavailable(reason)),
                Some(Ok(None)) | None => return Ok(Vec::new()),
            };
            let read = spawn_blocking(move || search::read(&view, from, rows_max));
            let read = read.await;
            if let Ok(Err(error @ BusError::Damaged { .. })) = &read {
                tracing::error!(%error, "a bus log is damaged");
                // The first damage is enough to stop.
                self.damage.set(format!("{error}; {DAMAGED_LOG_HELP}")).unwrap_or_default();
            }
            read.unwrap_or_else(|_| Err(unavailable("the read was interrupted".to_owned())))
        })
    }

    fn health(&self, topics: &[String]) -> BoxFuture<'_, BusHealth> {
        let topics = topics.to_vec();
        Box::pin(async move {
            if let Some(reason) = self.stopped.borrow().clone() {
                return BusHealth::Down { reason };
            }
            for topic in &topics {
                if let Err(reason) = name::check_topic(topic) {
                    return BusHealth::Down {
                        reason: format!("invalid topic {topic:?}: {reason}"),
                    };
                }
            }
            let views = match self.view_topics(topics, true).await {
                Ok(views) => views,
                Err(reason) if self.stopped.borrow().is_some() => {
                    return BusHealth::Down { reason };
                }
                Err(reason) => return BusHealth::Unknown { reason },
            };
            if let Some(reason) = views.into_iter().find_map(Result::err) {
                return BusHealth::Down { reason };
            }
            if let Some(reason) = self.damage.get() {
                return BusHealth::Down { reason: reason.clone() };
            }
            let root = self.options.root.clone();
            let probe = timeout(self.options.query_timeout, spawn_blocking(move || probe(&root)));
            match probe.await {
                Ok(Ok(Ok(()))) => BusHealth::Up,
                Ok(Ok(Err(error))) => {
                    BusHealth::Down { reason: format!("the bus folder is not writable: {error}") }
                }
                Ok(Err(_)) | Err(_) => BusHealth::Unknown {
                    reason: "timeout: the probe of the bus folder did not complete".to_owned(),
                },
            }
        })
    }

    fn offset_kind(&self) -> OffsetKind {
        OffsetKind::FileLine
    }

    fn delivery_timeout(&self) -> Duration {
        self.options.delivery_timeout
    }

    fn must_stop(&self) -> BoxFuture<'_, String> {
        let mut stopped = self.stopped.clone();
        Box::pin(async move {
            if let Ok(reason) = stopped.wait_for(Option::is_some).await
                && let Some(reason) = reason.clone()
            {
                return reason;
            }
            // The writer ended without an error: the bus is being dropped.
            std::future::pending().await
        })
    }
}

/// Validates the arguments of a read. Returns the first line.
fn check_read(topic: &str, partition: u32, from: &str) -> Result<u64, BusError> {
    name::check_topic(topic)
        .map_err(|reason| BusError::NotATopic { topic: topic.to_owned(), reason })?;
    if partition != PARTITION {
        return Err(BusError::NoSuchPartition { topic: topic.to_owned(), partition });
    }
    if from.is_empty() {
        return Ok(0);
    }
    from.parse()
        .map_err(|_| BusError::NotAnOffset { offset: from.to_owned(), kind: OffsetKind::FileLine })
}

/// Topics with a folder under `root`, in order, including those whose log was deleted.
fn topics_in(root: &Path) -> io::Result<Vec<String>> {
    let mut topics = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && name::check_topic(&name).is_ok()
            && [log::LOG, head::NAME].iter().any(|file| entry.path().join(file).is_file())
        {
            topics.push(name);
        }
    }
    topics.sort_unstable();
    Ok(topics)
}

/// Writes and removes a file.
fn probe(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let path = root.join(".probe");
    fs::File::create(&path)?.write_all(b"up\n")?;
    fs::remove_file(&path)
}
