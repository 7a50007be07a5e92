//! Files of a run: copies of its documents and state in the ledger, for readers of the artifacts.

use std::sync::Arc;

use admit_artifacts::{Artifacts, ArtifactsError, File, Line, Markers, Put, ScopedArtifacts};
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_ledger::scenario_runs::{ScenarioDocument, ScenarioRun};
use bytes::Bytes;

use super::documents::{self, RunRefs};
use super::reason::{RefusalCode, RefusedRequest, RunnerError};

/// Folders of a run that the runner writes to. The second is a log that several components append to.
pub const FOLDERS: &[&str] = &["sr", "obs/governance"];

/// Access of the runner to the artifacts, restricted to its own folders.
#[derive(Clone)]
pub(super) struct RunFiles {
    artifacts: ScopedArtifacts,
}

impl RunFiles {
    pub(super) fn new(artifacts: Arc<dyn Artifacts>, paths: &ArtifactPaths) -> Self {
        Self { artifacts: ScopedArtifacts::new(artifacts, paths.prefix(), FOLDERS) }
    }

    /// Writes immutable documents. An existing file with other content is drift.
    pub(super) async fn put(&self, documents: &[ScenarioDocument]) -> Result<(), RunnerError> {
        let files = documents.iter().map(|document| File::new(&*document.path, bytes(document)));
        let puts = self.artifacts.put_if_absent(files.collect()).await;
        for (document, put) in documents.iter().zip(puts) {
            if put.map_err(|error| unavailable(&error))? == Put::Created {
                continue;
            }
            let stored = self.artifacts.get(&document.path).await;
            if stored.map_err(|error| unavailable(&error))? != Some(bytes(document)) {
                let detail = format!("{} differs from the ledger", document.path);
                return Err(RefusedRequest::new(RefusalCode::drift(&document.kind), detail).into());
            }
        }
        Ok(())
    }

    /// Writes the record, its index and the status of a run.
    pub(super) async fn write_status(
        &self,
        run: &ScenarioRun,
        refs: &RunRefs<'_>,
    ) -> Result<(), RunnerError> {
        for written in self.artifacts.show(status_files(run, refs)).await {
            written.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }

    /// Appends a line to a log, once per marker.
    pub(super) async fn append_line(
        &self,
        log: &str,
        marker: String,
        line: String,
    ) -> Result<(), RunnerError> {
        let marker = File::new(marker, format!("{line}\n"));
        let lines = vec![Line { text: Bytes::from(line), marker }];
        for put in self.artifacts.append_lines(log, lines, Markers::Verified).await {
            put.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }

    pub(super) async fn exists(&self, path: &str) -> Result<bool, RunnerError> {
        Ok(self.artifacts.get(path).await.map_err(|error| unavailable(&error))?.is_some())
    }

    /// Syncs written files to disk. Called before READY, so that a published run has durable facts.
    pub(super) async fn sync(&self) -> Result<(), RunnerError> {
        self.artifacts.sync().await.map_err(|error| unavailable(&error))
    }
}

/// The record, its index and the status of a run, as in the ledger.
fn status_files(run: &ScenarioRun, refs: &RunRefs<'_>) -> Vec<File> {
    let mut record = String::new();
    for event in &run.events {
        record.push_str(&event.line);
        record.push('\n');
    }
    let line = |object| format!("{}\n", documents::to_json(&object));
    vec![
        File::new(refs.record(), record),
        File::new(refs.index(), line(documents::record_index(run))),
        File::new(refs.status(), line(documents::run_status(run, refs))),
    ]
}

/// Expected status files of a run, for checks and repairs. Empty if the runner has not yet written the
/// newest version.
pub fn files_of(run: &ScenarioRun, paths: &ArtifactPaths) -> Vec<File> {
    if run.shown != run.version {
        return Vec::new();
    }
    status_files(run, &RunRefs { paths, run: &run.platform_run_id, run_id: &run.run_id })
}

fn bytes(document: &ScenarioDocument) -> Bytes {
    Bytes::from(format!("{}\n", document.text))
}

fn unavailable(error: &ArtifactsError) -> RunnerError {
    let detail = format!("{error}; all decisions are in the ledger, submit again to resume");
    RefusedRequest::new(RefusalCode::ArtifactUnavailable, detail).into()
}
