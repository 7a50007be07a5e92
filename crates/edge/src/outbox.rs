//! The outbox as its users see it: enqueue, take, settle, watch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use admit_core::{Clock, Millis, unwound};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::backoff::{Backoff, Jitter};
use crate::invalid::InvalidSubmission;
use crate::keeper::{EnqueueError, Enqueued, Keeper, Settled, Taken, Work};
use crate::store::Store;

/// Work that may wait for the thread that writes. Whoever comes later waits for a place.
const QUEUE: usize = 1024;

/// How an outbox is kept.
#[derive(Clone)]
pub struct Options {
    /// The disk budget: most bytes of the file and its log on disk. What does not fit is refused.
    pub bytes_max: u64,
    /// The waits between attempts.
    pub backoff: Backoff,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where jitter begins; `None` takes a number from the system.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            backoff: Backoff::default(),
            clock: Arc::new(SystemClock),
            seed: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("bytes_max", &self.bytes_max)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

/// The system's own time of day.
struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the clock")]
    fn now(&self) -> Millis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Millis(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Why an outbox cannot be used. The texts are for the person who has to act on them.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file in it cannot be used.
    #[error("cannot use {}: {source}\n  check that its folder is on a writable disk and that this user owns it", path.display())]
    Folder {
        /// What could not be used.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("another process uses the outbox {}\n  stop it first: two must not send from one outbox", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// SQLite cannot use the file.
    #[error("the outbox {} cannot be opened: {source}\n  nothing was changed; mend the disk, or keep a copy and rescue what is readable with sqlite3's .recover", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The system has no thread or no randomness to give.
    #[error("the outbox cannot be started: {0}")]
    System(io::Error),
}

/// What an outbox counts. Read them at any time.
#[derive(Debug, Default)]
pub struct Counters {
    /// Rows that wait now.
    pub depth: AtomicU64,
    /// When the oldest of them was stored, in milliseconds since 1970; 0 when there is none.
    pub oldest_at: AtomicU64,
    /// Bytes on disk, of the file and its log.
    pub bytes: AtomicU64,
    /// Invalid envelopes that are kept.
    pub invalid: AtomicU64,
    /// Invalid envelopes that were not kept, because their quota was used up.
    pub invalid_unkept: AtomicU64,
    /// Rows stored.
    pub enqueued: AtomicU64,
    /// Rows that found no room.
    pub refused_full: AtomicU64,
    /// Rows sent, each time.
    pub sent: AtomicU64,
    /// Rows removed by their acknowledgement.
    pub acked: AtomicU64,
    /// Attempts that brought a refusal.
    pub nacked: AtomicU64,
    /// Attempts that brought nothing in time.
    pub unanswered: AtomicU64,
    /// Connections made.
    pub connects: AtomicU64,
    /// Connections that could not be made.
    pub connect_failures: AtomicU64,
    /// Whether there is a connection now.
    pub is_connected: AtomicBool,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// A durable queue in one file. See the crate.
pub struct Outbox {
    work: Mutex<Option<mpsc::Sender<Work>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<Counters>,
    news: Arc<Notify>,
    stopped: watch::Receiver<Option<String>>,
    backoff: Backoff,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Opens the outbox in the file `path`, or makes it.
    ///
    /// # Errors
    /// When the file cannot be used, or another process uses it.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let store = Store::open(path, options.bytes_max)?;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| OpenError::System(io::Error::other(error)))?,
        };
        let (work, mut queue) = mpsc::channel(QUEUE);
        let (stop, stopped) = watch::channel(None);
        let counters = Arc::<Counters>::default();
        let news = Arc::<Notify>::default();
        let keeper = Keeper::new(
            store,
            options.backoff,
            Arc::clone(&options.clock),
            Jitter::begun_at(seed),
            Arc::clone(&counters),
        );
        let mut keeper =
            keeper.map_err(|source| OpenError::Sqlite { path: path.into(), source })?;
        let told = Arc::clone(&news);
        let thread = thread::Builder::new()
            .name("outbox".to_owned())
            .spawn(move || {
                unwound::or_tell(
                    || keeper.run(&mut queue, &told, &stop),
                    || {
                        let reason = "the keeper of the outbox ended by a panic";
                        stop.send_replace(Some(reason.to_owned()));
                    },
                );
            })
            .map_err(OpenError::System)?;
        Ok(Self {
            work: Mutex::new(Some(work)),
            thread: Mutex::new(Some(thread)),
            counters,
            news,
            stopped,
            backoff: options.backoff,
            clock: options.clock,
        })
    }

    /// Stores an event. It is durable when this returns: synced, together with whatever other
    /// threads store at the same time. It blocks; in asynchronous code use
    /// [`Outbox::enqueue_async`].
    ///
    /// # Errors
    /// When the event is not stored, or nobody can tell. The same id again is safe either way.
    pub fn enqueue(&self, event_id: &str, payload_json: &str) -> Result<Enqueued, EnqueueError> {
        let (told, answer) = oneshot::channel();
        let (event_id, payload_json) = (event_id.to_owned(), payload_json.to_owned());
        let work = Work::Store { event_id, payload_json, told };
        let sent = self.queue().map(|queue| queue.blocking_send(work));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.closed());
        }
        answer.blocking_recv().unwrap_or_else(|_| Err(self.closed()))
    }

    /// The same for whoever must not block.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub async fn enqueue_async(
        &self,
        event_id: String,
        payload_json: String,
    ) -> Result<Enqueued, EnqueueError> {
        let (told, answer) = oneshot::channel();
        if self.hand_over(Work::Store { event_id, payload_json, told }).await.is_none() {
            return Err(self.closed());
        }
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// Keeps an envelope that failed the vet, for a person to decide on; `false` when the quota of
    /// such envelopes is used up. It is never sent.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub async fn keep_invalid(
        &self,
        event_id: Option<String>,
        payload: Vec<u8>,
        error: String,
    ) -> Result<bool, EnqueueError> {
        let (told, answer) = oneshot::channel();
        let rejected = InvalidSubmission { event_id, payload, error };
        if self.hand_over(Work::KeepInvalid { rejected, told }).await.is_none() {
            return Err(self.closed());
        }
        answer.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// What it counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Resolves with the reason when the disk has failed in a way that only a new start can judge.
    pub async fn must_stop(&self) -> String {
        let mut stopped = self.stopped.clone();
        let reason = stopped.wait_for(Option::is_some).await.ok().and_then(|told| told.clone());
        match reason {
            Some(reason) => reason,
            // Closed in good order: there is no reason to stop.
            None => std::future::pending().await,
        }
    }

    /// Finishes what was handed over and closes the file. Later calls are refused.
    pub fn close(&self) {
        drop(self.work.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the outbox thread ended in a defect; what was stored is in the file");
        }
    }

    /// Rows that are due, at most so many. They are in flight until they are settled.
    pub(crate) async fn take(&self, rows_max: usize) -> Option<Taken> {
        let (told, answer) = oneshot::channel();
        self.hand_over(Work::Take { rows_max, told }).await?;
        answer.await.ok()
    }

    /// Writes down what became of rows that were taken, and whatever was to be written down before.
    pub(crate) async fn settle(&self, settled: Vec<Settled>) {
        let (told, answer) = oneshot::channel();
        let work = Work::Settle { settled, told };
        if self.hand_over(work).await.is_some() && answer.await.is_err() {
            tracing::debug!("the outbox closed while acknowledgements were written down");
        }
    }

    /// The same without waiting for the disk: if it fails, the row is sent again, which does no harm.
    pub(crate) async fn settle_soon(&self, settled: Vec<Settled>) {
        if !settled.is_empty() {
            let (told, _) = oneshot::channel();
            let handed = self.hand_over(Work::Settle { settled, told }).await;
            tracing::trace!(handed = handed.is_some(), "answers to be written down");
        }
    }

    /// Counts a connection that could not be made as an attempt of the rows that are due, which wait
    /// for the next one.
    pub(crate) async fn connect_failed(&self, error: String, wait: Duration) {
        let handed = self.hand_over(Work::ConnectFailed { error, wait }).await;
        tracing::trace!(handed = handed.is_some(), "an attempt to be counted");
    }

    /// Makes due again what waited for a connection.
    pub(crate) async fn connected(&self) {
        let (told, answer) = oneshot::channel();
        if self.hand_over(Work::Connected { told }).await.is_some() && answer.await.is_err() {
            tracing::debug!("the outbox closed while a connection was made");
        }
    }

    /// Resolves after rows have been stored. One that was stored before the call counts, once.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// How long until `at`.
    pub(crate) fn until(&self, at: Millis) -> Duration {
        let millis = at.0.saturating_sub(self.clock.now().0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    fn queue(&self) -> Option<mpsc::Sender<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn hand_over(&self, work: Work) -> Option<()> {
        self.queue()?.send(work).await.ok()
    }

    fn closed(&self) -> EnqueueError {
        match self.stopped.borrow().as_ref() {
            Some(reason) => EnqueueError::Stopped(reason.clone()),
            None => EnqueueError::Closed,
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.close();
    }
}
