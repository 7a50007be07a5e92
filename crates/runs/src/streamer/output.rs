//! Streams one output of a run: rows in order, envelopes to the gate, checkpoints after them.
//!
//! Rows are sent in windows of at most `checkpoint_every`. The envelopes of a window are sent
//! concurrently in shards: rows with the same order key are sent serially, so the bus has them in
//! file order. The checkpoint moves once every row up to it has a decision, and then the next
//! window starts. So at most one window is beyond the last checkpoint, and only that can be sent
//! twice after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admit_contracts::ingestion_gate::ReceiptDecision;
use admit_core::Clock;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::checkpoint::{CheckpointReason, Checkpoints, Cursor};
use super::envelope::{Envelopes, Layout, PreparedEnvelope};
use super::gate::{EnvelopeTarget, RandomSource, push};
use super::pace::Pace;
use super::pack::StreamView;
use super::progress::{Counts, OutputProgress};
use super::reason::{Reason, RunFailure};
use super::session::SessionLog;
use super::settings::Settings;

/// Envelopes encoded ahead, per output.
const READ_AHEAD_MAX: usize = 64;

/// How long a stop waits for decisions in flight.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// One output of one run, with all dependencies.
pub(super) struct OutputStream {
    pub(super) view: Arc<StreamView>,
    pub(super) envelopes: Envelopes,
    pub(super) checkpoint_key: String,
    pub(super) settings: Arc<Settings>,
    pub(super) gate: Arc<dyn EnvelopeTarget>,
    pub(super) checkpoints: Arc<dyn Checkpoints>,
    pub(super) chance: Arc<RandomSource>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) session: Arc<SessionLog>,
    pub(super) progress: Arc<OutputProgress>,
    pub(super) stop: CancellationToken,
}

/// Result of streaming an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputResult {
    /// The output.
    pub output_id: String,
    /// Rows the gate has decided on, including earlier sessions.
    pub rows: u64,
    /// Its decisions, including earlier sessions.
    pub counts: Counts,
    /// Whether the row limit was reached.
    pub is_capped: bool,
    /// Whether it was stopped before the end.
    pub is_stopped: bool,
}

/// Item from the reader thread.
enum ReadItem {
    Row { file: usize, number: u64, envelope: PreparedEnvelope },
    FileEnd,
    Capped,
    Failed(RunFailure),
}

struct PendingRow {
    file: usize,
    number: u64,
    envelope: PreparedEnvelope,
    due: Option<Instant>,
}

/// Streams an output from its last checkpoint.
pub(super) async fn stream(output: Arc<OutputStream>) -> Result<OutputResult, RunFailure> {
    let cursor = {
        let output = Arc::clone(&output);
        let loaded = spawn_blocking(move || output.load()).await;
        loaded.map_err(|error| checkpoint_error("load the checkpoint", error))??
    };
    let resumed =
        cursor.as_ref().map_or(0, |c| output.view.rows_until(&c.last_file, c.last_row_index));
    output.progress.resume(resumed);
    let (items, mut read) = mpsc::channel(READ_AHEAD_MAX);
    let reader = {
        let (output, cursor) = (Arc::clone(&output), cursor.clone());
        spawn_blocking(move || output.read(cursor.as_ref(), &items))
    };
    let mut window = CheckpointWindow::new(&output, cursor, resumed);
    loop {
        let item = tokio::select! {
            biased;
            () = output.stop.cancelled() => break,
            item = read.recv() => item,
        };
        match item {
            Some(ReadItem::Row { file, number, envelope }) => {
                window.add(file, number, envelope);
                if window.is_full() {
                    window.flush(CheckpointReason::PeriodicFlush).await?;
                }
            }
            Some(ReadItem::FileEnd) => window.flush(CheckpointReason::FileComplete).await?,
            Some(ReadItem::Capped) => {
                window.flush(CheckpointReason::MaxEvents).await?;
                window.is_capped = true;
            }
            Some(ReadItem::Failed(failure)) => return Err(failure),
            None => {
                drop(read);
                reader.await.map_err(|error| {
                    RunFailure::caused(Reason::StreamFailed, "reading the rows panicked", error)
                })?;
                if !window.is_capped {
                    window.flush(CheckpointReason::OutputComplete).await?;
                }
                return Ok(window.result(false));
            }
        }
    }
    Ok(window.result(true))
}

impl OutputStream {
    /// The last checkpoint, if it matches this view. A checkpoint of a pack that has changed since
    /// would skip unsent rows, so it is deleted.
    fn load(&self) -> Result<Option<Cursor>, RunFailure> {
        if self.settings.from_start {
            return Ok(None);
        }
        let (key, output_id) = (&self.checkpoint_key, &self.view.output.output_id);
        let loaded = self.checkpoints.load(key, output_id);
        let Some(cursor) =
            loaded.map_err(|error| checkpoint_error("load the checkpoint", error))?
        else {
            return Ok(None);
        };
        if self.matches_view(&cursor)? {
            return Ok(Some(cursor));
        }
        tracing::warn!(
            output_id,
            last_file = cursor.last_file,
            last_row_index = cursor.last_row_index,
            "the pack has changed since this checkpoint; every row is sent again"
        );
        let deleted = self.checkpoints.forget(key, output_id);
        deleted.map_err(|error| checkpoint_error("delete a checkpoint", error))?;
        Ok(None)
    }

    /// Whether the row of a checkpoint exists and has its timestamp.
    fn matches_view(&self, cursor: &Cursor) -> Result<bool, RunFailure> {
        let part = self.view.parts.iter().find(|part| part.name == cursor.last_file);
        if part.is_none_or(|part| cursor.last_row_index >= part.rows) {
            return Ok(false);
        }
        let opened = self.view.part(&cursor.last_file)?;
        let layout = Layout::of(&opened);
        let mut is_same = false;
        opened
            .rows(cursor.last_row_index, &mut |number, row| -> Result<bool, RunFailure> {
                let envelope = self.envelopes.envelope(&layout, number, row)?;
                is_same = envelope.stamp.text == cursor.last_ts_utc;
                Ok(false)
            })
            .map_err(|failure| failure.at(&cursor.last_file))?;
        Ok(is_same)
    }

    async fn save(&self, cursor: Cursor, reason: CheckpointReason) -> Result<(), RunFailure> {
        let (checkpoints, key) = (Arc::clone(&self.checkpoints), self.checkpoint_key.clone());
        let output_id = self.view.output.output_id.clone();
        let (now, session) = (self.clock.now(), Arc::clone(&self.session));
        let saved = spawn_blocking(move || {
            checkpoints.save(&key, &output_id, &cursor, reason, now)?;
            session.checkpoint_saved(&output_id, &cursor, reason);
            Ok(())
        });
        let saved: Result<(), super::checkpoint::CheckpointError> =
            saved.await.map_err(|error| checkpoint_error("save a checkpoint", error))?;
        saved.map_err(|error| checkpoint_error("save a checkpoint", error))
    }

    /// Reads rows after the cursor and sends their envelopes to `items`, on a blocking thread. Ends
    /// early when the receiver is dropped.
    fn read(&self, cursor: Option<&Cursor>, items: &mpsc::Sender<ReadItem>) {
        if let Err(failure) = self.try_read(cursor, items) {
            // The receiver is dropped if streaming has already stopped.
            items.blocking_send(ReadItem::Failed(failure)).unwrap_or_default();
        }
    }

    fn try_read(
        &self,
        cursor: Option<&Cursor>,
        items: &mpsc::Sender<ReadItem>,
    ) -> Result<(), RunFailure> {
        let rows_max = self.settings.max_events_per_output.unwrap_or(u64::MAX);
        let mut ordinal = 0;
        for (file, part) in self.view.parts.iter().enumerate() {
            let first = match cursor {
                Some(cursor) if part.name < cursor.last_file => part.rows,
                Some(cursor) if part.name == cursor.last_file => {
                    part.rows.min(cursor.last_row_index.saturating_add(1))
                }
                _ => 0,
            };
            ordinal += first;
            if first >= part.rows {
                continue;
            }
            let opened = self.view.part(&part.name)?;
            if opened.len() != part.rows {
                let detail = format!("{} changed while its run was streamed", part.name);
                return Err(RunFailure::new(Reason::StreamFailed, detail));
            }
            let layout = Layout::of(&opened);
            let mut is_wanted = true;
            opened
                .rows(first, &mut |number, row| -> Result<bool, RunFailure> {
                    if ordinal >= rows_max {
                        is_wanted = false;
                        // The receiver is dropped if streaming has already stopped.
                        items.blocking_send(ReadItem::Capped).unwrap_or_default();
                        return Ok(false);
                    }
                    ordinal += 1;
                    let envelope = self.envelopes.envelope(&layout, number, row)?;
                    is_wanted =
                        items.blocking_send(ReadItem::Row { file, number, envelope }).is_ok();
                    Ok(is_wanted)
                })
                .map_err(|failure| failure.at(&part.name))?;
            if !is_wanted || items.blocking_send(ReadItem::FileEnd).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn checkpoint_error(
    doing: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> RunFailure {
    RunFailure::caused(Reason::StreamFailed, format!("failed to {doing}"), error)
}

/// Rows between two checkpoints.
struct CheckpointWindow<'j> {
    output: &'j OutputStream,
    rows: Vec<PendingRow>,
    pace: Pace,
    /// The last row up to which all rows have a decision.
    cursor: Option<Cursor>,
    decided_rows: u64,
    is_capped: bool,
}

/// Result of a shard.
struct ShardResult {
    decided: Vec<(usize, ReceiptDecision)>,
    failure: Option<RunFailure>,
}

impl<'j> CheckpointWindow<'j> {
    fn new(output: &'j OutputStream, cursor: Option<Cursor>, decided_rows: u64) -> Self {
        let pace = Pace::new(output.settings.speedup);
        Self { output, rows: Vec::new(), pace, cursor, decided_rows, is_capped: false }
    }

    fn add(&mut self, file: usize, number: u64, envelope: PreparedEnvelope) {
        let due = self.pace.due(envelope.stamp.micros);
        self.rows.push(PendingRow { file, number, envelope, due });
    }

    fn is_full(&self) -> bool {
        self.rows.len() as u64 >= self.output.settings.window()
    }

    /// Pushes the window and moves the checkpoint. If pushing ends early, the checkpoint moves up
    /// to the first row without a decision.
    async fn flush(&mut self, reason: CheckpointReason) -> Result<(), RunFailure> {
        let rows = std::mem::take(&mut self.rows);
        let (decisions, failure) = self.push_all(&rows).await;
        let whole = decisions.iter().take_while(|decision| decision.is_some()).count();
        let mut counts = self.cursor.as_ref().map(|cursor| cursor.counts).unwrap_or_default();
        decisions.into_iter().take(whole).flatten().for_each(|decision| counts.add(decision));
        if let Some(last) = whole.checked_sub(1).map(|last| &rows[last]) {
            self.cursor = Some(Cursor {
                last_file: self.output.view.parts[last.file].name.clone(),
                last_row_index: last.number,
                last_ts_utc: last.envelope.stamp.text.clone(),
                counts,
            });
        }
        self.decided_rows += whole as u64;
        let is_whole = whole == rows.len();
        if let Some(cursor) = self.cursor.clone()
            && (is_whole || whole > 0)
        {
            let reason = if is_whole { reason } else { CheckpointReason::PeriodicFlush };
            self.output.save(cursor, reason).await?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Pushes rows in shards. Returns the decision of each row, where there is one.
    async fn push_all(
        &self,
        rows: &[PendingRow],
    ) -> (Vec<Option<ReceiptDecision>>, Option<RunFailure>) {
        let mut decisions = vec![None; rows.len()];
        let shards = self.output.settings.in_flight.clamp(1, rows.len().max(1));
        let mut shards = vec![Vec::new(); shards];
        let count = shards.len() as u64;
        for (index, row) in rows.iter().enumerate() {
            let shard = usize::try_from(row.envelope.shard % count).unwrap_or_default();
            shards[shard].push(index);
        }
        shards.retain(|shard| !shard.is_empty());
        let has_failed = AtomicBool::new(false);
        let shards = shards.into_iter().map(|shard| self.push_shard(rows, shard, &has_failed));
        let mut failure = None;
        for shard in join_all(shards).await {
            shard
                .decided
                .into_iter()
                .for_each(|(index, decision)| decisions[index] = Some(decision));
            failure = failure.or(shard.failure);
        }
        (decisions, failure)
    }

    /// Pushes the rows of one shard serially.
    async fn push_shard(
        &self,
        rows: &[PendingRow],
        shard: Vec<usize>,
        has_failed: &AtomicBool,
    ) -> ShardResult {
        let output = self.output;
        let mut shard_result =
            ShardResult { decided: Vec::with_capacity(shard.len()), failure: None };
        let on_retry = || output.progress.add_retry();
        for index in shard {
            let row = &rows[index];
            if let Some(due) = row.due {
                tokio::select! {
                    biased;
                    () = output.stop.cancelled() => return shard_result,
                    () = sleep_until(due) => {}
                }
            }
            if has_failed.load(Ordering::Relaxed) || output.stop.is_cancelled() {
                return shard_result;
            }
            let (gate, retry) = (&*output.gate, &output.settings.retry);
            let stop_timeout = async {
                output.stop.cancelled().await;
                sleep(STOP_GRACE).await;
            };
            let pushed = tokio::select! {
                biased;
                pushed = push(gate, retry, &*output.chance, &row.envelope.body, &on_retry) => pushed,
                () = stop_timeout => return shard_result,
            };
            match pushed {
                Ok(decision) => {
                    output.progress.add_decision(decision);
                    shard_result.decided.push((index, decision));
                }
                Err(failure) => {
                    has_failed.store(true, Ordering::Relaxed);
                    let place = format!("{} row {}", output.view.parts[row.file].name, row.number);
                    shard_result.failure = Some(failure.at(&place));
                    return shard_result;
                }
            }
        }
        shard_result
    }

    fn result(&self, is_stopped: bool) -> OutputResult {
        OutputResult {
            output_id: self.output.view.output.output_id.clone(),
            rows: self.decided_rows,
            counts: self.cursor.as_ref().map(|cursor| cursor.counts).unwrap_or_default(),
            is_capped: self.is_capped,
            is_stopped,
        }
    }
}
