//! The files about a run: copies of what the ledger says, for whoever reads files.

use std::sync::Arc;

use admit_artifacts::{Artifacts, ArtifactsError, File, ScopedArtifacts, Line, Markers, Put};
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_ledger::scenario_runs::{ScenarioDocument, ScenarioRun};
use bytes::Bytes;

use super::documents::{self, Refs};
use super::reason::{Refusal, Refused, RunnerError};

/// Where the runner writes, below a run. The second is a log that everybody appends to.
pub const FOLDERS: &[&str] = &["sr", "obs/governance"];

/// The runner's hold on the artifacts: it can write its own folders and no others.
#[derive(Clone)]
pub(super) struct Files {
    artifacts: ScopedArtifacts,
}

impl Files {
    pub(super) fn new(artifacts: Arc<dyn Artifacts>, paths: &ArtifactPaths) -> Self {
        Self { artifacts: ScopedArtifacts::new(artifacts, paths.prefix(), FOLDERS) }
    }

    /// Puts what never changes. What is there and says something else is drift.
    pub(super) async fn put(&self, documents: &[ScenarioDocument]) -> Result<(), RunnerError> {
        let files = documents.iter().map(|document| File::new(&*document.path, bytes(document)));
        let puts = self.artifacts.put_if_absent(files.collect()).await;
        for (document, put) in documents.iter().zip(puts) {
            if put.map_err(|error| unavailable(&error))? == Put::Created {
                continue;
            }
            let there = self.artifacts.get(&document.path).await;
            if there.map_err(|error| unavailable(&error))? != Some(bytes(document)) {
                let detail = format!("{} is not what the ledger keeps", document.path);
                return Err(Refused::new(Refusal::drift(&document.kind), detail).into());
            }
        }
        Ok(())
    }

    /// Shows how a run stands.
    pub(super) async fn show(&self, run: &ScenarioRun, refs: &Refs<'_>) -> Result<(), RunnerError> {
        for shown in self.artifacts.show(shown_files(run, refs)).await {
            shown.map_err(|error| unavailable(&error))?;
        }
        Ok(())
    }

    /// Appends to the log that tells whoever watches over a run, once.
    pub(super) async fn tell(
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

    /// Whether a file is there.
    pub(super) async fn has(&self, path: &str) -> Result<bool, RunnerError> {
        Ok(self.artifacts.get(path).await.map_err(|error| unavailable(&error))?.is_some())
    }

    /// Brings what was put to stable storage: nothing is said of a run before its facts are there.
    pub(super) async fn sync(&self) -> Result<(), RunnerError> {
        self.artifacts.sync().await.map_err(|error| unavailable(&error))
    }
}

/// The files that show how a run stands, as the ledger has it.
fn shown_files(run: &ScenarioRun, refs: &Refs<'_>) -> Vec<File> {
    let mut record = String::new();
    for event in &run.events {
        record.push_str(&event.line);
        record.push('\n');
    }
    let line = |object| format!("{}\n", documents::written(&object));
    vec![
        File::new(refs.record(), record),
        File::new(refs.index(), line(documents::index(run))),
        File::new(refs.status(), line(documents::status(run, refs))),
    ]
}

/// The files that show how a run stands, for a check or a repair. Nothing where the runner has not shown
/// its newest version yet.
pub fn files_of(run: &ScenarioRun, paths: &ArtifactPaths) -> Vec<File> {
    if run.shown != run.version {
        return Vec::new();
    }
    shown_files(run, &Refs { paths, run: &run.platform_run_id, run_id: &run.run_id })
}

fn bytes(document: &ScenarioDocument) -> Bytes {
    Bytes::from(format!("{}\n", document.text))
}

fn unavailable(error: &ArtifactsError) -> RunnerError {
    let detail = format!("{error}; what was decided is in the ledger, submit again to go on");
    Refused::new(Refusal::ArtifactUnavailable, detail).into()
}
