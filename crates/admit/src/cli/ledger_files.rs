//! Artifact files other than documents that are regenerated from the ledger: closures and scenario runs.

use admit_artifacts::{Artifacts, File};
use admit_contracts::ingestion_gate::ArtifactPaths;
use admit_ledger::verify::{Disagreement, DisagreementSink, DocumentFile, Verifier, VerifyError};
use admit_runs::runner;

use super::verify_stores::StoreCheckError;
use crate::ledger::LedgerReader;

/// Expected content of a file, with the check that it belongs to.
pub(super) struct LedgerFile {
    pub(super) check: &'static str,
    pub(super) file: File,
}

/// Ledger content that is rendered into files. Read before any await, because the verifier blocks.
pub(super) struct FileSources {
    documents: Vec<DocumentFile>,
    scenario_runs: Vec<String>,
}

impl FileSources {
    pub(super) fn read(verifier: &Verifier) -> Result<Self, VerifyError> {
        Ok(Self { documents: verifier.files()?, scenario_runs: verifier.scenario_runs()? })
    }
}

/// Renders all files. Contradicting documents of a scenario run are reported to `found`.
pub(super) async fn render(
    ledger: &dyn LedgerReader,
    sources: FileSources,
    paths: &ArtifactPaths,
    found: &mut DisagreementSink<'_>,
) -> Result<Vec<LedgerFile>, StoreCheckError> {
    let mut files: Vec<LedgerFile> = sources
        .documents
        .into_iter()
        .map(|documents| LedgerFile {
            check: if documents.kind == "closure" { "closure" } else { "scenario" },
            file: File::new(documents.path, format!("{}\n", documents.text)),
        })
        .collect();
    for run_id in sources.scenario_runs {
        let Some(run) = ledger.scenario_run(run_id).await? else { continue };
        for message in runner::find_contradictions(&run) {
            found(Disagreement { at: None, check: "scenario", message });
        }
        let run_files = runner::files_of(&run, paths).into_iter();
        files.extend(run_files.map(|file| LedgerFile { check: "scenario", file }));
    }
    Ok(files)
}

/// Compares each file with the store. Returns the number of files.
pub(super) async fn check(
    files: &[LedgerFile],
    store: &dyn Artifacts,
    found: &mut DisagreementSink<'_>,
) -> Result<u64, StoreCheckError> {
    for LedgerFile { check, file } in files {
        let message = match store.get(&file.path).await? {
            None => format!("{} is missing", file.path),
            Some(stored) if stored != file.bytes => {
                format!("{} differs from the ledger", file.path)
            }
            Some(_) => continue,
        };
        found(Disagreement { at: None, check, message });
    }
    Ok(files.len() as u64)
}
