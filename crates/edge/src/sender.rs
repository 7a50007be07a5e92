//! Background sender: connects when rows are due, keeps a window of rows in flight, and settles
//! each row by its reply.
//!
//! A failed connection counts as an attempt of the rows that were due. They wait for the next
//! connection together and keep their order, so that after a long outage they are sent at full
//! speed, in order. Rows in flight on a broken link have failed once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Jitter;
use crate::in_flight::InFlightRows;
use crate::outbox::{Outbox, OutboxCounters};
use crate::outbox_writer::{DueRows, RowOutcome, SettledRow};
use crate::progress::BacklogProgress;
use crate::store::OutboxRow;
use crate::wire::{AckResult, GateLink, Wire, WireReply};

/// Consecutive retryable refusals after which the sender pauses all rows.
const REFUSALS_BEFORE_PAUSE: u32 = 2;

/// Maximum replies settled in one commit.
const SETTLE_BATCH_MAX: usize = 1024;

/// Maximum sleep while nothing is due; the clock may be set, or another process may add rows to the
/// file.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// Options of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderOptions {
    /// Maximum rows in flight.
    pub in_flight_max: usize,
    /// Timeout of an acknowledgement, and of connecting.
    pub ack_max: Duration,
    /// How long a stop waits for acknowledgements of rows in flight.
    pub stop_max: Duration,
}

impl Default for SenderOptions {
    fn default() -> Self {
        Self {
            in_flight_max: 256,
            ack_max: Duration::from_secs(10),
            stop_max: Duration::from_secs(5),
        }
    }
}

/// Background sender. Dropping it stops it.
pub struct Sender {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    /// Starts sending the rows of `outbox`, present and future.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        outbox: Arc<Outbox>,
        wire: Arc<dyn Wire>,
        options: SenderOptions,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let jitter = Jitter::seeded(getrandom::u64().map_err(io::Error::other)?);
        let tasks = TaskTracker::new();
        let in_flight_max = wire.window(options.in_flight_max);
        let options = SenderOptions { in_flight_max, ..options };
        let (failures, has_waiting_rows) = (0, false);
        let stopping = stop.clone();
        let mut run = SenderLoop {
            outbox,
            wire,
            options,
            stop: stopping,
            tasks,
            failures,
            has_waiting_rows,
            jitter,
        };
        let thread = thread::Builder::new().name("outbox-sender".to_owned()).spawn(move || {
            runtime.block_on(run.run_until_stopped());
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops sending: waits up to `stop_max` for acknowledgements of rows in flight; all other rows
    /// stay in the outbox.
    pub fn stop(self) {
        drop(self);
    }

    /// Signals the stop without waiting, so that several senders can stop concurrently.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("an outbox sender panicked; unsent rows stay in the outbox");
        }
    }
}

struct SenderLoop {
    outbox: Arc<Outbox>,
    wire: Arc<dyn Wire>,
    options: SenderOptions,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Consecutive links without an acknowledgement.
    failures: u32,
    /// Whether rows are waiting for a connection.
    has_waiting_rows: bool,
    jitter: Jitter,
}

/// Reason why a link ended.
enum LinkEnd {
    /// The sender was stopped.
    Stopped,
    /// The peer closed it while no row was in flight.
    Idle,
    /// The connection was lost while rows were in flight.
    Lost(String),
    /// It could not be established.
    NotConnected(String),
}

impl SenderLoop {
    async fn run_until_stopped(&mut self) {
        while let Some(first) = self.wait_for_due_rows().await {
            let counters = self.outbox.counters();
            let connecting = self.wire.connect(&self.tasks, self.options.in_flight_max);
            let connected = tokio::select! {
                connected = timeout(self.options.ack_max, connecting) => {
                    connected.unwrap_or_else(|_| Err("cannot connect: timeout".to_owned()))
                }
                () = self.stop.cancelled() => {
                    self.outbox.settle(unsent(first.rows)).await;
                    return;
                }
            };
            let end = match connected {
                Ok(link) => {
                    let Some(first) = self.rows_in_order(first).await else { return };
                    let counters = self.outbox.counters();
                    OutboxCounters::add(&counters.connects, 1);
                    counters.is_connected.store(true, Ordering::Relaxed);
                    tracing::info!(gate = %self.wire, "connected");
                    let end = LinkSession::new(self, link, first).run().await;
                    self.outbox.counters().is_connected.store(false, Ordering::Relaxed);
                    end
                }
                Err(reason) => {
                    OutboxCounters::add(&counters.connect_failures, 1);
                    self.outbox.settle(unsent(first.rows)).await;
                    LinkEnd::NotConnected(reason)
                }
            };
            match end {
                LinkEnd::Stopped => return,
                LinkEnd::Idle => {}
                LinkEnd::Lost(reason) => {
                    let wait = self.backoff_after(&reason);
                    self.pause(wait).await;
                }
                LinkEnd::NotConnected(reason) => {
                    let wait = self.backoff_after(&reason);
                    self.has_waiting_rows = true;
                    self.outbox.connect_failed(reason, wait).await;
                    self.pause(wait).await;
                }
            }
        }
    }

    /// The first rows to send on a new connection: rows that waited for it precede rows stored
    /// meanwhile.
    async fn rows_in_order(&mut self, first: DueRows) -> Option<DueRows> {
        if !std::mem::take(&mut self.has_waiting_rows) {
            return Some(first);
        }
        self.outbox.settle(unsent(first.rows)).await;
        self.outbox.connected().await;
        self.outbox.take(self.options.in_flight_max).await
    }

    /// Waits until rows are due, and takes them; `None` when the sender stops.
    async fn wait_for_due_rows(&self) -> Option<DueRows> {
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            let taken = self.outbox.take(self.options.in_flight_max).await?;
            if !taken.rows.is_empty() {
                return Some(taken);
            }
            let wait =
                taken.next_due.map_or(POLL_INTERVAL_MAX, |at| self.outbox.duration_until(at));
            tokio::select! {
                () = self.outbox.rows_stored() => {}
                () = sleep(wait.min(POLL_INTERVAL_MAX)) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// Backoff after a link that was lost or could not be established.
    fn backoff_after(&mut self, reason: &str) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let wait = self.outbox.backoff().wait(self.failures, self.jitter.draw());
        let depth = self.outbox.counters().depth.load(Ordering::Relaxed);
        let wait_ms = wait.as_millis();
        if self.failures == 1 {
            tracing::info!(gate = %self.wire, reason, depth, wait_ms, "the connection to the gate was lost; rows stay in the outbox");
        } else {
            tracing::warn!(gate = %self.wire, reason, depth, wait_ms, "the gate is not reachable; rows stay in the outbox");
        }
        wait
    }

    async fn pause(&self, wait: Duration) {
        tokio::select! {
            () = sleep(wait) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

fn unsent(rows: Vec<OutboxRow>) -> Vec<SettledRow> {
    rows.into_iter().map(|row| SettledRow { row, outcome: RowOutcome::Unsent }).collect()
}

/// The next reply; a peeked one first.
async fn next(
    peeked: &mut Option<Result<WireReply, String>>,
    link: &mut GateLink,
) -> Option<Result<WireReply, String>> {
    match peeked.take() {
        Some(reply) => Some(reply),
        None => link.incoming.recv().await,
    }
}

/// State of one link.
struct LinkSession<'a> {
    run: &'a mut SenderLoop,
    link: GateLink,
    in_flight: InFlightRows,
    /// Rows taken but held back, because their reply names would collide with others in flight.
    held_back: Vec<OutboxRow>,
    first: Vec<OutboxRow>,
    next_due: Option<Instant>,
    /// Whether the outbox may have more due rows.
    has_more: bool,
    refusals: u32,
    paused_until: Option<Instant>,
    last_reply_at: Instant,
    progress: Option<BacklogProgress>,
    stopping: Option<Instant>,
    /// A received reply to be processed next.
    peeked: Option<Result<WireReply, String>>,
}

impl<'a> LinkSession<'a> {
    fn new(run: &'a mut SenderLoop, link: GateLink, first: DueRows) -> Self {
        let now = Instant::now();
        let depth = run.outbox.counters().depth.load(Ordering::Relaxed);
        let next_due = first.next_due.map(|at| now + run.outbox.duration_until(at));
        Self {
            in_flight: InFlightRows::new(run.options.ack_max),
            run,
            link,
            held_back: Vec::new(),
            first: first.rows,
            next_due,
            has_more: true,
            refusals: 0,
            paused_until: None,
            last_reply_at: now,
            progress: BacklogProgress::of(depth, now),
            stopping: None,
            peeked: None,
        }
    }

    async fn run(mut self) -> LinkEnd {
        let end = loop {
            if let Err(end) = self.fill().await {
                break end;
            }
            if self
                .stopping
                .is_some_and(|deadline| self.in_flight.is_empty() || deadline <= Instant::now())
            {
                break LinkEnd::Stopped;
            }
            let wake = self.wake();
            let accepts_new = self.has_room() && self.stopping.is_none();
            tokio::select! {
                reply = next(&mut self.peeked, &mut self.link) => match reply {
                    Some(Ok(reply)) => self.settle(reply).await,
                    Some(Err(reason)) => break self.closed(reason),
                    None => break self.closed("the link was closed".to_owned()),
                },
                () = self.run.outbox.rows_stored(), if accepts_new => self.has_more = true,
                () = sleep_until(wake) => {
                    if let Some(end) = self.tick(Instant::now()).await {
                        break end;
                    }
                }
                () = self.run.stop.cancelled(), if self.stopping.is_none() => {
                    self.stopping = Some(Instant::now() + self.run.options.stop_max);
                }
            }
        };
        let reason = match &end {
            LinkEnd::Stopped => "stopped before the acknowledgement",
            LinkEnd::Idle => "",
            LinkEnd::Lost(reason) | LinkEnd::NotConnected(reason) => reason,
        };
        let mut rest = self.in_flight.fail_all(reason);
        OutboxCounters::add(&self.run.outbox.counters().unanswered, rest.len() as u64);
        rest.extend(unsent(std::mem::take(&mut self.held_back)));
        rest.extend(unsent(std::mem::take(&mut self.first)));
        self.run.outbox.settle(rest).await;
        end
    }

    fn closed(&self, reason: String) -> LinkEnd {
        if self.in_flight.is_empty() { LinkEnd::Idle } else { LinkEnd::Lost(reason) }
    }

    fn has_room(&self) -> bool {
        let max = self.run.options.in_flight_max;
        // Refill in larger steps: taking one row costs as much as taking many.
        let step = (max / 4).clamp(1, 64);
        self.in_flight.len() + self.held_back.len() + step <= max
    }

    /// Sends rows until the window is full or nothing is due.
    async fn fill(&mut self) -> Result<(), LinkEnd> {
        if self.stopping.is_some() || self.paused_until.is_some() {
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        self.send(first)?;
        while self.has_more && self.has_room() {
            let room = self.run.options.in_flight_max - self.in_flight.len() - self.held_back.len();
            let Some(taken) = self.run.outbox.take(room).await else {
                return Err(LinkEnd::Stopped);
            };
            self.has_more = taken.rows.len() == room;
            self.next_due =
                taken.next_due.map(|at| Instant::now() + self.run.outbox.duration_until(at));
            self.send(taken.rows)?;
        }
        Ok(())
    }

    fn send(&mut self, rows: Vec<OutboxRow>) -> Result<(), LinkEnd> {
        let counters = self.run.outbox.counters();
        let mut rows = rows.into_iter();
        while let Some(row) = rows.next() {
            let name = self.run.wire.reply_name(&row);
            if self.in_flight.may_collide(&name, &row) {
                self.held_back.push(row);
                continue;
            }
            if self.in_flight.is_empty() {
                self.last_reply_at = Instant::now();
            }
            let sent = self.link.outgoing.try_send(row.clone());
            if matches!(sent, Err(TrySendError::Full(_))) {
                // The link still holds rows that timed out. Blocking here would stop reading its
                // replies, for which it may be waiting.
                self.held_back.push(row);
                self.held_back.extend(rows);
                let reason = "timeout: the link sends more slowly than acknowledgements time out";
                return Err(LinkEnd::Lost(reason.to_owned()));
            }
            // From here on the row may have left, so it counts as sent.
            self.in_flight.sent(name, row, Instant::now());
            OutboxCounters::add(&counters.sent, 1);
            if sent.is_err() {
                // All taken rows are settled at the end of the link.
                self.held_back.extend(rows);
                let next_reply = self.link.incoming.try_recv();
                let reason = match next_reply {
                    Ok(Err(reason)) => reason,
                    Ok(Ok(_)) | Err(_) => "the link was closed".to_owned(),
                };
                return Err(LinkEnd::Lost(reason));
            }
        }
        Ok(())
    }

    /// Settles a reply, together with all others already received, in one commit.
    async fn settle(&mut self, first: WireReply) {
        let now = Instant::now();
        self.last_reply_at = now;
        let mut settled = Vec::new();
        let mut acked = 0;
        let mut next = Some(first);
        while let Some(reply) = next {
            self.track_refusals(&reply.result, now);
            if let Some(settled_row) = self.in_flight.settle(reply) {
                acked += u64::from(settled_row.outcome == RowOutcome::Acked);
                settled.push(settled_row);
            }
            next = match self.link.incoming.try_recv() {
                Ok(Ok(reply)) if settled.len() < SETTLE_BATCH_MAX => Some(reply),
                Ok(Ok(reply)) => {
                    self.peeked = Some(Ok(reply));
                    None
                }
                Ok(Err(reason)) => {
                    self.peeked = Some(Err(reason));
                    None
                }
                Err(_) => None,
            };
        }
        let counters = self.run.outbox.counters();
        OutboxCounters::add(&counters.acked, acked);
        OutboxCounters::add(&counters.nacked, settled.len() as u64 - acked);
        settled.extend(unsent(std::mem::take(&mut self.held_back)));
        if settled.iter().all(|settled_row| settled_row.outcome == RowOutcome::Acked) {
            self.run.outbox.settle_soon(settled).await;
        } else {
            // Wait for the commit: the next take must see the new due times.
            self.run.outbox.settle(settled).await;
        }
        if self.progress.as_mut().is_some_and(|progress| !progress.acked(acked, Instant::now())) {
            self.progress = None;
        }
        self.has_more = true;
    }

    /// Tracks refusals: pauses all rows when the gate refuses several in succession.
    fn track_refusals(&mut self, result: &AckResult, now: Instant) {
        match result {
            AckResult::Ack => {
                self.refusals = 0;
                self.run.failures = 0;
            }
            AckResult::Nack { retryable: true, retry_after, .. } => {
                self.refusals = self.refusals.saturating_add(1);
                if self.refusals >= REFUSALS_BEFORE_PAUSE && self.paused_until.is_none() {
                    self.run.failures = self.run.failures.saturating_add(1);
                    let backoff = self.run.outbox.backoff();
                    let wait = backoff.wait(self.run.failures, self.run.jitter.draw());
                    self.paused_until = Some(now + wait.max((*retry_after).min(backoff.max)));
                }
            }
            // A final refusal concerns only its own event.
            AckResult::Nack { retryable: false, .. } => {}
        }
    }

    /// The next timer event.
    fn wake(&mut self) -> Instant {
        let due = self.next_due.filter(|_| self.has_room() && self.paused_until.is_none());
        let times = [due, self.in_flight.deadline(), self.paused_until, self.stopping];
        let latest = Instant::now() + POLL_INTERVAL_MAX;
        times.into_iter().flatten().fold(latest, Instant::min)
    }

    /// Processes replies already received. This task may have been blocked by the disk, or not
    /// scheduled at all: replies received meanwhile are in time.
    async fn process_received(&mut self) {
        // Let the link's reader tasks run first.
        tokio::task::yield_now().await;
        if self.peeked.is_none() {
            self.peeked = self.link.incoming.try_recv().ok();
        }
        if let Some(Ok(reply)) = self.peeked.take_if(|reply| reply.is_ok()) {
            self.settle(reply).await;
        }
    }

    /// Timer event: ends pauses, refills due rows, and fails rows whose acknowledgement timed out.
    async fn tick(&mut self, now: Instant) -> Option<LinkEnd> {
        self.paused_until = self.paused_until.filter(|deadline| *deadline > now);
        self.has_more = true;
        if self.in_flight.deadline().is_some_and(|at| at <= now) {
            self.process_received().await;
        }
        let overdue = self.in_flight.overdue(now);
        if overdue.is_empty() {
            return None;
        }
        OutboxCounters::add(&self.run.outbox.counters().unanswered, overdue.len() as u64);
        self.run.outbox.settle(overdue).await;
        // A timeout of a single row fails only that row. A link without any reply for a whole
        // timeout is dead.
        let is_silent = now.duration_since(self.last_reply_at) >= self.run.options.ack_max;
        is_silent.then(|| {
            LinkEnd::Lost("timeout: no reply from the gate within the ack timeout".to_owned())
        })
    }
}
