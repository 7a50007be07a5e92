//! Empties an outbox in the background: connect when there is something to say, keep a window of
//! rows in flight, settle each by the answer that names it.
//!
//! A connection that cannot be made is an attempt of the rows that were due. They wait for the next
//! one together and keep their order, so that an outage of a day is followed by sending at full
//! speed, in order. What was in flight when a link broke has failed once.

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
use crate::flight::Flight;
use crate::keeper::{Outcome, Settled, Taken};
use crate::outbox::{Counters, Outbox};
use crate::progress::Progress;
use crate::store::Row;
use crate::wire::{Heard, Link, Said, Wire};

/// Refusals in a row, without an acknowledgement between them, that mean "not now" for all.
const REFUSALS_THAT_PAUSE: u32 = 2;

/// Answers that are settled in one commit, at most.
const SETTLED_AT_ONCE: usize = 1024;

/// The longest sleep while nothing is due; the clock may have been set meanwhile, or a person may
/// have put something into the file.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderOptions {
    /// Most rows sent and not answered yet.
    pub in_flight_max: usize,
    /// How long an answer is waited for, and a connection.
    pub ack_max: Duration,
    /// How long a stop waits for answers to what is in flight.
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

/// A background sender. Dropping it stops it.
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
    /// Starts sending what is in `outbox`, and whatever comes.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn start(
        outbox: Arc<Outbox>,
        wire: Arc<dyn Wire>,
        options: SenderOptions,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let jitter = Jitter::begun_at(getrandom::u64().map_err(io::Error::other)?);
        let tasks = TaskTracker::new();
        let in_flight_max = wire.window(options.in_flight_max);
        let options = SenderOptions { in_flight_max, ..options };
        let (failures, has_waiting_rows) = (0, false);
        let stopping = stop.clone();
        let mut run = Run {
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
            runtime.block_on(run.until_stopped());
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops sending: waits a while for answers to what is in flight, then leaves the rest where it
    /// is safe.
    pub fn stop(self) {
        drop(self);
    }

    /// Begins to stop without waiting for it, so that several can stop together.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("an outbox sender ended in a defect; what it did not send is kept");
        }
    }
}

struct Run {
    outbox: Arc<Outbox>,
    wire: Arc<dyn Wire>,
    options: SenderOptions,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Links in a row that brought no acknowledgement.
    failures: u32,
    /// Whether rows wait for a connection.
    has_waiting_rows: bool,
    jitter: Jitter,
}

/// How a link ended.
enum Ended {
    /// We were told to.
    Stopped,
    /// It had nothing to carry when the other side closed it.
    Idle,
    /// It broke.
    Lost(String),
    /// It could not be made.
    NotConnected(String),
}

impl Run {
    async fn until_stopped(&mut self) {
        while let Some(first) = self.something_to_send().await {
            let counters = self.outbox.counters();
            let connecting = self.wire.connect(&self.tasks, self.options.in_flight_max);
            let connected = tokio::select! {
                connected = timeout(self.options.ack_max, connecting) => {
                    connected.unwrap_or_else(|_| Err("cannot connect in time".to_owned()))
                }
                () = self.stop.cancelled() => {
                    self.outbox.settle(unsent(first.rows)).await;
                    return;
                }
            };
            let ended = match connected {
                Ok(link) => {
                    let Some(first) = self.in_turn(first).await else { return };
                    let counters = self.outbox.counters();
                    Counters::add(&counters.connects, 1);
                    counters.is_connected.store(true, Ordering::Relaxed);
                    tracing::info!(gate = %self.wire, "connected");
                    let ended = Carry::new(self, link, first).run().await;
                    self.outbox.counters().is_connected.store(false, Ordering::Relaxed);
                    ended
                }
                Err(reason) => {
                    Counters::add(&counters.connect_failures, 1);
                    self.outbox.settle(unsent(first.rows)).await;
                    Ended::NotConnected(reason)
                }
            };
            match ended {
                Ended::Stopped => return,
                Ended::Idle => {}
                Ended::Lost(reason) => {
                    let wait = self.wait_after(&reason);
                    self.pause(wait).await;
                }
                Ended::NotConnected(reason) => {
                    let wait = self.wait_after(&reason);
                    self.has_waiting_rows = true;
                    self.outbox.connect_failed(reason, wait).await;
                    self.pause(wait).await;
                }
            }
        }
    }

    /// The rows to begin with, once there is a connection: those that waited for one come before
    /// those that were stored meanwhile.
    async fn in_turn(&mut self, first: Taken) -> Option<Taken> {
        if !std::mem::take(&mut self.has_waiting_rows) {
            return Some(first);
        }
        self.outbox.settle(unsent(first.rows)).await;
        self.outbox.connected().await;
        self.outbox.take(self.options.in_flight_max).await
    }

    /// Waits until rows are due, and takes them; `None` when there is nothing more to do.
    async fn something_to_send(&self) -> Option<Taken> {
        loop {
            if self.stop.is_cancelled() {
                return None;
            }
            let taken = self.outbox.take(self.options.in_flight_max).await?;
            if !taken.rows.is_empty() {
                return Some(taken);
            }
            let wait = taken.next_due.map_or(LOOK_AGAIN, |at| self.outbox.until(at));
            tokio::select! {
                () = self.outbox.news() => {}
                () = sleep(wait.min(LOOK_AGAIN)) => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// The wait after a link that was lost or could not be made.
    fn wait_after(&mut self, reason: &str) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let wait = self.outbox.backoff().wait(self.failures, self.jitter.draw());
        let depth = self.outbox.counters().depth.load(Ordering::Relaxed);
        let wait_ms = wait.as_millis();
        if self.failures == 1 {
            tracing::info!(gate = %self.wire, reason, depth, wait_ms, "the link is lost; kept for later");
        } else {
            tracing::warn!(gate = %self.wire, reason, depth, wait_ms, "the gate is not reached; kept for later");
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

fn unsent(rows: Vec<Row>) -> Vec<Settled> {
    rows.into_iter().map(|row| Settled { row, outcome: Outcome::Unsent }).collect()
}

/// What is heard next: what was heard already comes first.
async fn next(
    ahead: &mut Option<Result<Heard, String>>,
    link: &mut Link,
) -> Option<Result<Heard, String>> {
    match ahead.take() {
        Some(heard) => Some(heard),
        None => link.incoming.recv().await,
    }
}

/// One link, from its first row to its end.
struct Carry<'a> {
    run: &'a mut Run,
    link: Link,
    flight: Flight,
    /// Taken, and not sent yet because their answers could be mixed up with others.
    held: Vec<Row>,
    first: Vec<Row>,
    next_due: Option<Instant>,
    /// Whether the outbox may have more that is due.
    has_more: bool,
    refusals: u32,
    paused_until: Option<Instant>,
    heard_at: Instant,
    progress: Option<Progress>,
    stopping: Option<Instant>,
    /// Heard already, and to be looked at next.
    ahead: Option<Result<Heard, String>>,
}

impl<'a> Carry<'a> {
    fn new(run: &'a mut Run, link: Link, first: Taken) -> Self {
        let now = Instant::now();
        let depth = run.outbox.counters().depth.load(Ordering::Relaxed);
        let next_due = first.next_due.map(|at| now + run.outbox.until(at));
        Self {
            flight: Flight::new(run.options.ack_max),
            run,
            link,
            held: Vec::new(),
            first: first.rows,
            next_due,
            has_more: true,
            refusals: 0,
            paused_until: None,
            heard_at: now,
            progress: Progress::of(depth, now),
            stopping: None,
            ahead: None,
        }
    }

    async fn run(mut self) -> Ended {
        let ended = loop {
            if let Err(ended) = self.fill().await {
                break ended;
            }
            if self.stopping.is_some_and(|until| self.flight.is_empty() || until <= Instant::now())
            {
                break Ended::Stopped;
            }
            let wake = self.wake();
            let is_new_welcome = self.has_room() && self.stopping.is_none();
            tokio::select! {
                heard = next(&mut self.ahead, &mut self.link) => match heard {
                    Some(Ok(heard)) => self.settle(heard).await,
                    Some(Err(reason)) => break self.closed(reason),
                    None => break self.closed("the link was closed".to_owned()),
                },
                () = self.run.outbox.news(), if is_new_welcome => self.has_more = true,
                () = sleep_until(wake) => {
                    if let Some(ended) = self.tick(Instant::now()).await {
                        break ended;
                    }
                }
                () = self.run.stop.cancelled(), if self.stopping.is_none() => {
                    self.stopping = Some(Instant::now() + self.run.options.stop_max);
                }
            }
        };
        let reason = match &ended {
            Ended::Stopped => "stopped before the answer came",
            Ended::Idle => "",
            Ended::Lost(reason) | Ended::NotConnected(reason) => reason,
        };
        let mut rest = self.flight.lost(reason);
        Counters::add(&self.run.outbox.counters().unanswered, rest.len() as u64);
        rest.extend(unsent(std::mem::take(&mut self.held)));
        rest.extend(unsent(std::mem::take(&mut self.first)));
        self.run.outbox.settle(rest).await;
        ended
    }

    fn closed(&self, reason: String) -> Ended {
        if self.flight.is_empty() { Ended::Idle } else { Ended::Lost(reason) }
    }

    fn has_room(&self) -> bool {
        let max = self.run.options.in_flight_max;
        // Filled up in larger steps: a look at the outbox costs the same for one row and for many.
        let step = (max / 4).clamp(1, 64);
        self.flight.len() + self.held.len() + step <= max
    }

    /// Hands rows to the link until the window is full or nothing is due.
    async fn fill(&mut self) -> Result<(), Ended> {
        if self.stopping.is_some() || self.paused_until.is_some() {
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        self.send(first)?;
        while self.has_more && self.has_room() {
            let room = self.run.options.in_flight_max - self.flight.len() - self.held.len();
            let Some(taken) = self.run.outbox.take(room).await else { return Err(Ended::Stopped) };
            self.has_more = taken.rows.len() == room;
            self.next_due = taken.next_due.map(|at| Instant::now() + self.run.outbox.until(at));
            self.send(taken.rows)?;
        }
        Ok(())
    }

    fn send(&mut self, rows: Vec<Row>) -> Result<(), Ended> {
        let counters = self.run.outbox.counters();
        let mut rows = rows.into_iter();
        while let Some(row) = rows.next() {
            let name = self.run.wire.name_of(&row);
            if self.flight.is_doubtful(&name, &row) {
                self.held.push(row);
                continue;
            }
            if self.flight.is_empty() {
                self.heard_at = Instant::now();
            }
            let handed = self.link.outgoing.try_send(row.clone());
            if matches!(handed, Err(TrySendError::Full(_))) {
                // It still has rows that were given up on. Waiting for it here would mean not to
                // listen to it, and it may be waiting for that.
                self.held.push(row);
                self.held.extend(rows);
                let reason = "the link carries less than is acknowledged in time";
                return Err(Ended::Lost(reason.to_owned()));
            }
            // From here on it may have left, so it counts as sent.
            self.flight.sent(name, row, Instant::now());
            Counters::add(&counters.sent, 1);
            if handed.is_err() {
                // Whatever was taken is settled in the end, one way or the other.
                self.held.extend(rows);
                let told = self.link.incoming.try_recv();
                let reason = match told {
                    Ok(Err(reason)) => reason,
                    Ok(Ok(_)) | Err(_) => "the link was closed".to_owned(),
                };
                return Err(Ended::Lost(reason));
            }
        }
        Ok(())
    }

    /// Has an answer written down, and those that have come with it, in one commit.
    async fn settle(&mut self, first: Heard) {
        let now = Instant::now();
        self.heard_at = now;
        let mut settled = Vec::new();
        let mut acked = 0;
        let mut next = Some(first);
        while let Some(heard) = next {
            self.judge(&heard.said, now);
            if let Some(one) = self.flight.heard(heard) {
                acked += u64::from(one.outcome == Outcome::Acked);
                settled.push(one);
            }
            next = match self.link.incoming.try_recv() {
                Ok(Ok(heard)) if settled.len() < SETTLED_AT_ONCE => Some(heard),
                Ok(Ok(heard)) => {
                    self.ahead = Some(Ok(heard));
                    None
                }
                Ok(Err(reason)) => {
                    self.ahead = Some(Err(reason));
                    None
                }
                Err(_) => None,
            };
        }
        let counters = self.run.outbox.counters();
        Counters::add(&counters.acked, acked);
        Counters::add(&counters.nacked, settled.len() as u64 - acked);
        settled.extend(unsent(std::mem::take(&mut self.held)));
        if settled.iter().all(|one| one.outcome == Outcome::Acked) {
            self.run.outbox.settle_soon(settled).await;
        } else {
            // The next look at the outbox must see when these are due.
            self.run.outbox.settle(settled).await;
        }
        if self.progress.as_mut().is_some_and(|progress| !progress.acked(acked, Instant::now())) {
            self.progress = None;
        }
        self.has_more = true;
    }

    /// Whether the gate takes anything at all, by what it says.
    fn judge(&mut self, said: &Said, now: Instant) {
        match said {
            Said::Ack => {
                self.refusals = 0;
                self.run.failures = 0;
            }
            Said::Nack { retryable: true, retry_after, .. } => {
                self.refusals = self.refusals.saturating_add(1);
                if self.refusals >= REFUSALS_THAT_PAUSE && self.paused_until.is_none() {
                    self.run.failures = self.run.failures.saturating_add(1);
                    let backoff = self.run.outbox.backoff();
                    let wait = backoff.wait(self.run.failures, self.run.jitter.draw());
                    self.paused_until = Some(now + wait.max((*retry_after).min(backoff.max)));
                }
            }
            // That one is refused; it says nothing about the others.
            Said::Nack { retryable: false, .. } => {}
        }
    }

    /// When to look at the time again.
    fn wake(&mut self) -> Instant {
        let due = self.next_due.filter(|_| self.has_room() && self.paused_until.is_none());
        let times = [due, self.flight.deadline(), self.paused_until, self.stopping];
        let latest = Instant::now() + LOOK_AGAIN;
        times.into_iter().flatten().fold(latest, Instant::min)
    }

    /// Looks at the answers that are there. This task may have waited for the disk, or the whole
    /// machine for its turn: whatever came meanwhile came in time.
    async fn hear_what_came(&mut self) {
        // The tasks of the link read first.
        tokio::task::yield_now().await;
        if self.ahead.is_none() {
            self.ahead = self.link.incoming.try_recv().ok();
        }
        if let Some(Ok(heard)) = self.ahead.take_if(|heard| heard.is_ok()) {
            self.settle(heard).await;
        }
    }

    /// What the time brings: ends of pauses, rows that are due, answers that did not come.
    async fn tick(&mut self, now: Instant) -> Option<Ended> {
        self.paused_until = self.paused_until.filter(|until| *until > now);
        self.has_more = true;
        if self.flight.deadline().is_some_and(|at| at <= now) {
            self.hear_what_came().await;
        }
        let overdue = self.flight.overdue(now);
        if overdue.is_empty() {
            return None;
        }
        Counters::add(&self.run.outbox.counters().unanswered, overdue.len() as u64);
        self.run.outbox.settle(overdue).await;
        // One row without an answer is that row's business. A link that says nothing at all while
        // it is asked is a dead one.
        let is_silent = now.duration_since(self.heard_at) >= self.run.options.ack_max;
        is_silent
            .then(|| Ended::Lost("nothing was heard for as long as an ack may take".to_owned()))
    }
}
