//! The file bus: one JSONL file per topic, for one machine and for people with `tail -f`.
//!
//! One thread writes. Whatever waits is one batch: written topic by topic, one sync per file, then
//! answered. What can happen to a message:
//!
//! ```text
//! it is no message, or its log cannot be opened   -> not written
//! the disk is full before its first byte          -> not written
//! some of its bytes were taken, not all           -> unknown; the log is opened again and the torn
//!                                                    line cut off before anything is appended
//! written, and the sync fails                     -> unknown; nothing is believed any more: the
//!                                                    bus stops, and so should the process
//! written and synced                              -> committed at its line
//! ```
//!
//! One process writes to a folder; others may read beside it ([`FileReader`]). The layout is in
//! [`log`], the form of a line in [`mod@line`].

mod beside;
mod check;
mod head;
mod index;
mod line;
mod lock;
mod log;
mod medium;
mod search;
mod snapshot;
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

use admit_core::unwound;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::name;
use crate::port::{
    BoxFuture, Bus, BusError, BusHealth, Found, Message, OffsetKind, Published, Record, Sought,
};
use check::BackgroundCheck;
use lock::RootLock;
use log::{How, Log};
use writer::{Closed, Job, Looked, Slot, Writer};

pub use beside::{FileReader, Records};
pub use snapshot::{LogLengths, copy_log, cut_unknown_end};

/// The only partition of a topic.
const PARTITION: u32 = 0;
/// Bytes that share a sync, about.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Largest payload that can be configured.
pub const MESSAGE_BYTES_CEILING: usize = 4 << 20;
/// Longest line: a payload, the longest keys with every character escaped, and the rest.
const LINE_BYTES_MAX: u64 = MESSAGE_BYTES_CEILING as u64 + 4096;
/// What an interrupted batch can leave in one log.
const TORN_BYTES_MAX: u64 = BATCH_BYTES_MAX as u64 + LINE_BYTES_MAX;
/// Bytes between two notes of the index: what a search reads at least, and a start at most.
const BLOCK_BYTES: u64 = 256 << 10;
/// Most lines that one [`Bus::read`] returns, whatever it is asked for.
pub const READ_ROWS_MAX: usize = 10_000;
/// Payload bytes after which a [`Bus::read`] returns what it has.
pub const READ_BYTES_MAX: usize = 16 << 20;

/// What is to be done about a log that has lost something.
const DAMAGED: &str = "nothing was changed; stop the gate, restore the log from a copy or fill the \
                       lost lines (docs/bus/file.md, A damaged log), then start again";

/// How a file bus is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder; made if it is not there.
    pub root: PathBuf,
    /// Largest payload, in bytes; at most [`MESSAGE_BYTES_CEILING`].
    pub message_bytes_max: usize,
    /// Calls that may wait for the writer. Further ones wait for room, which holds producers back.
    pub waiting_max: usize,
    /// Most topics. Each keeps three files open.
    pub topics_max: usize,
    /// Bytes a search may read per topic before it says that it cannot tell.
    pub find_bytes_max: u64,
    /// How long a search, a reader or a probe waits for the writer to finish what it is at.
    pub look_wait: Duration,
    /// See [`Bus::delivery_timeout`].
    pub delivery_timeout: Duration,
    /// How many messages of each topic are known to be acknowledged, from elsewhere. A topic that
    /// has fewer is damaged: nothing is published to it.
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
            look_wait: Duration::from_secs(5),
            delivery_timeout: Duration::from_secs(30),
            acknowledged: BTreeMap::new(),
        }
    }
}

/// Why a file bus could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file in it.
    #[error("the bus folder {} cannot be used", path.display())]
    Folder {
        /// What it was about.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process writes there.
    #[error(
        "the bus folder {} is in use by process {holder}; stop that one, or use another folder",
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
        /// Which.
        topic: String,
        /// The cause.
        #[source]
        source: BusError,
    },
    /// More topics than allowed.
    #[error("the bus folder {} holds {topics} topics, at most {topics_max} are allowed; raise the limit or move topics away", root.display())]
    TooManyTopics {
        /// The folder.
        root: PathBuf,
        /// How many there are.
        topics: usize,
        /// How many there may be.
        topics_max: usize,
    },
}

/// A bus in a folder.
#[derive(Debug)]
pub struct FileBus {
    options: Options,
    /// `None` only while it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    stopped: watch::Receiver<Option<String>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// What was found damaged while the bus was open. It stays until a new start.
    damage: Arc<OnceLock<String>>,
    _check: BackgroundCheck,
    _lock: RootLock,
}

impl FileBus {
    /// Opens the bus in a folder, repairs what a crash left there and starts its writer.
    ///
    /// # Errors
    /// When another process has it, or when the folder or a log cannot be used. A log that is damaged
    /// is no error: nothing is published to its topic and the bus is [`BusHealth::Down`], so that
    /// everything else of a gate goes on.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let how = How { block_bytes: BLOCK_BYTES, medium: medium::files() };
        Self::open_how(options, how)
    }

    fn open_how(options: Options, how: How) -> Result<Self, OpenError> {
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
            let slot = match Log::open(root, &topic, &how, lines) {
                Ok(log) => {
                    unchecked.push((log.view(), log.unchecked));
                    Slot::Open(log)
                }
                Err(error @ BusError::Damaged { .. }) => {
                    Slot::Closed(Closed::new(root, &topic, &error))
                }
                Err(source) => return Err(OpenError::Topic { topic, source }),
            };
            logs.insert(topic.as_str().into(), slot);
        }
        let (jobs, waiting) = mpsc::channel(options.waiting_max.max(1));
        let (stop, stopped) = watch::channel(None);
        let told = stop.clone();
        let tell = move || {
            told.send_replace(Some("the writer of the bus ended by a panic".to_owned()));
        };
        let writer = Writer { options: options.clone(), how, logs, acknowledged, stop };
        let writer = thread::Builder::new()
            .name("bus-writer".to_owned())
            .spawn(move || unwound::or_tell(|| writer.run(waiting), tell))
            .map_err(folder)?;
        let writer = Mutex::new(Some(writer));
        let damage = Arc::new(OnceLock::new());
        let check = BackgroundCheck::start(unchecked, Arc::clone(&damage)).map_err(folder)?;
        let (jobs, _check, _lock) = (Some(jobs), check, lock);
        Ok(Self { options, jobs, stopped, writer, damage, _check, _lock })
    }

    /// Asks the writer how these topics stand, after everything handed over before. The message of
    /// the error says why it cannot tell.
    async fn look(&self, topics: Vec<String>, is_probe: bool) -> Result<Looked, String> {
        let asked = async {
            let (reply, answer) = oneshot::channel();
            let jobs = self.jobs.as_ref()?;
            jobs.send(Job::Look { topics, is_probe, reply }).await.ok()?;
            answer.await.ok()
        };
        match timeout(self.options.look_wait, asked).await {
            Ok(Some(looked)) => Ok(looked),
            Ok(None) => Err(self.why_stopped()),
            Err(_) => Err(format!(
                "the writer is busy with earlier messages for more than {} ms",
                self.options.look_wait.as_millis()
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
        self.jobs = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the bus ended by a panic");
        }
    }
}

impl Bus for FileBus {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Published>> {
        Box::pin(async move {
            let asked = batch.len();
            if asked == 0 {
                return Vec::new();
            }
            let (reply, answer) = oneshot::channel();
            let sent = match &self.jobs {
                Some(jobs) => jobs.send(Job::Publish { batch, reply }).await.is_ok(),
                None => false,
            };
            if !sent {
                let reason = format!("{}, nothing was written", self.why_stopped());
                return vec![Published::NotWritten { reason }; asked];
            }
            answer.await.unwrap_or_else(|_| {
                let reason = "the writer of the bus ended before it answered".to_owned();
                vec![Published::Unknown { reason }; asked]
            })
        })
    }

    fn find(&self, sought: Vec<Sought>) -> BoxFuture<'_, Vec<Found>> {
        Box::pin(async move {
            let asked = sought.len();
            let cannot_tell = |reason: String| vec![Found::CannotTell { reason }; asked];
            if asked == 0 {
                return Vec::new();
            }
            let mut topics: Vec<String> = sought.iter().map(|one| one.topic.clone()).collect();
            topics.sort_unstable();
            topics.dedup();
            let looked = match self.look(topics.clone(), false).await {
                Ok(looked) => topics.into_iter().zip(looked).collect(),
                Err(reason) => return cannot_tell(reason),
            };
            let bytes_max = self.options.find_bytes_max;
            let search = spawn_blocking(move || search::find(&looked, &sought, bytes_max));
            search.await.unwrap_or_else(|_| cannot_tell("the search was cut short".to_owned()))
        })
    }

    fn read(
        &self,
        topic: &str,
        partition: u32,
        from: &str,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Record>, BusError>> {
        let asked = check_read(topic, partition, from);
        let topic = topic.to_owned();
        let rows_max = rows_max.min(READ_ROWS_MAX);
        Box::pin(async move {
            let from = asked?;
            let unavailable = |reason| BusError::Unavailable { reason, source: None };
            let looked = self.look(vec![topic], false).await.map_err(unavailable)?;
            let view = match looked.into_iter().next() {
                Some(Ok(Some(view))) => view,
                Some(Err(reason)) => return Err(unavailable(reason)),
                Some(Ok(None)) | None => return Ok(Vec::new()),
            };
            let read = spawn_blocking(move || search::read(&view, from, rows_max));
            let read = read.await;
            if let Ok(Err(error @ BusError::Damaged { .. })) = &read {
                tracing::error!(%error, "a bus log is damaged");
                // The first damage that is found is enough to stop for.
                self.damage.set(format!("{error}; {DAMAGED}")).unwrap_or_default();
            }
            read.unwrap_or_else(|_| Err(unavailable("the read was cut short".to_owned())))
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
                    return BusHealth::Down { reason: format!("{topic:?} is no topic: {reason}") };
                }
            }
            let looked = match self.look(topics, true).await {
                Ok(looked) => looked,
                Err(reason) if self.stopped.borrow().is_some() => {
                    return BusHealth::Down { reason };
                }
                Err(reason) => return BusHealth::Unknown { reason },
            };
            if let Some(reason) = looked.into_iter().find_map(Result::err) {
                return BusHealth::Down { reason };
            }
            if let Some(reason) = self.damage.get() {
                return BusHealth::Down { reason: reason.clone() };
            }
            let root = self.options.root.clone();
            let probe = timeout(self.options.look_wait, spawn_blocking(move || probe(&root)));
            match probe.await {
                Ok(Ok(Ok(()))) => BusHealth::Up,
                Ok(Ok(Err(error))) => BusHealth::Down {
                    reason: format!("the bus folder cannot be written to: {error}"),
                },
                Ok(Err(_)) | Err(_) => BusHealth::Unknown {
                    reason: "the probe of the bus folder did not come back".to_owned(),
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
            // The writer ended without a reason of its own: the bus is being dropped.
            std::future::pending().await
        })
    }
}

/// Checks what a reader asks for, and gives the line to begin at.
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

/// The topics that have a folder under `root`, in order, also where the log in it was deleted.
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

/// Writes a file and takes it away again.
fn probe(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let path = root.join(".probe");
    fs::File::create(&path)?.write_all(b"up\n")?;
    fs::remove_file(&path)
}
