//! Takes READY messages off the control bus, in the order of the contract:
//!
//! ```text
//! no READY                -> dropped              other platform run -> skipped, recorded
//! dealt with before       -> skipped              gate not there     -> deferred
//! facts missing or bad    -> failed, recorded     no pack named      -> failed, recorded
//! ids that differ         -> failed, recorded     else               -> streamed, recorded
//! ```
//!
//! Invariant: the position on the bus never moves past a message that is not dealt with for good. A
//! failed, deferred or postponed one is read again, in the next cycle and after a restart.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use admit_artifacts::ArtifactsError;
use admit_bus::{BusError, OffsetKind, Record};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Parts;
use super::checkpoint::CheckpointError;
use super::facts::Facts;
use super::ready::Ready;
use super::reason::{Failure, Reason};
use super::records::{Entry, Status};
use super::run::{self, Ended, Run, Streamed};
use super::session::Session;

/// Messages read at a time.
const PAGE: usize = 100;
/// Most partitions that are looked for.
const PARTITIONS_MAX: u32 = 1_024;
/// A message that keeps failing is tried again at least this often.
const FAILED_WAIT_MAX: Duration = Duration::from_secs(300);
/// Messages that are known to be dealt with, so that their records are not read again.
const KNOWN_MAX: usize = 100_000;

/// Why a cycle could not be finished. Nothing is lost: the next one begins where this one did.
#[derive(Debug, thiserror::Error)]
pub enum StreamerError {
    /// The control bus.
    #[error("the control bus cannot be read; nothing was skipped")]
    Bus(#[from] BusError),
    /// The streamer's own file.
    #[error("the streamer's progress cannot be kept")]
    Checkpoints(#[from] CheckpointError),
    /// The records.
    #[error("the records of READY messages cannot be read")]
    Records(#[from] ArtifactsError),
    /// A thread of ours ended by a panic.
    #[error("work on the streamer's file was cut short")]
    Cut,
}

/// What became of one READY message in one cycle.
#[derive(Debug)]
pub struct Outcome {
    /// The message.
    pub ready: Ready,
    /// What became of it.
    pub status: Status,
    /// Why, where that needs saying: a reason of records.
    pub reason: Option<String>,
    /// What exactly happened, for people.
    pub detail: Option<String>,
    /// What was streamed.
    pub streamed: Streamed,
}

/// One look at the whole bus.
#[derive(Debug, Default)]
pub struct Cycle {
    /// READY messages in the order of the bus, without those dealt with in earlier cycles.
    pub outcomes: Vec<Outcome>,
    /// Messages that were no READY for us.
    pub dropped: u64,
}

impl Cycle {
    /// Whether everything that was found is dealt with.
    pub fn is_settled(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.status.is_settled())
    }
}

/// When a failed message may be tried again.
struct Later {
    failures: u32,
    at: Instant,
}

/// The streamer.
pub struct Streamer {
    parts: Arc<Parts>,
    known: HashSet<String>,
    later: HashMap<String, Later>,
    /// Partitions whose position is known to be one of this bus.
    placed: HashSet<u32>,
}

impl Streamer {
    /// A streamer of these parts.
    pub fn new(parts: Parts) -> Self {
        let parts = Arc::new(parts);
        Self { parts, known: HashSet::new(), later: HashMap::new(), placed: HashSet::new() }
    }

    /// Cycles until it is told to stop, and hands over what each found.
    ///
    /// # Errors
    /// When `told` does. A cycle that fails is said in the log and tried again.
    pub async fn run<E>(
        &mut self,
        stop: &CancellationToken,
        told: &mut (dyn FnMut(Cycle) -> Result<(), E> + Send),
    ) -> Result<(), E> {
        while !stop.is_cancelled() {
            match self.cycle(stop).await {
                Ok(cycle) => told(cycle)?,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "a look at the control bus failed and is repeated");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.parts.settings.poll_every) => {}
            }
        }
        Ok(())
    }

    /// Looks at everything on the bus that is not dealt with.
    ///
    /// # Errors
    /// When the bus, the records or the streamer's file fail.
    pub async fn cycle(&mut self, stop: &CancellationToken) -> Result<Cycle, StreamerError> {
        let mut cycle = Cycle::default();
        let mut taken = 0;
        for partition in 0..PARTITIONS_MAX {
            match self.partition(partition, &mut cycle, &mut taken, stop).await {
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
        taken: &mut u64,
        stop: &CancellationToken,
    ) -> Result<(), StreamerError> {
        let topic = self.parts.settings.control_topic.clone();
        // A replay looks at everything, and leaves the position to those who go on from it.
        let again = self.parts.settings.again;
        let place = self.place(&topic);
        let began =
            if again { String::new() } else { self.begin(&topic, &place, partition).await? };
        let (mut from, mut position) = (began.clone(), began.clone());
        let mut is_settled = true;
        while !stop.is_cancelled() {
            let page = self.parts.control.read(&topic, partition, &from, PAGE).await?;
            let Some(last) = page.last() else { break };
            if from == began {
                note_gap(&topic, &began, &page[0]);
            }
            let is_last = page.len() < PAGE || last.reference.offset == from;
            from = after(last);
            for record in page {
                let settled = self.message(&topic, &record, cycle, taken, stop).await?;
                is_settled &= settled;
                if is_settled {
                    position = after(&record);
                }
            }
            if is_last {
                break;
            }
        }
        if position != began && !again {
            self.move_to(&place, partition, position).await?;
        }
        Ok(())
    }

    /// What a position is kept under. Positions on files came first and have the plain topic. A
    /// streamer for one platform run passes over the others, so it has a position of its own: theirs
    /// must find what it skipped.
    fn place(&self, topic: &str) -> String {
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

    /// The offset to begin at. A bus that ends before its position is not the one the position is
    /// of, or was made anew: it is read from its beginning, and the records tell what is done.
    async fn begin(
        &mut self,
        topic: &str,
        place: &str,
        partition: u32,
    ) -> Result<String, StreamerError> {
        let position = self.position(place, partition).await?;
        if !self.placed.insert(partition) {
            return Ok(position);
        }
        let Some(before) = before(self.parts.control.offset_kind(), &position) else {
            return Ok(position);
        };
        if !self.parts.control.read(topic, partition, &before, 1).await?.is_empty() {
            return Ok(position);
        }
        tracing::warn!(topic, position, "the control bus ends before this position, all is read");
        self.move_to(place, partition, String::new()).await?;
        Ok(String::new())
    }

    async fn position(&self, place: &str, partition: u32) -> Result<String, StreamerError> {
        let (checkpoints, place) = (Arc::clone(&self.parts.checkpoints), place.to_owned());
        let read = spawn_blocking(move || checkpoints.position(&place, partition));
        Ok(read.await.map_err(|_| StreamerError::Cut)??)
    }

    async fn move_to(&self, place: &str, partition: u32, to: String) -> Result<(), StreamerError> {
        let (checkpoints, place) = (Arc::clone(&self.parts.checkpoints), place.to_owned());
        let moved = spawn_blocking(move || checkpoints.move_to(&place, partition, &to));
        Ok(moved.await.map_err(|_| StreamerError::Cut)??)
    }

    /// Deals with one message; whether it is dealt with for good.
    async fn message(
        &mut self,
        topic: &str,
        record: &Record,
        cycle: &mut Cycle,
        taken: &mut u64,
        stop: &CancellationToken,
    ) -> Result<bool, StreamerError> {
        let Some(ready) = Ready::read(topic, &record.payload) else {
            cycle.dropped += 1;
            return Ok(true);
        };
        if self.known.contains(&ready.message_id) {
            return Ok(true);
        }
        let scope = self.scope(&ready).to_owned();
        let mut outcome = Outcome::of(&ready, Status::SkippedDuplicate);
        let is_done = self.parts.records.is_terminal(&scope, &ready.message_id).await?;
        if !is_done || self.parts.settings.again {
            outcome = if self.is_postponed(&ready, *taken, stop) {
                Outcome::of(&ready, Status::Waiting)
            } else {
                *taken += 1;
                Box::pin(self.take_on(&scope, ready, stop)).await
            };
        }
        self.remember(&outcome);
        let is_settled = outcome.status.is_settled();
        cycle.outcomes.push(outcome);
        Ok(is_settled)
    }

    /// The run below which a message is recorded: the one this streamer is for, else its own.
    fn scope<'r>(&'r self, ready: &'r Ready) -> &'r str {
        self.parts.settings.platform_run_id.as_deref().unwrap_or(&ready.platform_run_id)
    }

    fn is_postponed(&self, ready: &Ready, taken: u64, stop: &CancellationToken) -> bool {
        let is_enough = self.parts.settings.max_messages.is_some_and(|max| taken >= max);
        let is_early =
            self.later.get(&ready.message_id).is_some_and(|later| Instant::now() < later.at);
        is_enough || is_early || stop.is_cancelled()
    }

    fn remember(&mut self, outcome: &Outcome) {
        let id = &outcome.ready.message_id;
        if outcome.status.is_settled() {
            self.later.remove(id);
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            self.known.insert(id.clone());
        } else if outcome.status == Status::Failed {
            let failures = self.later.get(id).map_or(0, |later| later.failures) + 1;
            let wait = self.parts.settings.poll_every.saturating_mul(1 << failures.min(20));
            let at = Instant::now() + wait.min(FAILED_WAIT_MAX);
            self.later.insert(id.clone(), Later { failures, at });
        }
    }

    /// Streams a message's run if it may be, and records what became of it.
    async fn take_on(&self, scope: &str, ready: Ready, stop: &CancellationToken) -> Outcome {
        let mut outcome = Outcome::of(&ready, Status::Failed);
        let mut entry = Entry {
            status: Status::Failed,
            reason: None,
            emitted: 0,
            engine_run_root: None,
            scenario_id: None,
        };
        match self.try_stream(&ready, &mut entry, &mut outcome, stop).await {
            Ok(status) => entry.status = status,
            Err(failure) => outcome.failed(&failure),
        }
        if entry.status == Status::SkippedOutOfScope {
            outcome.reason = Some("PLATFORM_RUN_SCOPE_MISMATCH".to_owned());
        }
        if entry.status == Status::Streamed {
            entry.emitted = outcome.streamed.emitted();
        }
        entry.reason.clone_from(&outcome.reason);
        outcome.status = entry.status;
        let now = self.parts.clock.now();
        let knobs = self.parts.settings.knobs();
        if let Err(error) = self.parts.records.append(scope, &ready, &entry, knobs, now).await {
            // Not recorded is not done: it is streamed again, from its checkpoints.
            outcome.status = Status::Failed;
            let detail = "what became of the run could not be recorded";
            outcome.failed(&Failure::caused(Reason::StreamFailed, detail, error));
        }
        outcome
    }

    async fn try_stream(
        &self,
        ready: &Ready,
        entry: &mut Entry,
        outcome: &mut Outcome,
        stop: &CancellationToken,
    ) -> Result<Status, Failure> {
        let facts = self.facts(ready).await?;
        let (platform_run_id, scenario_run_id) = facts.ids(ready)?;
        let wanted = self.parts.settings.platform_run_id.as_ref();
        if wanted.is_some_and(|wanted| *wanted != platform_run_id) {
            return Ok(Status::SkippedOutOfScope);
        }
        let session =
            Session::new(&self.parts.sessions, &platform_run_id, Arc::clone(&self.parts.clock));
        let said = [
            ("message_id", ready.message_id.as_str().into()),
            ("run_id", ready.run_id.as_str().into()),
        ];
        session.write("ready_received", said);
        let (provenance, now) = (self.parts.settings.provenance(), self.parts.clock.now());
        let seen = self.parts.records.ready_seen(&platform_run_id, ready, provenance, now).await;
        seen.map_err(|error| {
            Failure::caused(Reason::StreamFailed, "the governance log cannot be written", error)
        })?;
        if let Err(what) = self.parts.gate.alive().await {
            outcome.detail = Some(what);
            return Ok(Status::DeferredDownstreamNotReady);
        }
        let scenario_id = facts.pins.scenario_id.clone().ok_or_else(|| {
            Failure::new(Reason::ScenarioIdMissing, "the facts do not name a scenario")
        })?;
        entry.scenario_id = Some(scenario_id.clone());
        let engine_root = facts.engine_root(ready)?;
        entry.engine_run_root = Some(engine_root.clone());
        facts.same_world(ready)?;
        facts.same_bundle(ready)?;
        let run = Run {
            ready: ready.clone(),
            facts,
            platform_run_id,
            scenario_run_id,
            scenario_id,
            engine_root,
        };
        match run::stream(&self.parts, run, stop).await? {
            Ended::InUse => {
                outcome.detail = Some("another streamer has this run".to_owned());
                Ok(Status::DeferredRunInUse)
            }
            Ended::Streamed(streamed) => {
                outcome.streamed = streamed;
                Ok(Status::Streamed)
            }
            Ended::Stopped(streamed) => {
                outcome.streamed = streamed;
                Ok(Status::Stopped)
            }
        }
    }

    async fn facts(&self, ready: &Ready) -> Result<Facts, Failure> {
        let reference = &ready.facts_view_ref;
        let invalid = Reason::RunFactsInvalid;
        let read = self.parts.records.facts(reference).await;
        match read {
            Ok(Some(bytes)) => Facts::read(&bytes).map_err(|failure| failure.within(reference)),
            Ok(None) => Err(Failure::new(invalid, format!("{reference} is not there"))),
            Err(error) => {
                Err(Failure::caused(invalid, format!("{reference} cannot be read"), error))
            }
        }
    }
}

impl Outcome {
    fn of(ready: &Ready, status: Status) -> Self {
        let (ready, streamed) = (ready.clone(), Streamed::default());
        Self { ready, status, reason: None, detail: None, streamed }
    }

    fn failed(&mut self, failure: &Failure) {
        self.reason = Some(failure.reason.as_str().to_owned());
        self.detail = Some(failure.told());
        tracing::error!(
            run_id = self.ready.run_id,
            reason = failure.reason.as_str(),
            detail = failure.told(),
            "a run was not streamed and is tried again"
        );
    }
}

/// The offset after a message. Kinesis has no next one until there is a next message; reading from
/// the same one again finds a message that is dealt with.
fn after(record: &Record) -> String {
    let offset = &record.reference.offset;
    match record.reference.offset_kind {
        OffsetKind::FileLine | OffsetKind::KafkaOffset | OffsetKind::NatsSequence => {
            let next = offset.parse::<u64>().ok().and_then(|offset| offset.checked_add(1));
            next.map_or_else(|| offset.clone(), |next| next.to_string())
        }
        OffsetKind::KinesisSequence => offset.clone(),
    }
}

/// The offset of the last message that is dealt with, where offsets are counted.
fn before(kind: OffsetKind, position: &str) -> Option<String> {
    match kind {
        OffsetKind::FileLine | OffsetKind::KafkaOffset | OffsetKind::NatsSequence => {
            let position: u64 = position.parse().ok()?;
            position.checked_sub(1).map(|before| before.to_string())
        }
        OffsetKind::KinesisSequence => None,
    }
}

/// Says so when the bus has let go of messages before anybody dealt with them.
fn note_gap(topic: &str, began: &str, first: &Record) {
    let at = &first.reference.offset;
    if !began.is_empty() && at != began {
        tracing::warn!(
            topic,
            position = began,
            first = at,
            "the control bus no longer has what came after this position; keep its messages longer"
        );
    }
}
