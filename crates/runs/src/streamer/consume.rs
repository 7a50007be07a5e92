//! Consumes READY messages from the control bus. Checks, in the order of the contract:
//!
//! ```text
//! not a READY             -> dropped              other platform run -> skipped, recorded
//! settled before          -> skipped              gate not ready     -> deferred
//! facts missing or bad    -> failed, recorded     no pack named      -> failed, recorded
//! ids that differ         -> failed, recorded     else               -> streamed, recorded
//! ```
//!
//! Invariant: the position on the bus never moves past an unsettled message. A failed, deferred or
//! postponed message is read again, in the next cycle and after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::ArtifactsError;
use admit_bus::{BusError, OffsetKind, StoredMessage};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::StreamerParts;
use super::checkpoint::CheckpointError;
use super::facts::Facts;
use super::ready::Ready;
use super::reason::{Reason, RunFailure};
use super::records::{ReadyStatus, StreamRecord};
use super::run::{self, ReadyRun, RunEnd, StreamResult};
use super::session::SessionLog;

/// Messages per read.
const PAGE: usize = 100;
/// Maximum partitions.
const PARTITIONS_MAX: u32 = 1_024;
/// Maximum backoff of a failing message.
const FAILED_WAIT_MAX: Duration = Duration::from_secs(300);
/// Maximum cached settled messages, whose records need not be read again.
const KNOWN_MAX: usize = 100_000;

/// Error of a cycle. Nothing is lost: the next cycle starts at the same position.
#[derive(Debug, thiserror::Error)]
pub enum StreamerError {
    /// The control bus cannot be read.
    #[error("failed to read the control bus; no message was skipped, will retry")]
    Bus(#[from] BusError),
    /// The checkpoints cannot be used.
    #[error("failed to access the streamer's checkpoints")]
    Checkpoints(#[from] CheckpointError),
    /// The records cannot be read.
    #[error("failed to read the records of READY messages")]
    Records(#[from] ArtifactsError),
    /// A worker thread panicked.
    #[error("a checkpoint operation was interrupted by a panic")]
    Interrupted,
}

/// Outcome of one READY message in one cycle.
#[derive(Debug)]
pub struct CycleOutcome {
    /// The message.
    pub ready: Ready,
    /// Its status.
    pub status: ReadyStatus,
    /// The reason as in records, if any.
    pub reason: Option<String>,
    /// Detail for operators.
    pub detail: Option<String>,
    /// Streamed rows.
    pub streamed: StreamResult,
}

/// Result of one pass over the control bus.
#[derive(Debug, Default)]
pub struct Cycle {
    /// READY messages in bus order, without those settled in earlier cycles.
    pub outcomes: Vec<CycleOutcome>,
    /// Messages that are not a READY for this streamer.
    pub dropped: u64,
}

impl Cycle {
    /// Whether all messages are settled.
    pub fn is_settled(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.status.is_settled())
    }
}

/// Backoff of a failed message.
struct RetryState {
    failures: u32,
    at: Instant,
}

/// The streamer.
pub struct Streamer {
    parts: Arc<StreamerParts>,
    settled: HashSet<String>,
    retries: HashMap<String, RetryState>,
    /// Partitions whose saved position was checked against this bus.
    checked_partitions: HashSet<u32>,
}

impl Streamer {
    /// Creates a streamer.
    pub fn new(parts: StreamerParts) -> Self {
        let parts = Arc::new(parts);
        Self {
            parts,
            settled: HashSet::new(),
            retries: HashMap::new(),
            checked_partitions: HashSet::new(),
        }
    }

    /// Runs cycles until `stop`, and passes each result to `on_cycle`.
    ///
    /// # Errors
    /// When `on_cycle` fails. A failed cycle is logged and retried.
    pub async fn run<E>(
        &mut self,
        stop: &CancellationToken,
        on_cycle: &mut (dyn FnMut(Cycle) -> Result<(), E> + Send),
    ) -> Result<(), E> {
        while !stop.is_cancelled() {
            match self.cycle(stop).await {
                Ok(cycle) => on_cycle(cycle)?,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "a cycle over the control bus failed; will retry");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.parts.settings.poll_every) => {}
            }
        }
        Ok(())
    }

    /// Processes all unsettled messages on the bus.
    ///
    /// # Errors
    /// When the bus, the records or the checkpoints fail.
    pub async fn cycle(&mut self, stop: &CancellationToken) -> Result<Cycle, StreamerError> {
        let mut cycle = Cycle::default();
        let mut attempted = 0;
        for partition in 0..PARTITIONS_MAX {
            match self.partition(partition, &mut cycle, &mut attempted, stop).await {
                Err(StreamerError::Bus(BusError::NoSuchPartition { .. })) if partition > 0 => break,
                done => done?,
            }
        }
        Ok(cycle)
    }

    async fn partition(
        &mut self,
        partition: u32,
        cycle: &mut Cycle,
        attempted: &mut u64,
        stop: &CancellationToken,
    ) -> Result<(), StreamerError> {
        let topic = self.parts.settings.control_topic.clone();
        // A replay reads everything and does not move the saved position.
        let is_replay = self.parts.settings.again;
        let position_key = self.position_key(&topic);
        let started_at = if is_replay {
            String::new()
        } else {
            self.start_offset(&topic, &position_key, partition).await?
        };
        let (mut from, mut position) = (started_at.clone(), started_at.clone());
        let mut is_settled = true;
        while !stop.is_cancelled() {
            let page = self.parts.control.read(&topic, partition, &from, PAGE).await?;
            let Some(last) = page.last() else { break };
            if from == started_at {
                warn_about_gap(&topic, &started_at, &page[0]);
            }
            let is_last = page.len() < PAGE || last.reference.offset == from;
            from = offset_after(last);
            for message in page {
                let is_message_settled =
                    self.process(&topic, &message, cycle, attempted, stop).await?;
                is_settled &= is_message_settled;
                if is_settled {
                    position = offset_after(&message);
                }
            }
            if is_last {
                break;
            }
        }
        if position != started_at && !is_replay {
            self.save_position(&position_key, partition, position).await?;
        }
        Ok(())
    }

    /// Key of the saved position. The file bus uses the plain topic, for compatibility. A streamer
    /// for one platform run skips messages of other runs, so it has its own position.
    fn position_key(&self, topic: &str) -> String {
        let of_bus = match self.parts.control.offset_kind() {
            OffsetKind::FileLine => topic.to_owned(),
            kind @ (OffsetKind::KinesisSequence
            | OffsetKind::KafkaOffset
            | OffsetKind::NatsSequence) => format!("{kind}:{topic}"),
        };
        match &self.parts.settings.platform_run_id {
            Some(run) => format!("{of_bus}@{run}"),
            None => of_bus,
        }
    }

    /// The offset to start at. If the bus ends before the saved position, it was recreated or is
    /// another bus: reading restarts at the beginning, and the records show what is settled.
    async fn start_offset(
        &mut self,
        topic: &str,
        position_key: &str,
        partition: u32,
    ) -> Result<String, StreamerError> {
        let position = self.position(position_key, partition).await?;
        if !self.checked_partitions.insert(partition) {
            return Ok(position);
        }
        let Some(offset_before) = offset_before(self.parts.control.offset_kind(), &position) else {
            return Ok(position);
        };
        if !self.parts.control.read(topic, partition, &offset_before, 1).await?.is_empty() {
            return Ok(position);
        }
        tracing::warn!(
            topic,
            position,
            "the control bus ends before the saved position, so it was recreated; reading from its beginning"
        );
        self.save_position(position_key, partition, String::new()).await?;
        Ok(String::new())
    }

    async fn position(&self, position_key: &str, partition: u32) -> Result<String, StreamerError> {
        let (checkpoints, position_key) =
            (Arc::clone(&self.parts.checkpoints), position_key.to_owned());
        let read = spawn_blocking(move || checkpoints.position(&position_key, partition));
        Ok(read.await.map_err(|_| StreamerError::Interrupted)??)
    }

    async fn save_position(
        &self,
        position_key: &str,
        partition: u32,
        to: String,
    ) -> Result<(), StreamerError> {
        let (checkpoints, position_key) =
            (Arc::clone(&self.parts.checkpoints), position_key.to_owned());
        let moved = spawn_blocking(move || checkpoints.move_to(&position_key, partition, &to));
        Ok(moved.await.map_err(|_| StreamerError::Interrupted)??)
    }

    /// Processes one message. Returns whether it is settled.
    async fn process(
        &mut self,
        topic: &str,
        message: &StoredMessage,
        cycle: &mut Cycle,
        attempted: &mut u64,
        stop: &CancellationToken,
    ) -> Result<bool, StreamerError> {
        let Some(ready) = Ready::read(topic, &message.payload) else {
            cycle.dropped += 1;
            return Ok(true);
        };
        if self.settled.contains(&ready.message_id) {
            return Ok(true);
        }
        let scope = self.scope(&ready).to_owned();
        let mut outcome = CycleOutcome::of(&ready, ReadyStatus::SkippedDuplicate);
        let is_done = self.parts.records.is_terminal(&scope, &ready.message_id).await?;
        if !is_done || self.parts.settings.again {
            outcome = if self.is_postponed(&ready, *attempted, stop) {
                CycleOutcome::of(&ready, ReadyStatus::Waiting)
            } else {
                *attempted += 1;
                Box::pin(self.stream_and_record(&scope, ready, stop)).await
            };
        }
        self.update_state(&outcome);
        let is_settled = outcome.status.is_settled();
        cycle.outcomes.push(outcome);
        Ok(is_settled)
    }

    /// The run below which a message is recorded: the streamer's platform run, or the message's
    /// own.
    fn scope<'r>(&'r self, ready: &'r Ready) -> &'r str {
        self.parts.settings.platform_run_id.as_deref().unwrap_or(&ready.platform_run_id)
    }

    fn is_postponed(&self, ready: &Ready, attempted: u64, stop: &CancellationToken) -> bool {
        let is_enough = self.parts.settings.max_messages.is_some_and(|max| attempted >= max);
        let is_early =
            self.retries.get(&ready.message_id).is_some_and(|retry| Instant::now() < retry.at);
        is_enough || is_early || stop.is_cancelled()
    }

    fn update_state(&mut self, outcome: &CycleOutcome) {
        let id = &outcome.ready.message_id;
        if outcome.status.is_settled() {
            self.retries.remove(id);
            if self.settled.len() >= KNOWN_MAX {
                self.settled.clear();
            }
            self.settled.insert(id.clone());
        } else if outcome.status == ReadyStatus::Failed {
            let failures = self.retries.get(id).map_or(0, |retry| retry.failures) + 1;
            let wait = self.parts.settings.poll_every.saturating_mul(1 << failures.min(20));
            let at = Instant::now() + wait.min(FAILED_WAIT_MAX);
            self.retries.insert(id.clone(), RetryState { failures, at });
        }
    }

    /// Streams the run of a message if allowed, and records the status.
    async fn stream_and_record(
        &self,
        scope: &str,
        ready: Ready,
        stop: &CancellationToken,
    ) -> CycleOutcome {
        let mut outcome = CycleOutcome::of(&ready, ReadyStatus::Failed);
        let mut entry = StreamRecord {
            status: ReadyStatus::Failed,
            reason: None,
            emitted: 0,
            engine_run_root: None,
            scenario_id: None,
        };
        match self.try_stream(&ready, &mut entry, &mut outcome, stop).await {
            Ok(status) => entry.status = status,
            Err(failure) => outcome.failed(&failure),
        }
        if entry.status == ReadyStatus::SkippedOutOfScope {
            outcome.reason = Some("PLATFORM_RUN_SCOPE_MISMATCH".to_owned());
        }
        if entry.status == ReadyStatus::Streamed {
            entry.emitted = outcome.streamed.emitted();
        }
        entry.reason.clone_from(&outcome.reason);
        outcome.status = entry.status;
        let now = self.parts.clock.now();
        let knobs = self.parts.settings.knobs();
        if let Err(error) = self.parts.records.append(scope, &ready, &entry, knobs, now).await {
            // Without a record it is not settled: it is streamed again from its checkpoints.
            outcome.status = ReadyStatus::Failed;
            let detail = "failed to record the status of the run";
            outcome.failed(&RunFailure::caused(Reason::StreamFailed, detail, error));
        }
        outcome
    }

    async fn try_stream(
        &self,
        ready: &Ready,
        entry: &mut StreamRecord,
        outcome: &mut CycleOutcome,
        stop: &CancellationToken,
    ) -> Result<ReadyStatus, RunFailure> {
        let facts = self.facts(ready).await?;
        let (platform_run_id, scenario_run_id) = facts.ids(ready)?;
        let scope_run = self.parts.settings.platform_run_id.as_ref();
        if scope_run.is_some_and(|scope_run| *scope_run != platform_run_id) {
            return Ok(ReadyStatus::SkippedOutOfScope);
        }
        let session =
            SessionLog::new(&self.parts.sessions, &platform_run_id, Arc::clone(&self.parts.clock));
        let session_fields = [
            ("message_id", ready.message_id.as_str().into()),
            ("run_id", ready.run_id.as_str().into()),
        ];
        session.write("ready_received", session_fields);
        let (provenance, now) = (self.parts.settings.provenance(), self.parts.clock.now());
        let seen = self.parts.records.ready_seen(&platform_run_id, ready, provenance, now).await;
        seen.map_err(|error| {
            RunFailure::caused(Reason::StreamFailed, "failed to write the governance log", error)
        })?;
        if let Err(reason) = self.parts.gate.alive().await {
            outcome.detail = Some(reason);
            return Ok(ReadyStatus::DeferredDownstreamNotReady);
        }
        let scenario_id = facts.pins.scenario_id.clone().ok_or_else(|| {
            RunFailure::new(Reason::ScenarioIdMissing, "the facts have no scenario_id")
        })?;
        entry.scenario_id = Some(scenario_id.clone());
        let engine_root = facts.engine_root(ready)?;
        entry.engine_run_root = Some(engine_root.clone());
        facts.same_world(ready)?;
        facts.same_bundle(ready)?;
        let run = ReadyRun {
            ready: ready.clone(),
            facts,
            platform_run_id,
            scenario_run_id,
            scenario_id,
            engine_root,
        };
        match run::stream(&self.parts, run, stop).await? {
            RunEnd::InUse => {
                outcome.detail = Some("another streamer holds the lock of this run".to_owned());
                Ok(ReadyStatus::DeferredRunInUse)
            }
            RunEnd::Streamed(streamed) => {
                outcome.streamed = streamed;
                Ok(ReadyStatus::Streamed)
            }
            RunEnd::Stopped(streamed) => {
                outcome.streamed = streamed;
                Ok(ReadyStatus::Stopped)
            }
        }
    }

    async fn facts(&self, ready: &Ready) -> Result<Facts, RunFailure> {
        let reference = &ready.facts_view_ref;
        let invalid = Reason::RunFactsInvalid;
        let read = self.parts.records.facts(reference).await;
        match read {
            Ok(Some(bytes)) => Facts::read(&bytes).map_err(|failure| failure.at(reference)),
            Ok(None) => Err(RunFailure::new(invalid, format!("{reference} does not exist"))),
            Err(error) => {
                Err(RunFailure::caused(invalid, format!("{reference} cannot be read"), error))
            }
        }
    }
}

impl CycleOutcome {
    fn of(ready: &Ready, status: ReadyStatus) -> Self {
        let (ready, streamed) = (ready.clone(), StreamResult::default());
        Self { ready, status, reason: None, detail: None, streamed }
    }

    fn failed(&mut self, failure: &RunFailure) {
        self.reason = Some(failure.reason.as_str().to_owned());
        self.detail = Some(failure.detail_with_causes());
        tracing::error!(
            run_id = self.ready.run_id,
            reason = failure.reason.as_str(),
            detail = failure.detail_with_causes(),
            "streaming a run failed; will retry"
        );
    }
}

/// The offset after a message. Kinesis has no next offset until there is a next message; reading
/// from the same one again returns a settled message.
fn offset_after(message: &StoredMessage) -> String {
    let offset = &message.reference.offset;
    match message.reference.offset_kind {
        OffsetKind::FileLine | OffsetKind::KafkaOffset | OffsetKind::NatsSequence => {
            let next = offset.parse::<u64>().ok().and_then(|offset| offset.checked_add(1));
            next.map_or_else(|| offset.clone(), |next| next.to_string())
        }
        OffsetKind::KinesisSequence => offset.clone(),
    }
}

/// The offset of the last settled message, where offsets are numbers.
fn offset_before(kind: OffsetKind, position: &str) -> Option<String> {
    match kind {
        OffsetKind::FileLine | OffsetKind::KafkaOffset | OffsetKind::NatsSequence => {
            let position: u64 = position.parse().ok()?;
            position.checked_sub(1).map(|offset_before| offset_before.to_string())
        }
        OffsetKind::KinesisSequence => None,
    }
}

/// Warns when retention has removed messages before they were processed.
fn warn_about_gap(topic: &str, started_at: &str, first: &StoredMessage) {
    let at = &first.reference.offset;
    if !started_at.is_empty() && at != started_at {
        tracing::warn!(
            topic,
            position = started_at,
            first = at,
            "retention of the control bus has removed messages after the saved position; raise its retention"
        );
    }
}
