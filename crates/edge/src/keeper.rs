//! The thread that writes: whatever waits becomes one commit, and is answered after its sync.
//!
//! It also knows which rows are in flight. That is kept in memory only: after a crash nothing is in
//! flight, and what was is sent again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admit_core::{Clock, Millis};
use rusqlite::ErrorCode;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, oneshot, watch};

use crate::backoff::{Backoff, Jitter};
use crate::budget::{self, Room};
use crate::invalid::InvalidSubmission;
use crate::outbox::Counters;
use crate::store::{Row, Store, later};

/// Most pieces of work in one commit.
const BATCH: usize = 512;

/// What became of an event that was to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// It is durable now.
    Stored {
        /// Its number in the file.
        place: i64,
    },
    /// Its id was there already, with the same payload.
    Already {
        /// The number of the first.
        place: i64,
        /// When that was stored.
        created_at: Millis,
    },
    /// Its id was there already, with another payload, which stays. This one was not stored.
    Differs {
        /// The number of the first.
        place: i64,
        /// When that was stored.
        created_at: Millis,
        /// Its payload.
        payload_json: String,
    },
}

/// Why an event was not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// The disk budget is used up. Nothing was stored; there is room again when rows were sent.
    #[error("the outbox is full: its disk budget of {bytes_max} bytes is used up")]
    Full {
        /// The budget.
        bytes_max: u64,
    },
    /// The disk did not take it. Nothing was stored.
    #[error("the outbox could not store the event, nothing of it was kept: {0}")]
    Storage(String),
    /// The commit failed, and it may still be there. The same id again finds out.
    #[error("whether the outbox stored the event is not known; enqueue it again: {0}")]
    Unknown(String),
    /// The disk failed in a way that only a new start can judge.
    #[error("the outbox has stopped, start again once the disk is in order: {0}")]
    Stopped(String),
    /// The outbox was closed.
    #[error("the outbox is closed")]
    Closed,
}

/// What became of a row that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) row: Row,
    pub(crate) outcome: Outcome,
}

/// See [`Settled`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was acknowledged.
    Acked,
    /// It was sent, and not acknowledged. It is not sent again before `not_before`, if that is
    /// within the cap. A final refusal would be repeated at once, so it waits for most of the cap.
    Failed { error: String, not_before: Duration, is_final: bool },
    /// It was not sent at all, and keeps its turn.
    Unsent,
}

/// Rows to be sent.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) rows: Vec<Row>,
    /// When to look again, if nothing else happens before.
    pub(crate) next_due: Option<Millis>,
}

type Told<T> = oneshot::Sender<T>;
type Stored = Result<Enqueued, EnqueueError>;
type KeptInvalid = Result<bool, EnqueueError>;

/// What the thread is asked to do.
pub(crate) enum Work {
    Store { event_id: String, payload_json: String, told: Told<Stored> },
    Settle { settled: Vec<Settled>, told: Told<()> },
    KeepInvalid { rejected: InvalidSubmission, told: Told<KeptInvalid> },
    ConnectFailed { error: String, wait: Duration },
    Connected { told: Told<()> },
    Take { rows_max: usize, told: Told<Taken> },
}

/// The thread's own state.
pub(crate) struct Keeper {
    store: Store,
    taken: HashSet<i64>,
    backoff: Backoff,
    clock: Arc<dyn Clock>,
    jitter: Jitter,
    counters: Arc<Counters>,
    /// Rows in the file, by our own count.
    depth: u64,
    /// Invalid envelopes in the file, by our own count.
    invalid: u64,
    /// Changes when another program has written to the file.
    version: i64,
    /// The time until which rows wait for a connection.
    connect_wait_until: Option<Millis>,
}

/// Answers that wait for the commit.
#[derive(Default)]
struct Waiting {
    stored: Vec<(Told<Stored>, Stored)>,
    kept: Vec<(Told<KeptInvalid>, KeptInvalid)>,
    settled: Vec<Told<()>>,
    released: Vec<i64>,
    removed: u64,
}

impl Waiting {
    /// Notes who waits for work that was not begun.
    fn refuse(&mut self, work: Work) {
        match work {
            Work::Store { told, .. } => self.stored.push((told, Err(EnqueueError::Closed))),
            Work::Settle { settled, told } => {
                self.released.extend(settled.iter().map(|settled| settled.row.place));
                self.settled.push(told);
            }
            Work::KeepInvalid { told, .. } => self.kept.push((told, Err(EnqueueError::Closed))),
            Work::Connected { told } => self.settled.push(told),
            Work::ConnectFailed { .. } | Work::Take { .. } => {}
        }
    }
}

impl Keeper {
    pub(crate) fn new(
        store: Store,
        backoff: Backoff,
        clock: Arc<dyn Clock>,
        jitter: Jitter,
        counters: Arc<Counters>,
    ) -> rusqlite::Result<Self> {
        let taken = HashSet::new();
        let mended = store.mend_times(clock.now(), backoff.max)?;
        if mended > 0 {
            tracing::info!(rows = mended, "rows that waited for a time far ahead are due now");
        }
        let (version, invalid) = (store.version()?, store.invalid()?);
        let (depth, connect_wait_until) = (0, None);
        let mut keeper = Self {
            store,
            taken,
            backoff,
            clock,
            jitter,
            counters,
            depth,
            invalid,
            version,
            connect_wait_until,
        };
        keeper.measure()?;
        Ok(keeper)
    }

    /// Works until nobody can ask for anything any more, or the disk cannot be trusted.
    pub(crate) fn run(
        &mut self,
        queue: &mut Receiver<Work>,
        news: &Notify,
        stop: &watch::Sender<Option<String>>,
    ) {
        while let Some(first) = queue.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Ok(more) = queue.try_recv()
            {
                batch.push(more);
            }
            let (takes, writes): (Vec<_>, Vec<_>) =
                batch.into_iter().partition(|work| matches!(work, Work::Take { .. }));
            // Before the writes: what they settle is still marked as in flight, and whoever wants to
            // send need not wait for their sync.
            for work in takes {
                if let Work::Take { rows_max, told } = work {
                    self.give(rows_max, told);
                }
            }
            if !writes.is_empty()
                && let Err(reason) = self.write(writes, news)
            {
                tracing::error!(
                    reason,
                    "the outbox has stopped; start again once the disk is in order"
                );
                stop.send_replace(Some(reason));
                return;
            }
        }
    }

    /// One commit. An error means that the disk cannot be trusted any more.
    fn write(&mut self, writes: Vec<Work>, news: &Notify) -> Result<(), String> {
        let mut waiting = Waiting::default();
        if let Err(error) = self.store.cut_log() {
            tracing::warn!(%error, "the log of the outbox could not be brought into its file");
        }
        let mut room = match self.store.begin().and_then(|()| self.store.room()) {
            Ok(room) => room,
            Err(error) => {
                self.store.undo();
                writes.into_iter().for_each(|work| waiting.refuse(work));
                self.answer_all(waiting, EnqueueError::Storage, error.to_string());
                return Ok(());
            }
        };
        let now = self.clock.now();
        for work in writes {
            // Once the transaction is gone, each write would be a commit of its own.
            match self.store.is_open() {
                true => self.one(work, now, &mut room, &mut waiting),
                false => waiting.refuse(work),
            }
        }
        if !self.store.is_open() {
            let reason = "the disk did not take it, and the whole batch was undone".to_owned();
            self.answer_all(waiting, EnqueueError::Storage, reason);
            return Ok(());
        }
        match self.store.commit() {
            Ok(()) => {
                self.answer(waiting, news);
                Ok(())
            }
            Err(error) => {
                self.store.undo();
                let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
                self.answer_all(waiting, EnqueueError::Unknown, error.to_string());
                // Nobody knows what of it is there, so it is counted.
                self.depth = 0;
                if let Err(error) = self.measure() {
                    tracing::debug!(%error, "the outbox could not be measured");
                }
                // After a failed sync the system's memory of the file can no longer be believed.
                if is_full || is_busy { Ok(()) } else { Err(error.to_string()) }
            }
        }
    }

    /// One piece of work inside the open transaction.
    fn one(&mut self, work: Work, now: Millis, room: &mut Room, waiting: &mut Waiting) {
        match work {
            Work::Store { event_id, payload_json, told } => {
                let stored = self.store_one(&event_id, &payload_json, now, room);
                waiting.stored.push((told, stored));
            }
            Work::Settle { settled, told } => {
                for settled in settled {
                    match self.store.is_open() {
                        true => self.settle_one(&settled, now, waiting),
                        false => waiting.released.push(settled.row.place),
                    }
                }
                waiting.settled.push(told);
            }
            Work::KeepInvalid { rejected, told } => {
                let kept = self.keep_invalid_one(&rejected, now, room);
                waiting.kept.push((told, kept));
            }
            Work::ConnectFailed { error, wait } => {
                let until = later(now, wait);
                match self.store.connect_failed(now, &error, until) {
                    Ok(()) => self.connect_wait_until = Some(until),
                    Err(failed) => tracing::warn!(%failed, "an attempt was not counted"),
                }
            }
            Work::Connected { told } => {
                if let Some(until) = self.connect_wait_until.take()
                    && let Err(error) = self.store.connected(until)
                {
                    tracing::warn!(%error, "rows wait although there is a connection");
                }
                waiting.settled.push(told);
            }
            Work::Take { .. } => {}
        }
    }

    fn store_one(
        &self,
        event_id: &str,
        payload_json: &str,
        now: Millis,
        room: &mut Room,
    ) -> Result<Enqueued, EnqueueError> {
        let storage = |error: rusqlite::Error| EnqueueError::Storage(error.to_string());
        if let Some(found) = self.store.find(event_id).map_err(storage)? {
            let (place, created_at) = (found.place, found.created_at);
            return Ok(if found.payload_json == payload_json {
                Enqueued::Already { place, created_at }
            } else {
                Enqueued::Differs { place, created_at, payload_json: found.payload_json }
            });
        }
        if !room.take(budget::weight(event_id.len(), payload_json.len())) {
            Counters::add(&self.counters.refused_full, 1);
            return Err(EnqueueError::Full { bytes_max: self.store.bytes_max() });
        }
        let is_new = self.store.store(event_id, payload_json, now).map_err(storage)?;
        debug_assert!(is_new, "it has just been looked for");
        let place = self.store.last_place();
        Ok(Enqueued::Stored { place })
    }

    /// Keeps an invalid envelope; `false` when the quota is used up.
    fn keep_invalid_one(
        &self,
        rejected: &InvalidSubmission,
        now: Millis,
        room: &mut Room,
    ) -> KeptInvalid {
        let storage = |error: rusqlite::Error| EnqueueError::Storage(error.to_string());
        let id_bytes = rejected.event_id.as_ref().map_or(0, String::len);
        let fits = self.store.has_room_for_invalid(&rejected.payload).map_err(storage)?
            && room.take(budget::weight(id_bytes, rejected.payload.len()));
        if !fits {
            Counters::add(&self.counters.invalid_unkept, 1);
            return Ok(false);
        }
        self.store.keep_invalid(rejected, now).map_err(storage)?;
        Ok(true)
    }

    fn settle_one(&mut self, settled: &Settled, now: Millis, waiting: &mut Waiting) {
        let row = &settled.row;
        waiting.released.push(row.place);
        let written = match &settled.outcome {
            Outcome::Acked => self.store.remove(row).map(|removed| waiting.removed += removed),
            Outcome::Failed { error, not_before, is_final } => {
                let failures = row.attempt_count.saturating_add(1);
                let wait = match is_final {
                    true => self.backoff.final_wait(self.jitter.draw()),
                    false => self.backoff.wait(failures, self.jitter.draw()),
                };
                let wait = wait.max((*not_before).min(self.backoff.max));
                self.store.reschedule(row, error, later(now, wait))
            }
            Outcome::Unsent => Ok(()),
        };
        if let Err(error) = written {
            // It is still there and will be sent again, which does no harm.
            tracing::warn!(%error, event_id = row.event_id, "an outbox row could not be settled");
        }
    }

    fn give(&mut self, rows_max: usize, told: Told<Taken>) {
        let now = self.clock.now();
        if let Err(error) = self.look_for_changes() {
            tracing::debug!(%error, "the outbox could not be measured");
        }
        let taken = self.due(now, rows_max).unwrap_or_else(|error| {
            tracing::warn!(%error, "the outbox cannot be read now; it is tried again");
            // Looked at again soon, not at once.
            let next_due = Some(later(now, self.backoff.base));
            Taken { rows: Vec::new(), next_due }
        });
        let places: Vec<i64> = taken.rows.iter().map(|row| row.place).collect();
        self.taken.extend(&places);
        if told.send(taken).is_err() {
            // Whoever asked is gone, and sends nothing.
            places.iter().for_each(|place| {
                self.taken.remove(place);
            });
        }
    }

    /// Counts anew after another program has written to the file: a person has retried or deleted
    /// something.
    fn look_for_changes(&mut self) -> rusqlite::Result<()> {
        let version = self.store.version()?;
        if version != self.version {
            self.version = version;
            (self.depth, self.invalid) = (0, self.store.invalid()?);
            self.measure()?;
        }
        Ok(())
    }

    fn due(&mut self, now: Millis, rows_max: usize) -> rusqlite::Result<Taken> {
        let mut rows = self.store.due(now, &self.taken, rows_max)?;
        let mut next_due = self.store.next_due(now)?;
        let far = later(now, self.backoff.max);
        if rows.is_empty() && next_due.is_some_and(|at| at > far) {
            self.store.mend_times(now, self.backoff.max)?;
            rows = self.store.due(now, &self.taken, rows_max)?;
            next_due = self.store.next_due(now)?;
        }
        Ok(Taken { rows, next_due })
    }

    /// Tells everybody what the commit holds.
    fn answer(&mut self, waiting: Waiting, news: &Notify) {
        let is_stored = |stored: &Result<_, _>| matches!(stored, Ok(Enqueued::Stored { .. }));
        let stored = waiting.stored.iter().filter(|(_, stored)| is_stored(stored)).count() as u64;
        Counters::add(&self.counters.enqueued, stored);
        self.depth = (self.depth + stored).saturating_sub(waiting.removed);
        for place in &waiting.released {
            self.taken.remove(place);
        }
        if !waiting.kept.is_empty() {
            self.invalid = self.store.invalid().unwrap_or(self.invalid);
        }
        if let Err(error) = self.measure() {
            tracing::debug!(%error, "the outbox could not be measured");
        }
        for (told, stored) in waiting.stored {
            // Whoever does not wait any more has lost nothing: it is stored or it is not.
            told.send(stored).unwrap_or_default();
        }
        for (told, kept) in waiting.kept {
            told.send(kept).unwrap_or_default();
        }
        for told in waiting.settled {
            told.send(()).unwrap_or_default();
        }
        if stored > 0 {
            news.notify_one();
        }
    }

    /// Tells everybody that there was no commit, or none that anybody knows of.
    fn answer_all(
        &mut self,
        waiting: Waiting,
        error: impl Fn(String) -> EnqueueError,
        reason: String,
    ) {
        tracing::warn!(reason, "the outbox could not be written");
        for place in &waiting.released {
            self.taken.remove(place);
        }
        for (told, _) in waiting.stored {
            told.send(Err(error(reason.clone()))).unwrap_or_default();
        }
        for (told, _) in waiting.kept {
            told.send(Err(error(reason.clone()))).unwrap_or_default();
        }
        for told in waiting.settled {
            told.send(()).unwrap_or_default();
        }
    }

    /// Counts anew when nothing is known to be there, and otherwise goes by what was counted.
    fn measure(&mut self) -> rusqlite::Result<()> {
        self.counters.bytes.store(self.store.bytes(), Ordering::Relaxed);
        self.counters.invalid.store(self.invalid, Ordering::Relaxed);
        if self.depth == 0 {
            self.depth = self.store.depth()?;
        }
        let oldest = if self.depth == 0 { None } else { self.store.oldest()? };
        let oldest = oldest.map_or(0, |at| u64::try_from(at.0).unwrap_or(0));
        self.counters.oldest_at.store(oldest, Ordering::Relaxed);
        self.counters.depth.store(self.depth, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
