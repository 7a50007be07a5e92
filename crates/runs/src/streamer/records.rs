//! What the streamer reads and writes among the artifacts: facts of runs, and its own records of
//! READY messages. It has no other way to write there.

use std::sync::Arc;

use admit_artifacts::{Artifacts, ArtifactsError, File, Limited, Line, Markers};
use admit_contracts::ingestion_gate::governance::{self, Family};
use admit_contracts::ingestion_gate::{Paths, utc};
use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits, Object, Value};
use bytes::Bytes;

use super::ready::Ready;

/// The folders of a run that the streamer writes in. The second is a log that everybody appends to.
pub const FOLDERS: &[&str] = &["wsp", "obs/governance"];

/// The component in governance lines.
const COMPONENT: &str = "world_stream_producer";

/// What became of a READY message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// All its rows have been answered for, or as many as were allowed.
    Streamed,
    /// It is of another platform run than this streamer is for.
    SkippedOutOfScope,
    /// It was dealt with before.
    SkippedDuplicate,
    /// Streaming failed; it is tried again.
    Failed,
    /// What takes the events is not there yet; it is tried again.
    DeferredDownstreamNotReady,
    /// Another streamer has the run; it is looked at again.
    DeferredRunInUse,
    /// It failed a moment ago, or this cycle has taken enough on; it is tried later.
    Waiting,
    /// The streamer was stopped; it goes on from its checkpoints.
    Stopped,
}

impl Status {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Streamed => "STREAMED",
            Self::SkippedOutOfScope => "SKIPPED_OUT_OF_SCOPE",
            Self::SkippedDuplicate => "SKIPPED_DUPLICATE",
            Self::Failed => "FAILED",
            Self::DeferredDownstreamNotReady => "DEFERRED_DOWNSTREAM_NOT_READY",
            Self::DeferredRunInUse => "DEFERRED_RUN_IN_USE",
            Self::Waiting => "WAITING",
            Self::Stopped => "STOPPED",
        }
    }

    /// Whether it is done with for good. Everything else must be looked at again.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Streamed | Self::SkippedOutOfScope | Self::SkippedDuplicate)
    }

    /// Whether a record of it says that the message is done with.
    fn is_terminal(word: &str) -> bool {
        [Self::Streamed, Self::SkippedOutOfScope].iter().any(|status| status.as_str() == word)
    }

    /// Whether it is recorded.
    const fn is_recorded(self) -> bool {
        matches!(self, Self::Streamed | Self::SkippedOutOfScope | Self::Failed)
    }
}

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What became of it.
    pub status: Status,
    /// Why, where that needs saying.
    pub reason: Option<String>,
    /// Rows the gate has answered for; 0 where it failed.
    pub emitted: u64,
    /// The pack, once it is known.
    pub engine_run_root: Option<String>,
    /// The scenario, once it is known.
    pub scenario_id: Option<String>,
}

/// The streamer's handle on the artifacts.
#[derive(Clone)]
pub struct Records {
    artifacts: Arc<Limited>,
    paths: Paths,
}

impl Records {
    /// Records where `paths` lays runs out.
    pub fn new(artifacts: Arc<dyn Artifacts>, paths: Paths) -> Self {
        let artifacts = Arc::new(Limited::new(artifacts, paths.prefix(), FOLDERS));
        Self { artifacts, paths }
    }

    /// The facts at a reference, `None` where there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn facts(&self, reference: &str) -> Result<Option<Bytes>, ArtifactsError> {
        self.artifacts.get(reference).await
    }

    /// Whether the record of a message below this run says that it is done with.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_terminal(&self, run: &str, message_id: &str) -> Result<bool, ArtifactsError> {
        let path = self.path(run, message_id);
        let Some(bytes) = self.artifacts.get(&path).await? else { return Ok(false) };
        // Half a line at the end was never finished; whoever appends next cuts it off.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.any(|line| match json::parse(line, &Limits::default()) {
            Ok(line) => line.get("status").and_then(Value::as_str).is_some_and(Status::is_terminal),
            Err(error) => {
                tracing::warn!(path, %error, "a line of a record cannot be read and is passed over");
                false
            }
        }))
    }

    /// Appends a line to the record of a message. An end is recorded once; every failure has a line of
    /// its own, as often as the streamer tries again. `knobs` are those the attempt ran with.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn append(
        &self,
        run: &str,
        ready: &Ready,
        entry: &Entry,
        knobs: Object<'static>,
        now: Millis,
    ) -> Result<(), ArtifactsError> {
        if !entry.status.is_recorded() {
            return Ok(());
        }
        let mut line = Object::from_iter([
            ("message_id", Value::from(ready.message_id.as_str())),
            ("run_id", ready.run_id.as_str().into()),
            ("status", entry.status.as_str().into()),
            ("reason", entry.reason.as_deref().into()),
            ("emitted", entry.emitted.into()),
            ("engine_run_root", entry.engine_run_root.as_deref().into()),
            ("scenario_id", entry.scenario_id.as_deref().into()),
        ]);
        let mut said = Vec::new();
        json::write_object(&line, &mut said);
        line.push("knobs", knobs);
        line.push("ts_utc", utc(now));
        let mut text = Vec::new();
        json::write_object(&line, &mut text);
        // A marker makes a line one line only: of what is dealt with, whoever finds it so again.
        let identity = if entry.status == Status::Failed { &text } else { &said };
        let marker = format!("{}.{}", ready.message_id, &sha256_hex(identity)[..16]);
        let marker = self.paths.of_run(run, &format!("wsp/ready_runs/markers/{marker}.json"));
        let line = Line { marker: File::new(marker, text.clone()), text: text.into() };
        let path = self.path(run, &ready.message_id);
        let answers = self.artifacts.append_lines(&path, vec![line], Markers::Believed).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    /// Appends to the governance log of a run that its READY was seen, once for each message.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn ready_seen(
        &self,
        run: &str,
        ready: &Ready,
        provenance: Object<'static>,
        now: Millis,
    ) -> Result<(), ArtifactsError> {
        let line = governance::Line {
            family: Family::RunReadySeen,
            run,
            scenario_run: Some(&ready.scenario_run_id),
            component: COMPONENT,
            dedupe_key: &format!("wsp_ready:{}", ready.message_id),
            at: now,
            actor: Object::from_iter([("actor_id", Value::from(format!("SYSTEM::{COMPONENT}")))]),
            provenance,
            details: Object::from_iter([
                ("message_id", Value::from(ready.message_id.clone())),
                ("run_id", ready.run_id.clone().into()),
                ("facts_view_ref", ready.facts_view_ref.clone().into()),
            ]),
        };
        let marker = self.paths.governance_marker(run, &line.event_id());
        let mut text = Vec::new();
        json::write_object(&line.to_object(), &mut text);
        let mut marked = text.clone();
        marked.push(b'\n');
        let lines = vec![Line { marker: File::new(marker, marked), text: text.into() }];
        let log = self.paths.governance_log(run);
        let answers = self.artifacts.append_lines(&log, lines, Markers::Believed).await;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    fn path(&self, run: &str, message_id: &str) -> String {
        self.paths.of_run(run, &format!("wsp/ready_runs/{message_id}.jsonl"))
    }
}
