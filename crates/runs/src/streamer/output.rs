//! Streams one output of a run: rows in order, envelopes to the gate, checkpoints behind them.
//!
//! Rows are taken in windows of at most `checkpoint_every`. A window's envelopes are on the way at
//! once, in lanes: rows that share an order key go one after the other, so their order on the bus is
//! theirs in the file. The checkpoint moves when every row up to it has an answer, and the next
//! window begins after that. So no more than one window is ever beyond the last checkpoint, and that
//! is all a crash can send twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admit_contracts::ingestion_gate::Decision;
use admit_core::Clock;
use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::checkpoint::{Checkpoints, Cursor, Occasion};
use super::envelope::{Envelopes, Layout, Sendable};
use super::gate::{Chance, Gate, push};
use super::pace::Pace;
use super::pack::View;
use super::progress::{Counts, OutputProgress};
use super::reason::{Failure, Reason};
use super::session::Session;
use super::settings::Settings;

/// Envelopes that are made ahead, per output.
const AHEAD_MAX: usize = 64;

/// How long a stop waits for answers that are on their way.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// One output of one run, with everything that streaming it takes.
pub(super) struct Job {
    pub(super) view: Arc<View>,
    pub(super) envelopes: Envelopes,
    pub(super) checkpoint_key: String,
    pub(super) settings: Arc<Settings>,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) checkpoints: Arc<dyn Checkpoints>,
    pub(super) chance: Arc<Chance>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) session: Arc<Session>,
    pub(super) progress: Arc<OutputProgress>,
    pub(super) stop: CancellationToken,
}

/// What came of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The output.
    pub output_id: String,
    /// Rows the gate has answered for, those of earlier sessions included.
    pub rows: u64,
    /// What it decided, those of earlier sessions included.
    pub counts: Counts,
    /// Whether there are more rows than were allowed.
    pub is_capped: bool,
    /// Whether it was stopped before its end.
    pub is_stopped: bool,
}

/// What the reader hands over.
enum Item {
    Row { file: usize, number: u64, sendable: Sendable },
    FileEnd,
    Capped,
    Failed(Failure),
}

struct Waiting {
    file: usize,
    number: u64,
    sendable: Sendable,
    due: Option<Instant>,
}

/// Streams an output from its last checkpoint on.
pub(super) async fn stream(job: Arc<Job>) -> Result<Emitted, Failure> {
    let cursor = {
        let job = Arc::clone(&job);
        let loaded = spawn_blocking(move || job.load()).await;
        loaded.map_err(|error| kept("load the checkpoint", error))??
    };
    let resumed =
        cursor.as_ref().map_or(0, |c| job.view.rows_until(&c.last_file, c.last_row_index));
    job.progress.resume(resumed);
    let (items, mut read) = mpsc::channel(AHEAD_MAX);
    let reader = {
        let (job, cursor) = (Arc::clone(&job), cursor.clone());
        spawn_blocking(move || job.read(cursor.as_ref(), &items))
    };
    let mut window = Window::new(&job, cursor, resumed);
    loop {
        let item = tokio::select! {
            biased;
            () = job.stop.cancelled() => break,
            item = read.recv() => item,
        };
        match item {
            Some(Item::Row { file, number, sendable }) => {
                window.take(file, number, sendable);
                if window.is_full() {
                    window.flush(Occasion::PeriodicFlush).await?;
                }
            }
            Some(Item::FileEnd) => window.flush(Occasion::FileComplete).await?,
            Some(Item::Capped) => {
                window.flush(Occasion::MaxEvents).await?;
                window.is_capped = true;
            }
            Some(Item::Failed(failure)) => return Err(failure),
            None => {
                drop(read);
                reader.await.map_err(|error| {
                    Failure::caused(
                        Reason::StreamFailed,
                        "reading the rows ended by a panic",
                        error,
                    )
                })?;
                if !window.is_capped {
                    window.flush(Occasion::OutputComplete).await?;
                }
                return Ok(window.emitted(false));
            }
        }
    }
    Ok(window.emitted(true))
}

impl Job {
    /// The last checkpoint, if it is one of this view. One that is not was made of a pack that has
    /// changed since, and would pass over rows that nobody has sent: it is let go.
    fn load(&self) -> Result<Option<Cursor>, Failure> {
        if self.settings.from_start {
            return Ok(None);
        }
        let (key, output_id) = (&self.checkpoint_key, &self.view.output.output_id);
        let loaded = self.checkpoints.load(key, output_id);
        let Some(cursor) = loaded.map_err(|error| kept("load the checkpoint", error))? else {
            return Ok(None);
        };
        if self.fits(&cursor)? {
            return Ok(Some(cursor));
        }
        tracing::warn!(
            output_id,
            last_file = cursor.last_file,
            last_row_index = cursor.last_row_index,
            "the pack is not the one this checkpoint was made of, every row is sent again"
        );
        let gone = self.checkpoints.forget(key, output_id);
        gone.map_err(|error| kept("let a checkpoint go", error))?;
        Ok(None)
    }

    /// Whether the row a checkpoint stands at is there, and happened when the checkpoint says.
    fn fits(&self, cursor: &Cursor) -> Result<bool, Failure> {
        let part = self.view.parts.iter().find(|part| part.name == cursor.last_file);
        if part.is_none_or(|part| cursor.last_row_index >= part.rows) {
            return Ok(false);
        }
        let opened = self.view.part(&cursor.last_file)?;
        let layout = Layout::of(&opened);
        let mut is_same = false;
        opened
            .rows(cursor.last_row_index, &mut |number, row| -> Result<bool, Failure> {
                let sendable = self.envelopes.envelope(&layout, number, row)?;
                is_same = sendable.stamp.text == cursor.last_ts_utc;
                Ok(false)
            })
            .map_err(|failure| failure.within(&cursor.last_file))?;
        Ok(is_same)
    }

    async fn save(&self, cursor: Cursor, occasion: Occasion) -> Result<(), Failure> {
        let (checkpoints, key) = (Arc::clone(&self.checkpoints), self.checkpoint_key.clone());
        let output_id = self.view.output.output_id.clone();
        let (now, session) = (self.clock.now(), Arc::clone(&self.session));
        let saved = spawn_blocking(move || {
            checkpoints.save(&key, &output_id, &cursor, occasion, now)?;
            session.checkpoint_saved(&output_id, &cursor, occasion);
            Ok(())
        });
        let saved: Result<(), super::checkpoint::CheckpointError> =
            saved.await.map_err(|error| kept("save a checkpoint", error))?;
        saved.map_err(|error| kept("save a checkpoint", error))
    }

    /// Reads rows after the cursor and hands their envelopes over, on a thread that may block. It
    /// ends early when nobody takes them any more.
    fn read(&self, cursor: Option<&Cursor>, items: &mpsc::Sender<Item>) {
        if let Err(failure) = self.try_read(cursor, items) {
            // Nobody to tell: whoever streamed has already stopped.
            items.blocking_send(Item::Failed(failure)).unwrap_or_default();
        }
    }

    fn try_read(&self, cursor: Option<&Cursor>, items: &mpsc::Sender<Item>) -> Result<(), Failure> {
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
                let detail = format!("{} was changed while its run was streamed", part.name);
                return Err(Failure::new(Reason::StreamFailed, detail));
            }
            let layout = Layout::of(&opened);
            let mut is_wanted = true;
            opened
                .rows(first, &mut |number, row| -> Result<bool, Failure> {
                    if ordinal >= rows_max {
                        is_wanted = false;
                        // Nobody to tell: whoever streamed has already stopped.
                        items.blocking_send(Item::Capped).unwrap_or_default();
                        return Ok(false);
                    }
                    ordinal += 1;
                    let sendable = self.envelopes.envelope(&layout, number, row)?;
                    is_wanted = items.blocking_send(Item::Row { file, number, sendable }).is_ok();
                    Ok(is_wanted)
                })
                .map_err(|failure| failure.within(&part.name))?;
            if !is_wanted || items.blocking_send(Item::FileEnd).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn kept(doing: &str, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::caused(Reason::StreamFailed, format!("could not {doing}"), error)
}

/// Rows between two checkpoints.
struct Window<'j> {
    job: &'j Job,
    rows: Vec<Waiting>,
    pace: Pace,
    /// The last row that was answered, with all before it.
    cursor: Option<Cursor>,
    answered: u64,
    is_capped: bool,
}

/// How a lane ended.
struct Lane {
    decided: Vec<(usize, Decision)>,
    failure: Option<Failure>,
}

impl<'j> Window<'j> {
    fn new(job: &'j Job, cursor: Option<Cursor>, answered: u64) -> Self {
        let pace = Pace::new(job.settings.speedup);
        Self { job, rows: Vec::new(), pace, cursor, answered, is_capped: false }
    }

    fn take(&mut self, file: usize, number: u64, sendable: Sendable) {
        let due = self.pace.due(sendable.stamp.micros);
        self.rows.push(Waiting { file, number, sendable, due });
    }

    fn is_full(&self) -> bool {
        self.rows.len() as u64 >= self.job.settings.window()
    }

    /// Pushes what was taken and moves the checkpoint behind it. When pushing ends early, the
    /// checkpoint moves as far as answers go without a gap.
    async fn flush(&mut self, occasion: Occasion) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.rows);
        let (decisions, failure) = self.push_all(&rows).await;
        let whole = decisions.iter().take_while(|decision| decision.is_some()).count();
        let mut counts = self.cursor.as_ref().map(|cursor| cursor.counts).unwrap_or_default();
        decisions.into_iter().take(whole).flatten().for_each(|decision| counts.add(decision));
        if let Some(last) = whole.checked_sub(1).map(|last| &rows[last]) {
            self.cursor = Some(Cursor {
                last_file: self.job.view.parts[last.file].name.clone(),
                last_row_index: last.number,
                last_ts_utc: last.sendable.stamp.text.clone(),
                counts,
            });
        }
        self.answered += whole as u64;
        let is_whole = whole == rows.len();
        if let Some(cursor) = self.cursor.clone()
            && (is_whole || whole > 0)
        {
            let occasion = if is_whole { occasion } else { Occasion::PeriodicFlush };
            self.job.save(cursor, occasion).await?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Pushes rows in lanes; the decision for each, as far as there is one.
    async fn push_all(&self, rows: &[Waiting]) -> (Vec<Option<Decision>>, Option<Failure>) {
        let mut decisions = vec![None; rows.len()];
        let lanes = self.job.settings.in_flight.clamp(1, rows.len().max(1));
        let mut lanes = vec![Vec::new(); lanes];
        let count = lanes.len() as u64;
        for (index, row) in rows.iter().enumerate() {
            let lane = usize::try_from(row.sendable.lane % count).unwrap_or_default();
            lanes[lane].push(index);
        }
        lanes.retain(|lane| !lane.is_empty());
        let has_failed = AtomicBool::new(false);
        let lanes = lanes.into_iter().map(|lane| self.push_lane(rows, lane, &has_failed));
        let mut failure = None;
        for lane in join_all(lanes).await {
            lane.decided
                .into_iter()
                .for_each(|(index, decision)| decisions[index] = Some(decision));
            failure = failure.or(lane.failure);
        }
        (decisions, failure)
    }

    /// Pushes the rows of one lane one after the other.
    async fn push_lane(&self, rows: &[Waiting], lane: Vec<usize>, has_failed: &AtomicBool) -> Lane {
        let job = self.job;
        let mut done = Lane { decided: Vec::with_capacity(lane.len()), failure: None };
        let again = || job.progress.repeated();
        for index in lane {
            let row = &rows[index];
            if let Some(due) = row.due {
                tokio::select! {
                    biased;
                    () = job.stop.cancelled() => return done,
                    () = sleep_until(due) => {}
                }
            }
            if has_failed.load(Ordering::Relaxed) || job.stop.is_cancelled() {
                return done;
            }
            let (gate, retry) = (&*job.gate, &job.settings.retry);
            let given_up = async {
                job.stop.cancelled().await;
                sleep(STOP_GRACE).await;
            };
            let pushed = tokio::select! {
                biased;
                pushed = push(gate, retry, &*job.chance, &row.sendable.body, &again) => pushed,
                () = given_up => return done,
            };
            match pushed {
                Ok(decision) => {
                    job.progress.decided(decision);
                    done.decided.push((index, decision));
                }
                Err(failure) => {
                    has_failed.store(true, Ordering::Relaxed);
                    let place = format!("{} row {}", job.view.parts[row.file].name, row.number);
                    done.failure = Some(failure.within(&place));
                    return done;
                }
            }
        }
        done
    }

    fn emitted(&self, is_stopped: bool) -> Emitted {
        Emitted {
            output_id: self.job.view.output.output_id.clone(),
            rows: self.answered,
            counts: self.cursor.as_ref().map(|cursor| cursor.counts).unwrap_or_default(),
            is_capped: self.is_capped,
            is_stopped,
        }
    }
}
