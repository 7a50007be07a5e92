//! Artifacts of the streamer: it reads facts of runs, and writes its records of READY messages. It
//! has no other access.

use std::sync::Arc;

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, ScopedArtifacts};
use admit_contracts::ingestion_gate::governance::{self, GovernanceFamily};
use admit_contracts::ingestion_gate::{ArtifactPaths, utc};
use admit_core::Millis;
use admit_core::hash::sha256_hex;
use admit_core::json::{self, Limits, Object, Value};
use bytes::Bytes;

use super::ready::Ready;

/// Folders of a run that the streamer writes to. The second is a log that several components append
/// to.
pub const FOLDERS: &[&str] = &["wsp", "obs/governance"];

/// Component name in governance lines.
const COMPONENT: &str = "world_stream_producer";

/// Status of a READY message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadyStatus {
    /// The gate has decided on all its rows, or on as many as were allowed.
    Streamed,
    /// It belongs to another platform run than this streamer's.
    SkippedOutOfScope,
    /// It was settled before.
    SkippedDuplicate,
    /// Streaming failed; it will be retried.
    Failed,
    /// The gate is not ready; it will be retried.
    DeferredDownstreamNotReady,
    /// Another streamer holds the run's lock; it will be checked again.
    DeferredRunInUse,
    /// In backoff after a failure, or beyond the limit of this cycle; it will be retried later.
    Waiting,
    /// The streamer was stopped; it resumes from its checkpoints.
    Stopped,
}

impl ReadyStatus {
    /// Its name in records.
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

    /// Whether it is final. Any other status is retried.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Streamed | Self::SkippedOutOfScope | Self::SkippedDuplicate)
    }

    /// Whether a record with this status is final.
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
pub struct StreamRecord {
    /// Its status.
    pub status: ReadyStatus,
    /// The reason, if any.
    pub reason: Option<String>,
    /// Rows the gate has decided on; 0 on failure.
    pub emitted: u64,
    /// The pack, once it is known.
    pub engine_run_root: Option<String>,
    /// The scenario, once it is known.
    pub scenario_id: Option<String>,
}

/// Access of the streamer to the artifacts.
#[derive(Clone)]
pub struct ReadyRecords {
    artifacts: Arc<ScopedArtifacts>,
    paths: ArtifactPaths,
}

impl ReadyRecords {
    /// Records in the layout `paths`.
    pub fn new(artifacts: Arc<dyn Artifacts>, paths: ArtifactPaths) -> Self {
        let artifacts = Arc::new(ScopedArtifacts::new(artifacts, paths.prefix(), FOLDERS));
        Self { artifacts, paths }
    }

    /// Reads the facts at a reference; `None` if there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn facts(&self, reference: &str) -> Result<Option<Bytes>, ArtifactsError> {
        self.artifacts.get(reference).await
    }

    /// Whether the record of a message below this run has a final status.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn is_terminal(&self, run: &str, message_id: &str) -> Result<bool, ArtifactsError> {
        let path = self.path(run, message_id);
        let Some(bytes) = self.artifacts.get(&path).await? else { return Ok(false) };
        // Ignore a partial last line; the next append cuts it off.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.any(|line| match json::parse(line, &Limits::default()) {
            Ok(line) => {
                line.get("status").and_then(Value::as_str).is_some_and(ReadyStatus::is_terminal)
            }
            Err(error) => {
                tracing::warn!(path, %error, "skipping an unreadable line of a READY record");
                false
            }
        }))
    }

    /// Appends a line to the record of a message. A final status is recorded once; every failed
    /// attempt has its own line. `knobs` are those of the attempt.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn append(
        &self,
        run: &str,
        ready: &Ready,
        entry: &StreamRecord,
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
        let mut identity_without_time = Vec::new();
        json::write_object(&line, &mut identity_without_time);
        line.push("knobs", knobs);
        line.push("ts_utc", utc(now));
        let mut text = Vec::new();
        json::write_object(&line, &mut text);
        // A marker deduplicates lines: a final status by its content without the time, a failure by
        // the whole line.
        let identity =
            if entry.status == ReadyStatus::Failed { &text } else { &identity_without_time };
        let marker = format!("{}.{}", ready.message_id, &sha256_hex(identity)[..16]);
        let marker = self.paths.of_run(run, &format!("wsp/ready_runs/markers/{marker}.json"));
        let line = Line { marker: File::new(marker, text.clone()), text: text.into() };
        let path = self.path(run, &ready.message_id);
        let appended = self.artifacts.append_lines(&path, vec![line], Markers::Trusted).await;
        appended.into_iter().try_for_each(|result| result.map(drop))
    }

    /// Appends "READY seen" to the governance log of a run, once per message.
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
        let line = governance::GovernanceLine {
            family: GovernanceFamily::RunReadySeen,
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
        let appended = self.artifacts.append_lines(&log, lines, Markers::Trusted).await;
        appended.into_iter().try_for_each(|result| result.map(drop))
    }

    fn path(&self, run: &str, message_id: &str) -> String {
        self.paths.of_run(run, &format!("wsp/ready_runs/{message_id}.jsonl"))
    }
}
