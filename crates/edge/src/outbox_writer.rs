//! Writer thread of an outbox: all pending commands form one commit, and get their replies after
//! its sync.
//!
//! It also tracks the rows in flight, in memory only: after a crash no row is in flight, and all
//! are sent again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admit_core::{Clock, Millis};
use rusqlite::ErrorCode;
use tokio::sync::mpsc::Receiver;
use tokio::sync::{Notify, oneshot, watch};

use crate::backoff::{Backoff, Jitter};
use crate::budget::{self, AvailableSpace};
use crate::invalid::InvalidSubmission;
use crate::outbox::OutboxCounters;
use crate::store::{OutboxFile, OutboxRow, later};

/// Maximum commands per commit.
const BATCH: usize = 512;

/// Outcome of storing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// Stored, and durable.
    Stored {
        /// Its rowid.
        rowid: i64,
    },
    /// Its id is already stored with the same payload.
    Duplicate {
        /// The rowid of the first.
        rowid: i64,
        /// When the first was stored.
        created_at: Millis,
    },
    /// Its id is already stored with a different payload, which stays. This event was not stored.
    Conflict {
        /// The rowid of the first.
        rowid: i64,
        /// When the first was stored.
        created_at: Millis,
        /// The stored payload.
        payload_json: String,
    },
}

/// Error of storing an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnqueueError {
    /// The disk budget is exhausted. Nothing was stored; retry after rows have been sent.
    #[error(
        "the outbox is full: its disk budget of {bytes_max} bytes is exhausted; retry after rows have been sent"
    )]
    Full {
        /// The budget.
        bytes_max: u64,
    },
    /// A disk error. Nothing was stored.
    #[error("failed to store the event in the outbox, nothing was stored: {0}")]
    Storage(String),
    /// The commit failed, and its outcome is unknown. Enqueue the same id again.
    #[error("commit outcome of the outbox unknown; enqueue the event again: {0}")]
    Unknown(String),
    /// A disk failure that leaves the state of the file unknown until a restart.
    #[error("the outbox has stopped after a disk failure; check the disk, then restart: {0}")]
    Stopped(String),
    /// The outbox is closed.
    #[error("the outbox is closed")]
    Closed,
}

/// A row that was taken, with its outcome.
#[derive(Clone, Debug)]
pub(crate) struct SettledRow {
    pub(crate) row: OutboxRow,
    pub(crate) outcome: RowOutcome,
}

/// Outcome of sending a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowOutcome {
    /// Acknowledged.
    Acked,
    /// Sent, and not acknowledged. It is not sent again before `not_before`, capped by the maximum
    /// delay. After a final refusal, which would be repeated, it waits for most of the cap.
    Failed { error: String, not_before: Duration, is_final: bool },
    /// Not sent; it keeps its position.
    Unsent,
}

/// Rows to send.
#[derive(Debug, Default)]
pub(crate) struct DueRows {
    pub(crate) rows: Vec<OutboxRow>,
    /// When the next row is due.
    pub(crate) next_due: Option<Millis>,
}

type ReplySender<T> = oneshot::Sender<T>;
type EnqueueResult = Result<EnqueueOutcome, EnqueueError>;
type KeepInvalidResult = Result<bool, EnqueueError>;

/// Command for the writer thread.
pub(crate) enum OutboxCommand {
    Store { event_id: String, payload_json: String, reply: ReplySender<EnqueueResult> },
    Settle { settled: Vec<SettledRow>, reply: ReplySender<()> },
    KeepInvalid { rejected: InvalidSubmission, reply: ReplySender<KeepInvalidResult> },
    ConnectFailed { error: String, wait: Duration },
    Connected { reply: ReplySender<()> },
    Take { rows_max: usize, reply: ReplySender<DueRows> },
}

/// State of the writer thread.
pub(crate) struct OutboxWriter {
    store: OutboxFile,
    in_flight: HashSet<i64>,
    backoff: Backoff,
    clock: Arc<dyn Clock>,
    jitter: Jitter,
    counters: Arc<OutboxCounters>,
    /// Counted rows in the file.
    depth: u64,
    /// Counted invalid envelopes in the file.
    invalid: u64,
    /// SQLite's `data_version`; changes when another process has written to the file.
    version: i64,
    /// The due time of rows that wait for a connection.
    connect_wait_until: Option<Millis>,
}

/// Replies pending until the commit.
#[derive(Default)]
struct PendingReplies {
    stored: Vec<(ReplySender<EnqueueResult>, EnqueueResult)>,
    kept: Vec<(ReplySender<KeepInvalidResult>, KeepInvalidResult)>,
    settled: Vec<ReplySender<()>>,
    released: Vec<i64>,
    removed: u64,
}

impl PendingReplies {
    /// Adds an error reply for a command that was not executed.
    fn reject(&mut self, command: OutboxCommand) {
        match command {
            OutboxCommand::Store { reply, .. } => {
                self.stored.push((reply, Err(EnqueueError::Closed)))
            }
            OutboxCommand::Settle { settled, reply } => {
                self.released.extend(settled.iter().map(|settled| settled.row.rowid));
                self.settled.push(reply);
            }
            OutboxCommand::KeepInvalid { reply, .. } => {
                self.kept.push((reply, Err(EnqueueError::Closed)))
            }
            OutboxCommand::Connected { reply } => self.settled.push(reply),
            OutboxCommand::ConnectFailed { .. } | OutboxCommand::Take { .. } => {}
        }
    }
}

impl OutboxWriter {
    pub(crate) fn new(
        store: OutboxFile,
        backoff: Backoff,
        clock: Arc<dyn Clock>,
        jitter: Jitter,
        counters: Arc<OutboxCounters>,
    ) -> rusqlite::Result<Self> {
        let in_flight = HashSet::new();
        let repaired = store.repair_times(clock.now(), backoff.max)?;
        if repaired > 0 {
            tracing::info!(
                rows = repaired,
                "clock was set back: rows with a due time beyond the maximum delay are due now"
            );
        }
        let (version, invalid) = (store.version()?, store.invalid()?);
        let (depth, connect_wait_until) = (0, None);
        let mut writer = Self {
            store,
            in_flight,
            backoff,
            clock,
            jitter,
            counters,
            depth,
            invalid,
            version,
            connect_wait_until,
        };
        writer.measure()?;
        Ok(writer)
    }

    /// Runs until all senders are dropped or the disk cannot be trusted any more.
    pub(crate) fn run(
        &mut self,
        queue: &mut Receiver<OutboxCommand>,
        rows_stored: &Notify,
        stop: &watch::Sender<Option<String>>,
    ) {
        while let Some(first) = queue.blocking_recv() {
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Ok(more) = queue.try_recv()
            {
                batch.push(more);
            }
            let (takes, writes): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .partition(|command| matches!(command, OutboxCommand::Take { .. }));
            // Takes go before writes: rows to be settled are still marked as in flight, and the
            // sender need not wait for a sync.
            for command in takes {
                if let OutboxCommand::Take { rows_max, reply } = command {
                    self.take_due(rows_max, reply);
                }
            }
            if !writes.is_empty()
                && let Err(reason) = self.write(writes, rows_stored)
            {
                tracing::error!(
                    reason,
                    "the outbox has stopped after a disk failure; check the disk, then restart"
                );
                stop.send_replace(Some(reason));
                return;
            }
        }
    }

    /// Runs one commit. An error means that the disk cannot be trusted any more.
    fn write(&mut self, writes: Vec<OutboxCommand>, rows_stored: &Notify) -> Result<(), String> {
        let mut pending = PendingReplies::default();
        if let Err(error) = self.store.truncate_wal() {
            tracing::warn!(%error, "WAL checkpoint of the outbox failed");
        }
        let mut space = match self.store.begin().and_then(|()| self.store.space()) {
            Ok(space) => space,
            Err(error) => {
                self.store.rollback();
                writes.into_iter().for_each(|command| pending.reject(command));
                self.deliver_error(pending, EnqueueError::Storage, error.to_string());
                return Ok(());
            }
        };
        let now = self.clock.now();
        for command in writes {
            // If SQLite has rolled back by itself, each write would be its own commit.
            match self.store.in_transaction() {
                true => self.execute(command, now, &mut space, &mut pending),
                false => pending.reject(command),
            }
        }
        if !self.store.in_transaction() {
            let reason = "disk error; the whole batch was rolled back".to_owned();
            self.deliver_error(pending, EnqueueError::Storage, reason);
            return Ok(());
        }
        match self.store.commit() {
            Ok(()) => {
                self.deliver(pending, rows_stored);
                Ok(())
            }
            Err(error) => {
                self.store.rollback();
                let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
                self.deliver_error(pending, EnqueueError::Unknown, error.to_string());
                // The outcome is unknown, so count the rows again.
                self.depth = 0;
                if let Err(error) = self.measure() {
                    tracing::debug!(%error, "failed to count the rows of the outbox");
                }
                // After a failed sync the page cache cannot be trusted any more.
                if is_full || is_busy { Ok(()) } else { Err(error.to_string()) }
            }
        }
    }

    /// Executes one command inside the open transaction.
    fn execute(
        &mut self,
        command: OutboxCommand,
        now: Millis,
        space: &mut AvailableSpace,
        pending: &mut PendingReplies,
    ) {
        match command {
            OutboxCommand::Store { event_id, payload_json, reply } => {
                let stored = self.store_one(&event_id, &payload_json, now, space);
                pending.stored.push((reply, stored));
            }
            OutboxCommand::Settle { settled, reply } => {
                for settled in settled {
                    match self.store.in_transaction() {
                        true => self.settle_one(&settled, now, pending),
                        false => pending.released.push(settled.row.rowid),
                    }
                }
                pending.settled.push(reply);
            }
            OutboxCommand::KeepInvalid { rejected, reply } => {
                let kept = self.keep_invalid_one(&rejected, now, space);
                pending.kept.push((reply, kept));
            }
            OutboxCommand::ConnectFailed { error, wait } => {
                let until = later(now, wait);
                match self.store.connect_failed(now, &error, until) {
                    Ok(()) => self.connect_wait_until = Some(until),
                    Err(failed) => tracing::warn!(%failed, "failed to count a connection attempt"),
                }
            }
            OutboxCommand::Connected { reply } => {
                if let Some(until) = self.connect_wait_until.take()
                    && let Err(error) = self.store.connected(until)
                {
                    tracing::warn!(%error, "failed to make rows due after connecting");
                }
                pending.settled.push(reply);
            }
            OutboxCommand::Take { .. } => {}
        }
    }

    fn store_one(
        &self,
        event_id: &str,
        payload_json: &str,
        now: Millis,
        space: &mut AvailableSpace,
    ) -> Result<EnqueueOutcome, EnqueueError> {
        let storage = |error: rusqlite::Error| EnqueueError::Storage(error.to_string());
        if let Some(found) = self.store.find(event_id).map_err(storage)? {
            let (rowid, created_at) = (found.rowid, found.created_at);
            return Ok(if found.payload_json == payload_json {
                EnqueueOutcome::Duplicate { rowid, created_at }
            } else {
                EnqueueOutcome::Conflict { rowid, created_at, payload_json: found.payload_json }
            });
        }
        if !space.take(budget::weight(event_id.len(), payload_json.len())) {
            OutboxCounters::add(&self.counters.refused_full, 1);
            return Err(EnqueueError::Full { bytes_max: self.store.bytes_max() });
        }
        let is_new = self.store.store(event_id, payload_json, now).map_err(storage)?;
        debug_assert!(is_new, "the id was looked up just before");
        let rowid = self.store.last_rowid();
        Ok(EnqueueOutcome::Stored { rowid })
    }

    /// Stores an invalid envelope; `false` if the quota is exhausted.
    fn keep_invalid_one(
        &self,
        rejected: &InvalidSubmission,
        now: Millis,
        space: &mut AvailableSpace,
    ) -> KeepInvalidResult {
        let storage = |error: rusqlite::Error| EnqueueError::Storage(error.to_string());
        let id_bytes = rejected.event_id.as_ref().map_or(0, String::len);
        let fits = self.store.fits_invalid_quota(&rejected.payload).map_err(storage)?
            && space.take(budget::weight(id_bytes, rejected.payload.len()));
        if !fits {
            OutboxCounters::add(&self.counters.invalid_unkept, 1);
            return Ok(false);
        }
        self.store.keep_invalid(rejected, now).map_err(storage)?;
        Ok(true)
    }

    fn settle_one(&mut self, settled: &SettledRow, now: Millis, pending: &mut PendingReplies) {
        let row = &settled.row;
        pending.released.push(row.rowid);
        let written = match &settled.outcome {
            RowOutcome::Acked => self.store.remove(row).map(|removed| pending.removed += removed),
            RowOutcome::Failed { error, not_before, is_final } => {
                let failures = row.attempt_count.saturating_add(1);
                let wait = match is_final {
                    true => self.backoff.final_wait(self.jitter.draw()),
                    false => self.backoff.wait(failures, self.jitter.draw()),
                };
                let wait = wait.max((*not_before).min(self.backoff.max));
                self.store.reschedule(row, error, later(now, wait))
            }
            RowOutcome::Unsent => Ok(()),
        };
        if let Err(error) = written {
            // The row stays and is sent again; the gate deduplicates it.
            tracing::warn!(%error, event_id = row.event_id, "failed to settle an outbox row; it will be sent again");
        }
    }

    fn take_due(&mut self, rows_max: usize, reply: ReplySender<DueRows>) {
        let now = self.clock.now();
        if let Err(error) = self.recount_if_changed() {
            tracing::debug!(%error, "failed to count the rows of the outbox");
        }
        let due = self.due(now, rows_max).unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the outbox; will retry");
            // Retry soon, not at once.
            let next_due = Some(later(now, self.backoff.base));
            DueRows { rows: Vec::new(), next_due }
        });
        let rowids: Vec<i64> = due.rows.iter().map(|row| row.rowid).collect();
        self.in_flight.extend(&rowids);
        if reply.send(due).is_err() {
            // The sender has gone away and sends nothing.
            rowids.iter().for_each(|rowid| {
                self.in_flight.remove(rowid);
            });
        }
    }

    /// Counts again after another process has written to the file (an operator retried or deleted
    /// an envelope).
    fn recount_if_changed(&mut self) -> rusqlite::Result<()> {
        let version = self.store.version()?;
        if version != self.version {
            self.version = version;
            (self.depth, self.invalid) = (0, self.store.invalid()?);
            self.measure()?;
        }
        Ok(())
    }

    fn due(&mut self, now: Millis, rows_max: usize) -> rusqlite::Result<DueRows> {
        let mut rows = self.store.due(now, &self.in_flight, rows_max)?;
        let mut next_due = self.store.next_due(now)?;
        let far = later(now, self.backoff.max);
        if rows.is_empty() && next_due.is_some_and(|at| at > far) {
            self.store.repair_times(now, self.backoff.max)?;
            rows = self.store.due(now, &self.in_flight, rows_max)?;
            next_due = self.store.next_due(now)?;
        }
        Ok(DueRows { rows, next_due })
    }

    /// Delivers the replies after a commit.
    fn deliver(&mut self, pending: PendingReplies, rows_stored: &Notify) {
        let is_stored = |stored: &Result<_, _>| matches!(stored, Ok(EnqueueOutcome::Stored { .. }));
        let stored = pending.stored.iter().filter(|(_, stored)| is_stored(stored)).count() as u64;
        OutboxCounters::add(&self.counters.enqueued, stored);
        self.depth = (self.depth + stored).saturating_sub(pending.removed);
        for rowid in &pending.released {
            self.in_flight.remove(rowid);
        }
        if !pending.kept.is_empty() {
            self.invalid = self.store.invalid().unwrap_or(self.invalid);
        }
        if let Err(error) = self.measure() {
            tracing::debug!(%error, "failed to count the rows of the outbox");
        }
        for (reply, stored) in pending.stored {
            // The caller may have gone away; the result stays valid.
            reply.send(stored).unwrap_or_default();
        }
        for (reply, kept) in pending.kept {
            reply.send(kept).unwrap_or_default();
        }
        for reply in pending.settled {
            reply.send(()).unwrap_or_default();
        }
        if stored > 0 {
            rows_stored.notify_one();
        }
    }

    /// Delivers an error to all pending commands: there was no commit, or its outcome is unknown.
    fn deliver_error(
        &mut self,
        pending: PendingReplies,
        error: impl Fn(String) -> EnqueueError,
        reason: String,
    ) {
        tracing::warn!(reason, "failed to write to the outbox");
        for rowid in &pending.released {
            self.in_flight.remove(rowid);
        }
        for (reply, _) in pending.stored {
            reply.send(Err(error(reason.clone()))).unwrap_or_default();
        }
        for (reply, _) in pending.kept {
            reply.send(Err(error(reason.clone()))).unwrap_or_default();
        }
        for reply in pending.settled {
            reply.send(()).unwrap_or_default();
        }
    }

    /// Updates the counters; counts rows in the file only if the tracked depth is zero.
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
#[path = "outbox_writer_tests.rs"]
mod tests;
