//! Public interface of the outbox: enqueue, take, settle, counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use admit_core::{Clock, Millis, panic_guard};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::backoff::{Backoff, Jitter};
use crate::invalid::InvalidSubmission;
use crate::outbox_writer::{
    DueRows, EnqueueError, EnqueueOutcome, OutboxCommand, OutboxWriter, SettledRow,
};
use crate::store::OutboxFile;

/// Capacity of the command queue; further callers wait.
const QUEUE: usize = 1024;

/// Options of an outbox.
#[derive(Clone)]
pub struct Options {
    /// Disk budget: maximum bytes of the file and its WAL. Further rows are refused.
    pub bytes_max: u64,
    /// Backoff between attempts.
    pub backoff: Backoff,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Seed of the jitter; `None` uses system randomness.
    pub seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            backoff: Backoff::default(),
            clock: Arc::new(WallClock),
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

/// System clock.
struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where this crate reads the clock")]
    fn now(&self) -> Millis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Millis(since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// Error of opening an outbox.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder or a file in it cannot be used.
    #[error("cannot use {}: {source}\n  check that its folder is on a writable disk and that this user owns it", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("another process uses the outbox {}\n  stop it first: only one process may send from an outbox", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// SQLite cannot use the file.
    #[error("the outbox {} cannot be opened: {source}\n  nothing was changed; repair the disk, or copy the file and recover readable rows with sqlite3's .recover", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The SQLite error.
        source: rusqlite::Error,
    },
    /// The thread could not be started, or no randomness is available.
    #[error("the outbox cannot be started: {0}")]
    System(io::Error),
}

/// Counters of an outbox.
#[derive(Debug, Default)]
pub struct OutboxCounters {
    /// Rows in the outbox.
    pub depth: AtomicU64,
    /// When the oldest row was stored, in milliseconds since 1970; 0 if there is none.
    pub oldest_at: AtomicU64,
    /// Bytes on disk, of the file and its WAL.
    pub bytes: AtomicU64,
    /// Stored invalid envelopes.
    pub invalid: AtomicU64,
    /// Invalid envelopes not stored because the quota was exhausted.
    pub invalid_unkept: AtomicU64,
    /// Rows stored.
    pub enqueued: AtomicU64,
    /// Rows refused because the budget was exhausted.
    pub refused_full: AtomicU64,
    /// Rows sent, counting every attempt.
    pub sent: AtomicU64,
    /// Rows removed by their acknowledgement.
    pub acked: AtomicU64,
    /// Attempts that were refused.
    pub nacked: AtomicU64,
    /// Attempts that timed out.
    pub unanswered: AtomicU64,
    /// Established connections.
    pub connects: AtomicU64,
    /// Failed connections.
    pub connect_failures: AtomicU64,
    /// Whether there is a connection.
    pub is_connected: AtomicBool,
}

impl OutboxCounters {
    pub(crate) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// Durable queue in one file. See the crate documentation.
pub struct Outbox {
    commands: Mutex<Option<mpsc::Sender<OutboxCommand>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counters: Arc<OutboxCounters>,
    rows_stored: Arc<Notify>,
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
    /// Opens the outbox in the file `path`, creating it if necessary.
    ///
    /// # Errors
    /// When the file cannot be used, or another process uses it.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let store = OutboxFile::open(path, options.bytes_max)?;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|error| OpenError::System(io::Error::other(error)))?,
        };
        let (commands, mut queue) = mpsc::channel(QUEUE);
        let (stop, stopped) = watch::channel(None);
        let counters = Arc::<OutboxCounters>::default();
        let rows_stored = Arc::<Notify>::default();
        let writer = OutboxWriter::new(
            store,
            options.backoff,
            Arc::clone(&options.clock),
            Jitter::seeded(seed),
            Arc::clone(&counters),
        );
        let mut writer =
            writer.map_err(|source| OpenError::Sqlite { path: path.into(), source })?;
        let notify = Arc::clone(&rows_stored);
        let thread = thread::Builder::new()
            .name("outbox".to_owned())
            .spawn(move || {
                panic_guard::run(
                    || writer.run(&mut queue, &notify, &stop),
                    || {
                        let reason = "the writer of the outbox ended by a panic";
                        stop.send_replace(Some(reason.to_owned()));
                    },
                );
            })
            .map_err(OpenError::System)?;
        Ok(Self {
            commands: Mutex::new(Some(commands)),
            thread: Mutex::new(Some(thread)),
            counters,
            rows_stored,
            stopped,
            backoff: options.backoff,
            clock: options.clock,
        })
    }

    /// Stores an event. It is durable when this returns: synced, in one commit with concurrent
    /// calls. Blocks; in asynchronous code use [`Outbox::enqueue_async`].
    ///
    /// # Errors
    /// When the event was not stored, or the outcome is unknown. It is safe to enqueue the same id
    /// again.
    pub fn enqueue(
        &self,
        event_id: &str,
        payload_json: &str,
    ) -> Result<EnqueueOutcome, EnqueueError> {
        let (reply, response) = oneshot::channel();
        let (event_id, payload_json) = (event_id.to_owned(), payload_json.to_owned());
        let command = OutboxCommand::Store { event_id, payload_json, reply };
        let sent = self.queue().map(|queue| queue.blocking_send(command));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.closed());
        }
        response.blocking_recv().unwrap_or_else(|_| Err(self.closed()))
    }

    /// Asynchronous version of [`Outbox::enqueue`].
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub async fn enqueue_async(
        &self,
        event_id: String,
        payload_json: String,
    ) -> Result<EnqueueOutcome, EnqueueError> {
        let (reply, response) = oneshot::channel();
        if self.submit(OutboxCommand::Store { event_id, payload_json, reply }).await.is_none() {
            return Err(self.closed());
        }
        response.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// Stores an envelope that failed validation, for an operator to resolve; `false` if their
    /// quota is exhausted. It is never sent.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub async fn keep_invalid(
        &self,
        event_id: Option<String>,
        payload: Vec<u8>,
        error: String,
    ) -> Result<bool, EnqueueError> {
        let (reply, response) = oneshot::channel();
        let rejected = InvalidSubmission { event_id, payload, error };
        if self.submit(OutboxCommand::KeepInvalid { rejected, reply }).await.is_none() {
            return Err(self.closed());
        }
        response.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// The counters.
    pub fn counters(&self) -> &OutboxCounters {
        &self.counters
    }

    /// Resolves with a reason after a disk failure that leaves the state of the file unknown until
    /// a restart.
    pub async fn must_stop(&self) -> String {
        let mut stopped = self.stopped.clone();
        let reason = stopped.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            // Closed normally.
            None => std::future::pending().await,
        }
    }

    /// Finishes pending commands and closes the file. Later calls are refused.
    pub fn close(&self) {
        drop(self.commands.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the outbox thread panicked; stored rows are in the file");
        }
    }

    /// Takes due rows, at most `rows_max`. They are in flight until they are settled.
    pub(crate) async fn take(&self, rows_max: usize) -> Option<DueRows> {
        let (reply, response) = oneshot::channel();
        self.submit(OutboxCommand::Take { rows_max, reply }).await?;
        response.await.ok()
    }

    /// Records the outcomes of taken rows. Waits for the commit.
    pub(crate) async fn settle(&self, settled: Vec<SettledRow>) {
        let (reply, response) = oneshot::channel();
        let command = OutboxCommand::Settle { settled, reply };
        if self.submit(command).await.is_some() && response.await.is_err() {
            tracing::debug!("the outbox closed while rows were being settled");
        }
    }

    /// Like [`Outbox::settle`], without waiting for the commit: if it fails, the row is sent again,
    /// and the gate deduplicates it.
    pub(crate) async fn settle_soon(&self, settled: Vec<SettledRow>) {
        if !settled.is_empty() {
            let (reply, _) = oneshot::channel();
            let submitted = self.submit(OutboxCommand::Settle { settled, reply }).await;
            tracing::trace!(submitted = submitted.is_some(), "queued settled rows");
        }
    }

    /// Counts a failed connection as an attempt of the due rows, and delays them.
    pub(crate) async fn connect_failed(&self, error: String, wait: Duration) {
        let submitted = self.submit(OutboxCommand::ConnectFailed { error, wait }).await;
        tracing::trace!(submitted = submitted.is_some(), "queued a failed connection attempt");
    }

    /// Makes the rows due that waited for a connection.
    pub(crate) async fn connected(&self) {
        let (reply, response) = oneshot::channel();
        if self.submit(OutboxCommand::Connected { reply }).await.is_some()
            && response.await.is_err()
        {
            tracing::debug!("the outbox closed while connecting");
        }
    }

    /// Resolves after rows have been stored. Rows stored before the call count, once.
    pub(crate) async fn rows_stored(&self) {
        self.rows_stored.notified().await;
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.backoff
    }

    /// Duration until `at`.
    pub(crate) fn duration_until(&self, at: Millis) -> Duration {
        let millis = at.0.saturating_sub(self.clock.now().0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }

    fn queue(&self) -> Option<mpsc::Sender<OutboxCommand>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn submit(&self, command: OutboxCommand) -> Option<()> {
        self.queue()?.send(command).await.ok()
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
